//! Writes buffered usage to PostgreSQL, every few seconds and once more at shutdown.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ipseity_api::{DrainedUsage, UsageBuffer};
use ipseity_edge::Drain;
use ipseity_ledger::Ledger;
use ipseity_store::Store;
use prometheus_client::registry::Registry;

use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};
use crate::tasks::periodic::run_every;

/// Keeps statements short: a million keys are written in batches that take PostgreSQL milliseconds each.
const ROWS_PER_STATEMENT_MAX: usize = 5_000;

pub(crate) struct UsageFlushWorker {
    store: Store,
    ledger: Arc<Ledger>,
    usage_buffer: Arc<UsageBuffer>,
    interval: Duration,
    outcomes: OutcomeCounter,
}

impl UsageFlushWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        store: Store,
        ledger: Arc<Ledger>,
        usage_buffer: Arc<UsageBuffer>,
        interval: Duration,
    ) -> Self {
        let help = "Writes of buffered usage to PostgreSQL, by outcome";
        let outcomes = OutcomeCounter::register(registry, "usage_flushes", help, [SUCCEEDED, FAILED]);
        Self { store, ledger, usage_buffer, interval, outcomes }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        run_every(self.interval, &drain, || self.flush_usage()).await;
    }

    /// Writes the buffered usage. What could not be written stays in the buffer.
    pub(crate) async fn flush_usage(&self) {
        let mut drained = self.usage_buffer.drain();
        if let Err(error) = self.write_usage(&mut drained).await {
            tracing::warn!(error = &*error, "usage flush failed");
            self.usage_buffer.restore(drained);
            self.outcomes.inc(FAILED);
        } else {
            self.outcomes.inc(SUCCEEDED);
        }
    }

    async fn write_usage(&self, drained: &mut DrainedUsage) -> Result<()> {
        for rows in drained.refusal_rows().chunks(ROWS_PER_STATEMENT_MAX) {
            self.store.usage().add_refusals(rows).await?;
            drained.remove_refusals(rows);
        }
        for (usage, refused) in drained.demo_rows() {
            self.store.usage().merge_demo_count(usage, refused).await?;
            drained.remove_demo_day(usage.day);
        }
        self.write_usage_rows(drained).await?;
        let unconfirmed = drained.unconfirmed_keys();
        if !unconfirmed.is_empty() {
            let usage = self.ledger.usage_of(&unconfirmed).await?;
            drained.merge_counts(unconfirmed.into_iter().zip(usage).filter_map(|(key, usage)| Some((key, usage?))));
            self.write_usage_rows(drained).await?;
        }
        for key in drained.yesterday_keys() {
            self.ledger.clear_yesterday(key).await?;
        }
        Ok(())
    }

    async fn write_usage_rows(&self, drained: &DrainedUsage) -> Result<()> {
        for rows in drained.admitted_rows().chunks(ROWS_PER_STATEMENT_MAX) {
            self.store.usage().merge_counts(rows).await?;
        }
        Ok(())
    }
}
