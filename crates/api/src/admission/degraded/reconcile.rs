//! Leaving degraded mode: reports pending charges to Redis when it answers again.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use ipseity_domain::{DailyUsage, KeyId, causes};
use ipseity_ledger::{DemoReconcileBatch, Ledger, LedgerError, Owner, Quota, ReconcileBatch, Reconciled, SentCharge};

use crate::admission::Admission;
use crate::admission::backend::{Backend, Stores};
use crate::admission::degraded::pending::batch_requests;

/// Number of concurrent batches. Enough to reconcile 100,000 keys within seconds, and few enough that charges of new
/// requests do not queue behind them.
const CONCURRENT_BATCHES: usize = 64;
/// The same to home, which may be far away: 1,700 keys per second over 300 ms.
const CONCURRENT_BATCHES_TO_HOME: usize = 512;
/// Maximum number of attempts per batch. An unknown record is filled and the batch sent again; a change may
/// overtake the fill.
const ATTEMPTS_MAX: usize = 5;

/// What became of a batch.
pub(in crate::admission) enum BatchOutcome {
    /// It is counted.
    Done { quota: Quota, unverifiable: u64 },
    /// A charge of it may still be applied.
    TooEarly,
    /// The key was deleted.
    NoSuchKey,
    /// Home does not accept the digest any more: the secret was revoked.
    WrongSecret,
    /// It may have been counted, if it was sent.
    Failed(Option<SentCharge>),
}

impl Admission {
    /// The servers whose keys are in degraded mode.
    #[must_use]
    pub fn unavailable_owners(&self) -> Vec<Owner> {
        self.backend.owners().into_iter().filter(Owner::is_unavailable).collect()
    }

    /// Checks that a server answers on the connections that charges use. Then reconciles the pending charges of its
    /// keys, and lets it decide on requests again.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub async fn recover_owner(&self, owner: &Owner) -> Result<(), LedgerError> {
        self.backend.probe(owner).await?;
        self.reconcile_where(|of| of == owner).await;
        owner.mark_available();
        self.metrics.set_degraded(self.is_degraded());
        let pending_charges = self.degraded.pending_charges.total_requests();
        tracing::info!(server = owner.address(), pending_charges, "left degraded mode");
        Ok(())
    }

    /// Reads the clocks of Redis. The longer ago the last reply was, the larger must a fall be to be noticed.
    pub async fn refresh_clocks(&self) {
        if let Backend::Stores(stores) = &self.backend
            && self.is_ledger_trusted.load(Ordering::Acquire)
        {
            stores.ledger.refresh_clocks().await;
        }
    }

    /// Publishes the deactivated and paused keys that this node knows to Redis, for when the outbox cannot be read.
    ///
    /// # Errors
    /// If Redis does not answer in time.
    pub async fn publish_refused_keys(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        for record in self.degraded.refused_records() {
            // A newer record is as good.
            let _ = ledger.publish(&record).await?;
        }
        Ok(())
    }

    /// Records the pauses that this node decided on in PostgreSQL. Stops at the first failure.
    pub async fn record_local_pauses(&self) {
        for pause in self.degraded.pending_charges.unrecorded_pauses() {
            if !self.record_local_pause(&pause).await {
                return;
            }
        }
    }

    /// Reconciles all pending charges that are due, where Redis is available. Returns the number of requests that are
    /// still pending.
    pub async fn reconcile_pending(&self) -> u64 {
        self.reconcile_where(|owner| self.may_charge(owner)).await;
        if self.may_charge(&self.backend.owner_of_demo()) {
            self.reconcile_demo().await;
        }
        // In this order: a charge in flight becomes a pending one.
        self.open_keys.admitted_in_flight() as u64 + self.report_pending_charges()
    }

    async fn reconcile_where(&self, is_reachable: impl Fn(&Owner) -> bool) {
        let batches = self.degraded.pending_charges.take_batches(|key| is_reachable(&self.backend.owner_of(key)));
        let concurrent = match &self.backend {
            Backend::Stores(_) => CONCURRENT_BATCHES,
            Backend::Home(_) => CONCURRENT_BATCHES_TO_HOME,
        };
        for batches in batches.chunks(concurrent) {
            join_all(batches.iter().map(|batch| self.reconcile_batch(batch))).await;
        }
    }

    /// Updates the metrics of degraded mode. Returns the number of pending charges.
    pub fn report_pending_charges(&self) -> u64 {
        // A server that was replaced leaves without having recovered.
        self.metrics.set_degraded(self.is_degraded());
        self.metrics.set_redis_clock_steps(self.backend.clock_steps());
        let pending = self.degraded.pending_charges.total_requests();
        self.metrics.set_pending_charges(pending);
        pending
    }

    /// Reports all pending charges as unverifiable, before the node exits without Redis.
    pub fn report_lost_charges(&self) {
        for (key, in_flight) in self.open_keys.requests_by_key() {
            self.report_unverifiable(key, in_flight);
        }
        for (key, unverifiable) in self.degraded.pending_charges.requests_by_key() {
            self.report_unverifiable(key, unverifiable);
        }
    }

    async fn reconcile_batch(&self, batch: &ReconcileBatch) {
        let outcome = match &self.backend {
            Backend::Stores(stores) => self.reconcile_at_stores(stores, None, batch).await,
            Backend::Home(home) => self.reconcile_at_home(home, batch).await,
        };
        match outcome {
            BatchOutcome::Done { quota, unverifiable } => {
                self.apply_reconciled(batch, DailyUsage { day: quota.day, count: quota.used }, unverifiable);
            }
            BatchOutcome::NoSuchKey => drop(self.degraded.pending_charges.remove_key(batch.key)),
            BatchOutcome::WrongSecret => {
                let lost = self.degraded.pending_charges.remove_key(batch.key);
                self.report_unverifiable(batch.key, lost);
            }
            BatchOutcome::Failed(Some(sent)) => self.degraded.pending_charges.note_attempt(batch, sent),
            BatchOutcome::TooEarly | BatchOutcome::Failed(None) => {}
        }
    }

    /// Counts a batch in Redis: of this node, or of another one.
    pub(in crate::admission) async fn reconcile_at_stores(
        &self,
        stores: &Stores,
        other_node: Option<&str>,
        batch: &ReconcileBatch,
    ) -> BatchOutcome {
        for _ in 0..ATTEMPTS_MAX {
            let reconciled = match other_node {
                Some(node) => stores.ledger.reconcile_of(node, batch).await,
                None => stores.ledger.reconcile(batch).await,
            };
            match reconciled {
                Ok(Reconciled::Done { quota, unverifiable }) => return BatchOutcome::Done { quota, unverifiable },
                Ok(Reconciled::TooEarly) => return BatchOutcome::TooEarly,
                Ok(Reconciled::Unknown(fence)) => match stores.store.keys().find_record(batch.key).await {
                    Ok(Some(mut record)) => {
                        record.merge_usage(self.degraded.local_usage(batch.key));
                        if stores.ledger.fill(&record, &fence).await.is_err() {
                            return BatchOutcome::Failed(None);
                        }
                    }
                    Ok(None) => return BatchOutcome::NoSuchKey,
                    Err(_) => return BatchOutcome::Failed(None),
                },
                Err(failure) => {
                    tracing::debug!(error = %causes(&failure), "batch not reconciled");
                    return BatchOutcome::Failed(failure.sent);
                }
            }
        }
        BatchOutcome::Failed(None)
    }

    fn apply_reconciled(&self, batch: &ReconcileBatch, usage: DailyUsage, unverifiable: u64) {
        // Before the batch is removed: in between, its requests would be in neither count.
        self.degraded.merge_usage(batch.key, usage);
        self.degraded.pending_charges.confirm_batch(batch);
        self.metrics.count_reconciled(batch_requests(batch).saturating_sub(unverifiable));
        self.report_unverifiable(batch.key, unverifiable);
    }

    fn report_unverifiable(&self, key: KeyId, unverifiable: u64) {
        if unverifiable > 0 {
            self.metrics.count_unverifiable(unverifiable);
            tracing::warn!(key = key.as_str(), unverifiable, "unverifiable charges not repeated");
        }
    }

    async fn reconcile_demo(&self) {
        let Some(batch) = self.degraded.demo_quota.take_batch() else { return };
        let is_reconciled = match &self.backend {
            Backend::Stores(stores) => self.reconcile_demo_at_stores(stores, &batch).await,
            Backend::Home(home) => self.reconcile_demo_at_home(home, &batch).await,
        };
        if is_reconciled {
            self.metrics.count_reconciled(batch.days.iter().map(|usage| usage.count).sum());
            self.degraded.demo_quota.confirm_batch();
        }
    }

    /// Whether Redis has counted the batch.
    pub(in crate::admission) async fn reconcile_demo_at_stores(
        &self,
        stores: &Stores,
        batch: &DemoReconcileBatch,
    ) -> bool {
        let is_reconciled = match stores.ledger.reconcile_demo(batch, None).await {
            Ok(false) => match stores.store.usage().find_demo_usage().await {
                Ok(usage) => stores.ledger.reconcile_demo(batch, Some(usage)).await,
                Err(_) => return false,
            },
            is_reconciled => is_reconciled,
        };
        is_reconciled.unwrap_or(false)
    }
}
