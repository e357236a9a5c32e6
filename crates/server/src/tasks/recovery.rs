//! Leaves degraded mode: probes Redis and reconciles pending charges.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ipseity_api::Api;
use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_ledger::Owner;
use ipseity_store::{KeyEvent, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::tasks::charge_gate::ChargeGate;
use crate::tasks::periodic::run_every;

const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// In this time, two clocks move apart by less than the unit of time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);
/// Longer than a late call takes to arrive at Redis.
const SHUTDOWN_RECONCILE_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) struct RecoveryWorker {
    pub(crate) api: Arc<Api>,
    /// `None` on a remote node, where home has one.
    pub(crate) charge_gate: Option<Arc<ChargeGate>>,
    pub(crate) interval: Duration,
}

impl RecoveryWorker {
    /// Runs until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        run_every(self.interval, &drain, || self.run_once()).await;
    }

    /// Reconciles the pending charges, if Redis answers in time.
    pub(crate) async fn reconcile_before_exit(&self) {
        let deadline = Instant::now() + SHUTDOWN_RECONCILE_TIMEOUT;
        let mut pending = self.run_once().await;
        while pending > 0 && Instant::now() < deadline {
            sleep(self.interval).await;
            pending = self.run_once().await;
        }
        if pending > 0 {
            self.api.admission().report_lost_charges();
            tracing::error!(pending, "pending charges lost");
        }
    }

    /// Reconciles what it can and returns the number of pending charges.
    async fn run_once(&self) -> u64 {
        let admission = self.api.admission();
        admission.record_local_pauses().await;
        if let Some(charge_gate) = &self.charge_gate
            && !charge_gate.is_trusted()
            && let Err(error) = charge_gate.check_deployment().await
        {
            tracing::debug!(error = %causes(&*error), "Redis still not trusted");
        }
        // Concurrently: a server that does not answer delays no other.
        join_all(admission.unavailable_owners().iter().map(|owner| self.recover_owner(owner))).await;
        admission.reconcile_pending().await
    }

    async fn recover_owner(&self, owner: &Owner) {
        if let Err(error) = self.api.admission().recover_owner(owner).await {
            tracing::debug!(error = %causes(&error), "Redis probe failed");
        }
    }
}

/// Reads the clocks of Redis, so that an idle node notices when one is set back.
pub(crate) async fn follow_clocks(api: Arc<Api>, drain: Drain) {
    run_every(CLOCK_INTERVAL, &drain, || api.admission().refresh_clocks()).await;
}

/// Listens for key changes in PostgreSQL and looks up the changed keys that this node has cached.
pub(crate) async fn follow_key_events(api: Arc<Api>, store: Store, drain: Drain) {
    let mut lookups = JoinSet::new();
    let listen = async {
        loop {
            if let Ok(mut key_events) = store.keys().listen().await {
                api.admission().set_key_events_subscribed(true);
                while let Ok(event) = key_events.wait().await {
                    match event {
                        // A slow lookup must not delay the next event.
                        KeyEvent::Changed(key) if api.admission().report_change(key) => {
                            let api = Arc::clone(&api);
                            lookups.spawn(async move { api.admission().look_up_changed_key(key).await });
                        }
                        KeyEvent::Changed(_) => {}
                        KeyEvent::Resync => api.admission().set_key_events_subscribed(true),
                    }
                    while lookups.try_join_next().is_some() {}
                }
                api.admission().set_key_events_subscribed(false);
            }
            sleep(RECONNECT_DELAY).await;
        }
    };
    tokio::select! {
        () = listen => {}
        () = drain.started() => {}
    }
}
