//! Deletes expired data. Every node does so, every few minutes.

use std::time::Duration;

use ipseity_edge::Drain;
use ipseity_store::{RetentionPolicy, Store, StoreError};
use prometheus_client::registry::Registry;

use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};
use crate::tasks::periodic::run_every;

/// Limits the load on PostgreSQL.
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
    /// Runs until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        run_every(self.interval.max(INTERVAL_MIN), &drain, || self.run_once()).await;
    }

    async fn run_once(&self) {
        match self.delete_expired().await {
            Ok(()) => self.outcomes.inc(SUCCEEDED),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "retention run failed");
                self.outcomes.inc(FAILED);
            }
        }
    }

    async fn delete_expired(&self) -> Result<(), StoreError> {
        self.store.delete_expired(self.session_idle_timeout).await?;
        self.store.apply_retention(self.policy).await
    }
}
