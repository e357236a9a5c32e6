//! Leaves degraded mode: probes Redis, applies key changes before new charges, and reconciles pending charges.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ipseity_api::Api;
use ipseity_edge::Drain;
use ipseity_store::Store;
use tokio::time::{Instant, sleep, timeout};

use crate::tasks::outbox::OutboxWorker;
use crate::tasks::periodic::run_every;

const POSTGRES_CHECK_TIMEOUT: Duration = Duration::from_millis(500);
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Longer than a late call takes to arrive at Redis.
const SHUTDOWN_RECONCILE_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) struct RecoveryWorker {
    pub(crate) api: Arc<Api>,
    pub(crate) outbox: Arc<OutboxWorker>,
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
            tracing::error!(pending, "pending charges lost");
        }
    }

    /// Reconciles what it can and returns the number of pending charges.
    async fn run_once(&self) -> u64 {
        self.api.admission().record_local_pauses().await;
        if self.api.admission().is_degraded()
            && let Err(error) = self.leave_degraded_mode().await
        {
            tracing::debug!(error = &*error, "Redis probe failed");
            return self.api.admission().report_pending_charges();
        }
        self.api.admission().reconcile_pending().await
    }

    async fn leave_degraded_mode(&self) -> Result<()> {
        self.api.admission().check_ledger().await?;
        let store = &self.outbox.store;
        if matches!(timeout(POSTGRES_CHECK_TIMEOUT, store.check()).await, Ok(Ok(()))) {
            self.outbox.apply_outbox().await?;
            ensure!(store.outbox().is_empty().await?, "another node is still applying key changes to Redis");
        } else {
            self.api.admission().publish_refused_keys().await?;
        }
        self.api.admission().reconcile_pending().await;
        self.api.admission().leave_degraded_mode();
        Ok(())
    }
}

/// Listens for key changes in PostgreSQL and invalidates the key records that this node has cached.
pub(crate) async fn follow_key_events(api: Arc<Api>, store: Store, drain: Drain) {
    let listen = async {
        loop {
            if let Ok(mut key_events) = store.keys().listen().await {
                api.admission().set_key_events_subscribed(true);
                while key_events.wait().await.is_ok() {
                    api.admission().invalidate_key_records();
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
