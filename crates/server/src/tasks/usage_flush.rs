//! Writes usage to PostgreSQL, every few seconds and once more at shutdown.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use ipseity_api::{DrainedUsage, UsageBuffer};
use ipseity_domain::{causes, is_mutant};
use ipseity_edge::Drain;
use ipseity_keys::KeyService;
use ipseity_ledger::{Ledger, Owner, SweepPart};
use ipseity_store::{KeyDailyUsage, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::time::{interval, timeout};

use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};
use crate::tasks::periodic::run_every;

/// Keeps statements short: a million keys are written in batches that take PostgreSQL milliseconds each.
const ROWS_PER_STATEMENT_MAX: usize = 5_000;

pub(crate) struct UsageFlushWorker {
    store: Store,
    ledger: Arc<Ledger>,
    key_service: Arc<KeyService>,
    usage_buffer: Arc<UsageBuffer>,
    interval: Duration,
    /// Addresses of the servers that are being swept.
    sweeping: Mutex<HashSet<String>>,
    outcomes: OutcomeCounter,
    future_counts: Counter,
}

impl UsageFlushWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        store: Store,
        ledger: Arc<Ledger>,
        key_service: Arc<KeyService>,
        usage_buffer: Arc<UsageBuffer>,
        interval: Duration,
    ) -> Arc<Self> {
        let help = "Writes of buffered usage to PostgreSQL, by outcome";
        let outcomes = OutcomeCounter::register(registry, "usage_flushes", help, [SUCCEEDED, FAILED]);
        let future_counts = Counter::default();
        let help = "Daily counts that were ignored because their day is in the future";
        registry.register("usage_future_counts", help, future_counts.clone());
        let sweeping = Mutex::default();
        Arc::new(Self { store, ledger, key_service, usage_buffer, interval, sweeping, outcomes, future_counts })
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self: &Arc<Self>, drain: Drain) {
        run_every(self.interval, &drain, || self.flush_usage()).await;
    }

    /// Writes all counts before the node exits. Another node may have swept a moment ago, before the last requests.
    pub(crate) async fn flush_before_exit(&self) {
        self.flush_buffer().await;
        if self.key_service.deployment_status().is_mismatch() {
            return;
        }
        let flush_all = async |owner: Owner| {
            self.count_outcome(self.flush_part(&self.ledger.all_parts(&owner)).await);
        };
        let _ = timeout(self.interval, join_all(self.ledger.owners().into_iter().map(flush_all))).await;
    }

    /// Writes the buffered usage, and the counts in Redis. What could not be written stays there.
    async fn flush_usage(self: &Arc<Self>) {
        self.flush_buffer().await;
        if self.key_service.deployment_status().is_mismatch() {
            return;
        }
        for owner in self.ledger.owners() {
            self.start_sweep(owner);
        }
    }

    async fn flush_buffer(&self) {
        let mut drained = self.usage_buffer.drain();
        let written = self.write_usage(&mut drained).await;
        self.usage_buffer.restore(drained);
        self.count_outcome(written);
    }

    /// Sweeps a server in a separate task, so that one that does not answer delays no other, and neither the next round nor the
    /// exit. Does nothing if the last sweep of it has not ended yet.
    fn start_sweep(self: &Arc<Self>, owner: Owner) {
        if !self.sweeping.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.address()) {
            return;
        }
        let worker = Arc::clone(self);
        tokio::spawn(async move {
            let swept = worker.sweep(&owner).await;
            worker.sweeping.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner.address());
            worker.count_outcome(swept);
        });
    }

    fn count_outcome(&self, result: Result<()>) {
        if let Err(error) = &result {
            tracing::warn!(error = %causes(&**error), "usage flush failed");
        }
        self.outcomes.inc(if result.is_ok() { SUCCEEDED } else { FAILED });
    }

    async fn write_usage(&self, drained: &mut DrainedUsage) -> Result<()> {
        for rows in drained.refusal_rows().chunks(ROWS_PER_STATEMENT_MAX) {
            self.store.usage().add_refusals(rows).await?;
            if !is_mutant("refusals-flushed-twice") {
                drained.remove_refusals(rows);
            }
        }
        for (usage, refused) in drained.demo_rows() {
            self.store.usage().merge_demo_count(usage, refused).await?;
            drained.remove_demo_day(usage.day);
        }
        Ok(())
    }

    /// Flushes the counts that Redis has marked, and records pauses that only Redis has. One node at a time does this
    /// for each server, in parts that are spread evenly: PostgreSQL writes thousands of rows in each interval, and would
    /// delay requests if it wrote them together.
    async fn sweep(&self, owner: &Owner) -> Result<()> {
        let Some(parts) = self.ledger.claim_sweep(owner, self.interval).await? else { return Ok(()) };
        // It ends before the claim does, unless PostgreSQL or Redis is slow.
        let mut tick = interval(self.interval * 4 / 5 / u32::try_from(parts.len())?);
        for part in &parts {
            tick.tick().await;
            self.flush_part(part).await?;
        }
        Ok(())
    }

    async fn flush_part(&self, part: &SweepPart) -> Result<()> {
        loop {
            let sweep = self.ledger.sweep(part).await?;
            let rows = sweep.usage.iter().flat_map(|unflushed| {
                unflushed.days.iter().map(|usage| KeyDailyUsage { key: unflushed.key, usage: *usage })
            });
            let rows: Vec<_> = rows.collect();
            if !is_mutant("flush-confirmed-without-writing") {
                self.write_counts(&rows).await?;
            }
            for keys in sweep.near_burst_limit.chunks(ROWS_PER_STATEMENT_MAX) {
                self.store.alert_queue().queue_near_burst_limit(keys).await?;
            }
            self.ledger.confirm_flush(&sweep.usage).await?;
            self.key_service.record_pauses(&sweep.pauses).await?;
            if !sweep.has_more {
                return Ok(());
            }
        }
    }

    async fn write_counts(&self, rows: &[KeyDailyUsage]) -> Result<()> {
        for rows in rows.chunks(ROWS_PER_STATEMENT_MAX) {
            let ignored_count = self.store.usage().merge_counts(rows).await?;
            if ignored_count > 0 {
                tracing::error!(
                    ignored_count,
                    "usage of future days ignored; check the clocks of Redis and PostgreSQL"
                );
                self.future_counts.inc_by(ignored_count);
            }
        }
        Ok(())
    }
}
