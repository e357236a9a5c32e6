//! Deletes expired data. Every node does so, every few minutes.

use std::time::Duration;

use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_store::{RetentionPolicy, SessionLimits, Store, StoreError};
use prometheus_client::registry::Registry;

use crate::config::RetentionConfig;
use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};
use crate::tasks::periodic::run_every;

/// Limits the load on PostgreSQL.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

pub(crate) struct RetentionWorker {
    store: Store,
    policy: RetentionPolicy,
    session_limits: SessionLimits,
    interval: Duration,
    outcomes: OutcomeCounter,
}

impl RetentionWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        store: Store,
        settings: &RetentionConfig,
        session_limits: SessionLimits,
    ) -> Self {
        let help = "Runs that delete expired data, by outcome";
        Self {
            store,
            policy: RetentionPolicy {
                usage_days: settings.usage_days.into(),
                hourly_usage_days: settings.hourly_usage_days.into(),
                history_days: settings.history_days.into(),
            },
            session_limits,
            interval: Duration::from_secs(settings.interval_s).max(INTERVAL_MIN),
            outcomes: OutcomeCounter::register(registry, "retention_runs", help, [SUCCEEDED, FAILED]),
        }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        run_every(self.interval, &drain, || self.run_once()).await;
    }

    async fn run_once(&self) {
        match self.delete_expired().await {
            Ok(()) => self.outcomes.inc(SUCCEEDED),
            Err(error) => {
                tracing::warn!(error = %causes(&error), "retention run failed");
                self.outcomes.inc(FAILED);
            }
        }
    }

    async fn delete_expired(&self) -> Result<(), StoreError> {
        self.store.delete_expired(self.session_limits).await?;
        self.store.apply_retention(self.policy).await
    }
}
