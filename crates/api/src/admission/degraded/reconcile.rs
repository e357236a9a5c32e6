//! Leaving degraded mode: reports pending charges to Redis when it answers again.

use futures_util::future::join_all;
use ipseity_domain::DailyUsage;
use ipseity_ledger::{LedgerError, ReconcileBatch, Reconciled};

use crate::admission::Admission;

/// Number of concurrent batches. Enough to reconcile 100,000 keys within seconds, and few enough that charges of new
/// requests do not queue behind them.
const CONCURRENT_BATCHES: usize = 64;
/// Maximum number of attempts per batch. An unknown record is filled and the batch sent again; a change may
/// overtake the fill.
const ATTEMPTS_MAX: usize = 5;

impl Admission {
    /// Checks that Redis answers on the connections that charges use.
    ///
    /// # Errors
    /// If Redis does not answer in time.
    pub async fn check_ledger(&self) -> Result<(), LedgerError> {
        self.ledger.ping().await
    }

    /// Publishes the deactivated and paused keys that this node knows to Redis, for when the outbox cannot be read.
    ///
    /// # Errors
    /// If Redis does not answer in time.
    pub async fn publish_refused_keys(&self) -> Result<(), LedgerError> {
        for record in self.degraded.refused_records() {
            self.ledger.publish(&record).await?;
        }
        Ok(())
    }

    /// Closes the breaker, so that Redis decides on requests again.
    pub fn leave_degraded_mode(&self) {
        self.degraded.breaker.close();
        self.metrics.set_degraded(false);
        tracing::info!(pending_charges = self.degraded.pending_charges.total_requests(), "left degraded mode");
    }

    /// Records the pauses that this node decided on in PostgreSQL. Stops at the first failure.
    pub async fn record_local_pauses(&self) {
        for pause in self.degraded.pending_charges.unrecorded_pauses() {
            if !self.record_local_pause(&pause).await {
                return;
            }
        }
    }

    /// Reconciles all pending charges that are due. Returns the number of requests that are still pending.
    pub async fn reconcile_pending(&self) -> u64 {
        for batches in self.degraded.pending_charges.take_batches().chunks(CONCURRENT_BATCHES) {
            join_all(batches.iter().map(|batch| self.reconcile_batch(batch))).await;
        }
        self.reconcile_demo().await;
        self.report_pending_charges()
    }

    /// Updates the metric of pending charges and returns their number.
    pub fn report_pending_charges(&self) -> u64 {
        let pending = self.degraded.pending_charges.total_requests();
        self.metrics.set_pending_charges(pending);
        pending
    }

    async fn reconcile_batch(&self, batch: &ReconcileBatch) {
        for _ in 0..ATTEMPTS_MAX {
            match self.ledger.reconcile(batch).await {
                Ok(Reconciled::Done { quota, yesterday, unverifiable }) => {
                    self.apply_reconciled(
                        batch,
                        DailyUsage { day: quota.day, count: quota.used },
                        yesterday,
                        unverifiable,
                    );
                    return;
                }
                Ok(Reconciled::Unknown(fence)) => match self.store.keys().find_record(batch.key).await {
                    Ok(Some(mut record)) => {
                        record.merge_usage(self.degraded.local_usage(batch.key));
                        if self.ledger.fill(&record, &fence).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return self.degraded.pending_charges.remove_key(batch.key),
                    Err(_) => return,
                },
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "batch not reconciled");
                    return;
                }
            }
        }
    }

    fn apply_reconciled(
        &self,
        batch: &ReconcileBatch,
        usage: DailyUsage,
        yesterday: Option<DailyUsage>,
        unverifiable: u64,
    ) {
        self.degraded.pending_charges.confirm_batch(batch);
        self.degraded.merge_usage(batch.key, usage);
        self.usage_buffer.record_admitted(batch.key, usage);
        if let Some(yesterday) = yesterday {
            self.usage_buffer.record_yesterday(batch.key, yesterday);
        }
        let count = batch.days.iter().map(|usage| usage.count).sum::<u64>() + batch.unconfirmed.len() as u64;
        self.metrics.count_reconciled(count.saturating_sub(unverifiable), unverifiable);
        if unverifiable > 0 {
            tracing::warn!(unverifiable, "unverifiable charges not repeated");
        }
    }

    async fn reconcile_demo(&self) {
        let Some(batch) = self.degraded.demo_quota.take_batch() else { return };
        let is_reconciled = match self.ledger.reconcile_demo(&batch, None).await {
            Ok(false) => match self.store.usage().find_demo_usage().await {
                Ok(usage) => self.ledger.reconcile_demo(&batch, Some(usage)).await,
                Err(_) => return,
            },
            is_reconciled => is_reconciled,
        };
        if let Ok(true) = is_reconciled {
            self.metrics.count_reconciled(batch.days.iter().map(|usage| usage.count).sum(), 0);
            self.degraded.demo_quota.confirm_batch();
        }
    }
}
