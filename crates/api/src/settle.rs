//! Making the books right: what was admitted without the counter store reaches it when it is back.

use domain::Used;
use futures_util::future::join_all;
use ledger::{Batch, LedgerError, Settled};

use crate::Api;

/// Batches under way at once: a hundred thousand keys are settled within seconds, and no verdict waits behind all of them.
const AT_ONCE: usize = 64;
/// A record that is unknown is filled and tried again; changes may overtake a fill.
const TRIES_MAX: usize = 5;

impl Api {
    /// Whether the counter store answers requests' connection.
    ///
    /// # Errors
    /// When it does not, in time.
    pub async fn check_ledger(&self) -> Result<(), LedgerError> {
        self.ledger.check().await
    }

    /// Tells the counter store which keys are refused, as far as this node knows: the outbox that would tell cannot be read.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn publish_refused(&self) -> Result<(), LedgerError> {
        for standing in self.fallback.refused() {
            self.ledger.publish(&standing).await?;
        }
        Ok(())
    }

    /// Goes back to the counter store's verdicts.
    pub fn stop_recalling(&self) {
        self.fallback.breaker.close();
        self.metrics.recalling(false);
        tracing::info!(unsettled = self.fallback.unsettled.total(), "the counter store is back");
    }

    /// Writes the rows of pauses that this node made by itself, as far as the durable store takes them.
    pub async fn record_own_pauses(&self) {
        for pause in self.fallback.unsettled.pauses() {
            if !self.record_own(&pause).await {
                return;
            }
        }
    }

    /// Settles what can be settled; returns how many requests still wait.
    pub async fn settle(&self) -> u64 {
        for batches in self.fallback.unsettled.take().chunks(AT_ONCE) {
            join_all(batches.iter().map(|batch| self.settle_batch(batch))).await;
        }
        self.settle_demo().await;
        self.count_unsettled()
    }

    /// Counts what waits to be settled, for whoever looks at the metrics.
    pub fn count_unsettled(&self) -> u64 {
        let left = self.fallback.unsettled.total();
        self.metrics.unsettled(left);
        left
    }

    async fn settle_batch(&self, batch: &Batch) {
        for _ in 0..TRIES_MAX {
            match self.ledger.settle(batch).await {
                Ok(Settled::Done { charged, yesterday, untold }) => {
                    self.book(batch, Used { day: charged.day, count: charged.used }, yesterday, untold);
                    return;
                }
                Ok(Settled::Unknown(fence)) => match self.store.find_standing(batch.key).await {
                    Ok(Some(mut standing)) => {
                        standing.count_at_least(self.fallback.used(batch.key));
                        if self.ledger.fill(&standing, &fence).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return self.fallback.unsettled.discard(batch.key),
                    Err(_) => return,
                },
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a batch could not be settled yet");
                    return;
                }
            }
        }
    }

    fn book(&self, batch: &Batch, used: Used, yesterday: Option<Used>, untold: u64) {
        self.fallback.unsettled.done(batch);
        self.fallback.counted(batch.key, used);
        self.tally.admitted(batch.key, used);
        if let Some(yesterday) = yesterday {
            self.tally.yesterday(batch.key, yesterday);
        }
        let count = batch.days.iter().map(|used| used.count).sum::<u64>() + batch.unanswered.len() as u64;
        self.metrics.settled(count.saturating_sub(untold), untold);
        if untold > 0 {
            tracing::warn!(untold, "requests from before an outage were left out: their charge could not be looked up");
        }
    }

    async fn settle_demo(&self) {
        let Some(batch) = self.fallback.demo.take() else { return };
        let known = match self.ledger.settle_demo(&batch, None).await {
            Ok(false) => match self.store.find_demo_used().await {
                Ok(used) => self.ledger.settle_demo(&batch, Some(used)).await,
                Err(_) => return,
            },
            known => known,
        };
        if let Ok(true) = known {
            self.metrics.settled(batch.days.iter().map(|used| used.count).sum(), 0);
            self.fallback.demo.done();
        }
    }
}
