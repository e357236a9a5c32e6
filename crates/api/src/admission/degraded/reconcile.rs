//! Making the books right: what was admitted without the counter store reaches it when it is back.

use futures_util::future::join_all;
use ipseity_domain::DailyUsage;
use ipseity_ledger::{LedgerError, ReconcileBatch, Reconciled};

use crate::Api;

/// Batches under way at once: a hundred thousand keys are settled within seconds, and no verdict waits behind all of them.
const CONCURRENT_BATCHES: usize = 64;
/// A record that is unknown is filled and tried again; changes may overtake a fill.
const ATTEMPTS_MAX: usize = 5;

impl Api {
    /// Whether the counter store answers requests' connection.
    ///
    /// # Errors
    /// When it does not, in time.
    pub async fn check_ledger(&self) -> Result<(), LedgerError> {
        self.ledger.ping().await
    }

    /// Tells the counter store which keys are refused, as far as this node knows: the outbox that would tell cannot be read.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn publish_refused_keys(&self) -> Result<(), LedgerError> {
        for record in self.degraded.refused_records() {
            self.ledger.publish(&record).await?;
        }
        Ok(())
    }

    /// Goes back to the counter store's verdicts.
    pub fn leave_degraded_mode(&self) {
        self.degraded.breaker.close();
        self.metrics.set_degraded(false);
        tracing::info!(unsettled = self.degraded.pending_charges.total_requests(), "the counter store is back");
    }

    /// Writes the rows of pauses that this node made by itself, as far as the durable store takes them.
    pub async fn record_local_pauses(&self) {
        for pause in self.degraded.pending_charges.unrecorded_pauses() {
            if !self.record_local_pause(&pause).await {
                return;
            }
        }
    }

    /// Settles what can be settled; returns how many requests still wait.
    pub async fn reconcile_pending(&self) -> u64 {
        for batches in self.degraded.pending_charges.take_batches().chunks(CONCURRENT_BATCHES) {
            join_all(batches.iter().map(|batch| self.reconcile_batch(batch))).await;
        }
        self.reconcile_demo().await;
        self.report_pending_charges()
    }

    /// Counts what waits to be settled, for whoever looks at the metrics.
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
                    tracing::debug!(error = &error as &dyn std::error::Error, "a batch could not be settled yet");
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
            tracing::warn!(
                unverifiable,
                "requests from before an outage were left out: their charge could not be looked up"
            );
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
