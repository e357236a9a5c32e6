//! Degraded mode: the local limiter decides on requests while Redis does not answer. It knows the last record
//! of each key and the times of this node's own requests of the last 60 seconds. It collects both in normal
//! operation too.
//!
//! Requests that it admits are pending charges. They are reconciled when Redis answers again.
//!
//! This file does no I/O. [`admit`] queries PostgreSQL, [`reconcile`] reports pending charges to Redis.

mod admit;
mod breaker;
mod clock;
mod demo;
mod local_limiter;
mod pending;
mod reconcile;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyRecord, Scope};
use ipseity_ledger::{ChargeId, LedgerTime, PendingCharge, Quota, Verdict};
use quick_cache::sync::Cache;

use crate::admission::degraded::breaker::Breaker;
use crate::admission::degraded::clock::LedgerClock;
use crate::admission::degraded::demo::DemoQuota;
use crate::admission::degraded::local_limiter::LocalKey;
use crate::admission::degraded::pending::PendingCharges;
use crate::limits::DegradedLimits;

/// Maximum age of a record from PostgreSQL that is used without another query.
const FRESH_MAX_AGE: Duration = Duration::from_secs(1);
/// Time without queries after PostgreSQL has failed to answer.
const STORE_BACKOFF: Duration = Duration::from_millis(500);

/// The local limiter and the state around it.
pub(super) struct DegradedMode {
    pub(super) limits: DegradedLimits,
    pub(super) breaker: Breaker,
    pub(super) clock: LedgerClock,
    pub(super) pending_charges: PendingCharges,
    pub(super) demo_quota: DemoQuota,
    local_keys: Cache<KeyId, Arc<Mutex<LocalKey>>>,
    /// Incremented when a key may have changed in PostgreSQL.
    invalidation_epoch: AtomicU64,
    /// Whether this node receives key events.
    is_subscribed: AtomicBool,
    /// When PostgreSQL last failed to answer.
    store_failed_at: Mutex<Option<Instant>>,
}

impl DegradedMode {
    pub(super) fn new(limits: DegradedLimits) -> Self {
        Self {
            limits,
            breaker: Breaker::new(limits.failures_max),
            clock: LedgerClock::start(),
            pending_charges: PendingCharges::new(limits.local_keys_max),
            demo_quota: DemoQuota::default(),
            local_keys: Cache::new(limits.local_keys_max),
            invalidation_epoch: AtomicU64::new(0),
            is_subscribed: AtomicBool::new(false),
            store_failed_at: Mutex::default(),
        }
    }

    /// Updates the clock and the local record of a key from a verdict of the ledger.
    pub(super) fn observe(&self, key: &ApiKey, verdict: &Verdict, received_at: Instant) {
        match verdict {
            Verdict::Admitted { scope, quota, burst_epoch, .. } => {
                self.clock.sync(quota.now, received_at);
                self.observe_admitted(key, *scope, quota, *burst_epoch, received_at);
            }
            Verdict::QuotaExhausted { quota } => {
                self.clock.sync(quota.now, received_at);
                self.with_local_key(key.id, |local_key| local_key.observe_exhausted(quota));
            }
            Verdict::Paused(_) | Verdict::PausedNow(_) => {
                self.with_local_key(key.id, |local_key| local_key.record.flags.paused = true);
            }
            Verdict::Inactive(_) => {
                self.with_local_key(key.id, |local_key| local_key.record.flags.deactivated = true);
            }
            Verdict::Unknown(_) | Verdict::WrongSecret(_) => {}
        }
    }

    fn observe_admitted(&self, key: &ApiKey, scope: Scope, quota: &Quota, burst_epoch: u64, received_at: Instant) {
        let new_key = || LocalKey::from_verdict(key, scope, quota, burst_epoch, received_at);
        let insert = || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(new_key())));
        let Ok(local_key) = self.local_keys.get_or_insert_with(&key.id, insert);
        lock_local_key(&local_key).observe_admitted(key, scope, quota, burst_epoch, received_at);
    }

    /// The last count of a key that Redis returned to this node.
    pub(super) fn local_usage(&self, id: KeyId) -> Option<DailyUsage> {
        self.local_keys.get(&id).and_then(|local_key| lock_local_key(&local_key).record.usage)
    }

    /// Merges the count that Redis returned for a reconciled batch.
    pub(super) fn merge_usage(&self, id: KeyId, usage: DailyUsage) {
        self.with_local_key(id, |local_key| local_key.record.merge_usage(Some(usage)));
    }

    fn with_local_key(&self, id: KeyId, update: impl FnOnce(&mut LocalKey)) {
        if let Some(local_key) = self.local_keys.get(&id) {
            update(&mut lock_local_key(&local_key));
        }
    }

    /// A number that changes with every key event. Read it before a query of PostgreSQL.
    pub(super) fn invalidation_epoch(&self) -> u64 {
        self.invalidation_epoch.load(Ordering::Acquire)
    }

    /// Marks all records from PostgreSQL as stale.
    pub(super) fn invalidate(&self) {
        self.invalidation_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets whether this node receives key events. Marks all records as stale, because events may have been missed.
    pub(super) fn set_subscribed(&self, is_subscribed: bool) {
        self.invalidate();
        self.is_subscribed.store(is_subscribed, Ordering::Release);
    }

    /// Whether the local record of a key is as good as a query of PostgreSQL.
    pub(super) fn is_fresh(&self, id: KeyId) -> bool {
        let invalidation_epoch = self.invalidation_epoch();
        self.is_subscribed.load(Ordering::Acquire)
            && self
                .local_keys
                .get(&id)
                .is_some_and(|local_key| lock_local_key(&local_key).is_fresh(invalidation_epoch, FRESH_MAX_AGE))
    }

    /// Whether the local record of a key may be used while neither Redis nor PostgreSQL answers.
    pub(super) fn is_usable(&self, id: KeyId) -> bool {
        self.local_keys
            .get(&id)
            .is_some_and(|local_key| lock_local_key(&local_key).updated_at.elapsed() < self.limits.max_age)
    }

    /// Whether to query PostgreSQL: not within [`STORE_BACKOFF`] of a failure, so that requests do not wait for it.
    pub(super) fn may_query_store(&self) -> bool {
        let failed_at = *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        failed_at.is_none_or(|at| at.elapsed() >= STORE_BACKOFF)
    }

    pub(super) fn record_store_failure(&self) {
        *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Updates the local record of a key from PostgreSQL. Keeps a local pause that is not recorded yet.
    pub(super) fn update_record(&self, record: &KeyRecord, invalidation_epoch: u64) {
        let insert = || {
            Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(LocalKey::from_record(
                record.clone(),
                invalidation_epoch,
            ))))
        };
        let Ok(local_key) = self.local_keys.get_or_insert_with(&record.id, insert);
        let mut local_key = lock_local_key(&local_key);
        local_key.update_record(record, invalidation_epoch);
        if self.pending_charges.paused_burst_epoch(record.id) == Some(local_key.record.burst_epoch) {
            local_key.record.flags.paused = true;
        }
    }

    /// Removes a key that does not exist in PostgreSQL.
    pub(super) fn remove_key(&self, id: KeyId) {
        self.local_keys.remove(&id);
        self.pending_charges.remove_key(id);
    }

    /// Decides on a request. An admitted request becomes a pending charge before this returns.
    /// `unconfirmed_since` is the time of a charge that Redis did not answer.
    ///
    /// Returns `None` without a local record of the key, without capacity for another pending charge, or for a digest
    /// that only Redis or PostgreSQL can check.
    pub(super) fn check_request(
        &self,
        key: &ApiKey,
        charge_id: ChargeId,
        unconfirmed_since: Option<LedgerTime>,
    ) -> Option<Verdict> {
        let local_key = self.local_keys.get(&key.id)?;
        let mut local_key = lock_local_key(&local_key);
        if !self.pending_charges.has_capacity(key.id) {
            return None;
        }
        let pending_on = |day| self.pending_charges.count_on_day(key.id, day);
        let verdict = local_key.check(&key.digest, self.clock.now(), pending_on)?;
        if let Verdict::Admitted { quota, burst_epoch, .. } = &verdict {
            let charge = PendingCharge { at: unconfirmed_since.unwrap_or(quota.now), id: charge_id };
            let timed_out_at = unconfirmed_since.map(|_| Instant::now());
            self.pending_charges.add_admitted(key.id, *burst_epoch, quota.day, charge, timed_out_at);
        } else if let Verdict::PausedNow(pause) = &verdict {
            self.pending_charges.set_pause(pause.clone());
        }
        Some(verdict)
    }

    /// The records from PostgreSQL that are deactivated or paused. Redis may not have these changes.
    pub(super) fn refused_records(&self) -> Vec<KeyRecord> {
        let records = self.local_keys.iter().filter_map(|(_, local_key)| {
            let local_key = lock_local_key(&local_key);
            let is_refused = local_key.record.flags.deactivated || local_key.record.flags.paused;
            (is_refused && local_key.is_from_store()).then(|| local_key.record.clone())
        });
        records.collect()
    }

    /// Whether there is any local key record.
    pub(super) fn has_local_keys(&self) -> bool {
        !self.local_keys.is_empty()
    }
}

#[cfg(test)]
impl DegradedMode {
    pub(super) fn for_test() -> Self {
        let (max_age, store_timeout) = (Duration::from_secs(60), Duration::from_secs(1));
        Self::new(DegradedLimits { local_keys_max: 10, max_age, failures_max: 1, store_timeout })
    }
}

fn lock_local_key(local_key: &Mutex<LocalKey>) -> MutexGuard<'_, LocalKey> {
    local_key.lock().unwrap_or_else(PoisonError::into_inner)
}
