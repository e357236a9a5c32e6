//! Keeping no more than the settings say: what has expired or is past its time is deleted, by any node, every few minutes.

use std::time::Duration;

use ipseity_edge::Drain;
use ipseity_store::{RetentionPolicy, Store, StoreError};
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;

use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};

/// More often than this would be all that PostgreSQL does.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

pub(crate) struct RetentionWorker {
    pub(crate) store: Store,
    pub(crate) policy: RetentionPolicy,
    pub(crate) session_idle_timeout: Duration,
    pub(crate) interval: Duration,
    pub(crate) outcomes: OutcomeCounter,
}

pub(crate) fn register_retention_runs(registry: &mut Registry) -> OutcomeCounter {
    let help = "Runs that delete expired data, by outcome";
    OutcomeCounter::register(registry, "retention_runs", help, [SUCCEEDED, FAILED])
}

impl RetentionWorker {
    /// Deletes until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval.max(INTERVAL_MIN));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.run_once().await,
                () = drain.started() => return,
            }
        }
    }

    async fn run_once(&self) {
        match self.delete_expired().await {
            Ok(()) => self.outcomes.inc(SUCCEEDED),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what is past its time could not be deleted yet"
                );
                self.outcomes.inc(FAILED);
            }
        }
    }

    async fn delete_expired(&self) -> Result<(), StoreError> {
        self.store.delete_expired(self.session_idle_timeout).await?;
        self.store.apply_retention(self.policy).await
    }
}
