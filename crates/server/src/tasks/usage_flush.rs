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
use ipseity_ledger::{Ledger, Owner, Sweep};
use ipseity_store::{KeyDailyUsage, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio::time::timeout;

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
            let flushed = async { self.flush_sweep(&owner, self.ledger.sweep_rest(&owner).await?).await };
            self.count_outcome(flushed.await);
        };
        let _ = timeout(self.interval, join_all(self.ledger.owners().into_iter().map(flush_all))).await;
    }

    /// Writes the buffered usage, and the counts in Redis. What could not be written stays there.
    async fn flush_usage(self: &Arc<Self>) {
        self.flush_buffer().await;
        if self.key_service.deployment_status().is_mismatch() {
            return;
        }
        // A server that does not answer delays no other, and not the next round.
        let sweeps = self.ledger.owners().into_iter().filter_map(|owner| self.start_sweep(owner));
        let _ = timeout(self.interval, join_all(sweeps)).await;
    }

    async fn flush_buffer(&self) {
        let mut drained = self.usage_buffer.drain();
        let written = self.write_usage(&mut drained).await;
        self.usage_buffer.restore(drained);
        self.count_outcome(written);
    }

    /// Sweeps a server in a separate task. Returns `None` if the last sweep of it has not ended yet.
    fn start_sweep(self: &Arc<Self>, owner: Owner) -> Option<JoinHandle<()>> {
        let is_first = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.address());
        is_first.then(|| {
            let worker = Arc::clone(self);
            tokio::spawn(async move {
                let swept = worker.sweep(&owner).await;
                worker.sweeping.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner.address());
                worker.count_outcome(swept);
            })
        })
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
    /// for each server.
    async fn sweep(&self, owner: &Owner) -> Result<()> {
        match self.ledger.sweep(owner, self.interval).await? {
            Some(sweep) => self.flush_sweep(owner, sweep).await,
            None => Ok(()),
        }
    }

    async fn flush_sweep(&self, owner: &Owner, mut sweep: Sweep) -> Result<()> {
        loop {
            let rows = sweep.usage.iter().flat_map(|unflushed| {
                unflushed.days.iter().map(|usage| KeyDailyUsage { key: unflushed.key, usage: *usage })
            });
            let rows: Vec<_> = rows.collect();
            if !is_mutant("flush-confirmed-without-writing") {
                self.write_counts(&rows).await?;
            }
            self.ledger.confirm_flush(&sweep.usage).await?;
            self.key_service.record_pauses(&sweep.pauses).await?;
            if !sweep.has_more {
                return Ok(());
            }
            sweep = self.ledger.sweep_rest(owner).await?;
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
