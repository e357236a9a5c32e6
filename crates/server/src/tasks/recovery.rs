//! Finding back to the counter store: asks whether it answers, lets no charge overtake a revocation, and makes the books right.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ipseity_api::Api;
use ipseity_edge::Drain;
use ipseity_store::Store;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use crate::tasks::outbox::OutboxWorker;

/// Time for the durable store to show that it is there.
const POSTGRES_CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// Between a lost connection to the durable store and the next.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long a node that ends tries to leave its books right: longer than a late call can take to arrive.
const SHUTDOWN_RECONCILE_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) struct RecoveryWorker {
    pub(crate) api: Arc<Api>,
    pub(crate) outbox: Arc<OutboxWorker>,
    pub(crate) interval: Duration,
}

impl RecoveryWorker {
    /// Looks after the books until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => drop(self.run_once().await),
                () = drain.started() => return,
            }
        }
    }

    /// Leaves nothing unsettled behind, if a store is there to take it.
    pub(crate) async fn reconcile_before_exit(&self) {
        let deadline = Instant::now() + SHUTDOWN_RECONCILE_TIMEOUT;
        let mut pending = self.run_once().await;
        while pending > 0 && Instant::now() < deadline {
            sleep(self.interval).await;
            pending = self.run_once().await;
        }
        if pending > 0 {
            tracing::error!(
                pending,
                "requests that were admitted without the counter store are lost: it did not come back"
            );
        }
    }

    /// Does what can be done now; returns how many requests are still to be settled.
    async fn run_once(&self) -> u64 {
        self.api.record_local_pauses().await;
        if self.api.is_degraded()
            && let Err(error) = self.leave_degraded_mode().await
        {
            tracing::debug!(error = &*error, "the counter store is still away");
            return self.api.report_pending_charges();
        }
        self.api.reconcile_pending().await
    }

    async fn leave_degraded_mode(&self) -> Result<()> {
        self.api.check_ledger().await?;
        let store = &self.outbox.store;
        if matches!(timeout(POSTGRES_CHECK_TIMEOUT, store.check()).await, Ok(Ok(()))) {
            self.outbox.apply_outbox().await?;
            ensure!(store.outbox().is_empty().await?, "another node is still bringing changes to the counter store");
        } else {
            self.api.publish_refused_keys().await?;
        }
        self.api.reconcile_pending().await;
        self.api.leave_degraded_mode();
        Ok(())
    }
}

/// Follows the durable store's news of keys, so that what a node remembers of them is doubted in time.
pub(crate) async fn follow_key_events(api: Arc<Api>, store: Store, drain: Drain) {
    let listen = async {
        loop {
            if let Ok(mut key_events) = store.keys().listen().await {
                api.set_key_events_subscribed(true);
                while key_events.wait().await.is_ok() {
                    api.invalidate_key_records();
                }
                api.set_key_events_subscribed(false);
            }
            sleep(RECONNECT_DELAY).await;
        }
    };
    tokio::select! {
        () = listen => {}
        () = drain.started() => {}
    }
}
