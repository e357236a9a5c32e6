//! Degraded mode: the local limiter decides on requests while Redis does not answer. It knows the last record
//! of each key and the times of this node's own requests of the last 60 seconds. It collects both in normal
//! operation too, and overrules a verdict of Redis that exceeds a limit by what this node knows.
//!
//! Requests that it admits are pending charges. They are reconciled when Redis answers again.
//!
//! This file does no I/O. [`admit`] queries PostgreSQL, [`reconcile`] reports pending charges to Redis.

mod admit;
mod demo;
mod local_limiter;
mod pending;
pub(super) mod reconcile;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyRecord, Scope, is_mutant};
use ipseity_ledger::{AppliedRestrictions, LedgerTime, PendingCharge, Quota, SentCharge, UnconfirmedCharge, Verdict};
use quick_cache::sync::Cache;

use crate::admission::degraded::demo::DemoQuota;
use crate::admission::degraded::local_limiter::{LocalKey, LocalVerdict};
use crate::admission::degraded::pending::PendingCharges;
use crate::admission::key_request::KeyRequest;
use crate::admission::open_keys::AdmittedEarly;
use crate::admission::restricted::KnownRestrictions;
use crate::limits::DegradedLimits;
use crate::response::rate_limit_headers::BurstLeft;

/// Maximum age of a record from PostgreSQL that is used without another query.
const FRESH_MAX_AGE: Duration = Duration::from_secs(1);
/// Time without queries after PostgreSQL has failed to answer.
const STORE_BACKOFF: Duration = Duration::from_millis(500);

/// The local limiter and the state around it.
pub(super) struct DegradedMode {
    pub(super) limits: DegradedLimits,
    pub(super) pending_charges: PendingCharges,
    pub(super) demo_quota: DemoQuota,
    local_keys: Cache<KeyId, Arc<Mutex<LocalKey>>>,
    /// Incremented when this node starts or stops to receive key events, because it may have missed some.
    subscription_epoch: AtomicU64,
    /// Number of key events.
    changes_reported: AtomicU64,
    /// Whether this node receives key events.
    is_subscribed: AtomicBool,
    /// When PostgreSQL last failed to answer.
    store_failed_at: Mutex<Option<Instant>>,
}

/// What was known of changes when a lookup in PostgreSQL started.
#[derive(Clone, Copy)]
pub(super) struct LookupStart {
    subscription_epoch: u64,
    /// Changes of all keys.
    changes_reported: u64,
    /// Changes of this key, if it has a local record.
    key_changes: Option<u64>,
}

impl DegradedMode {
    pub(super) fn new(limits: DegradedLimits) -> Self {
        Self {
            limits,
            pending_charges: PendingCharges::new(limits.local_keys_max),
            demo_quota: DemoQuota::default(),
            local_keys: Cache::new(limits.local_keys_max),
            subscription_epoch: AtomicU64::new(0),
            changes_reported: AtomicU64::new(0),
            is_subscribed: AtomicBool::new(false),
            store_failed_at: Mutex::default(),
        }
    }

    /// Updates the local record of a key from a verdict of the ledger. Returns what is left of the burst limit after an
    /// admitted request.
    ///
    /// # Errors
    /// Fails with the verdict that replaces it, if this node knows of more requests than Redis: the request is refused,
    /// and its charge is taken back.
    pub(super) fn observe(
        &self,
        request: &KeyRequest,
        verdict: &Verdict,
        arrived_at: Instant,
        received_at: Instant,
        burst_window_ms: u64,
    ) -> Result<Option<BurstLeft>, Verdict> {
        let key = &request.key;
        // By the clock of the server that gave the verdict, and not later than the truth.
        let arrival_at = |quota: &Quota| {
            let age_ms = (received_at - arrived_at).as_millis() + 1;
            LedgerTime(quota.now.0.saturating_sub(u64::try_from(age_ms).unwrap_or(u64::MAX)))
        };
        match verdict {
            Verdict::Admitted { scope, quota, burst_epoch, .. } => {
                let arrival = arrival_at(quota);
                let admitted = (*scope, quota, *burst_epoch);
                let observed = self.observe_admitted(request, arrival, admitted, received_at, burst_window_ms);
                if observed.is_err() && !is_mutant("refused-charge-not-taken-back") {
                    self.pending_charges.take_back(key, *burst_epoch, quota.day);
                }
                return observed.map(Some);
            }
            Verdict::QuotaExhausted { quota } => {
                self.with_local_key(key.id, |local_key| {
                    local_key.burst_window_ms = burst_window_ms;
                    local_key.observe_exhausted(arrival_at(quota), quota);
                });
            }
            Verdict::Paused { .. } | Verdict::PausedNow { .. } => {
                self.with_local_key(key.id, LocalKey::observe_paused);
            }
            Verdict::Inactive(_) => {
                self.with_local_key(key.id, |local_key| local_key.record.flags.deactivated = true);
            }
            Verdict::WrongSecret(now) => {
                self.with_local_key(key.id, |local_key| local_key.observe_wrong_secret(&key.digest, *now));
            }
            // The record that was just read has the restrictions.
            Verdict::Expired(_) | Verdict::Outdated { .. } | Verdict::Restricted(_) | Verdict::Unknown(_) => {}
        }
        Ok(None)
    }

    /// Updates the local record of a key from the verdict on a request that this node admitted before.
    pub(super) fn observe_charged(&self, key: &ApiKey, verdict: &Verdict) {
        self.with_local_key(key.id, |local_key| match verdict {
            Verdict::Admitted { quota, .. } => {
                local_key.observe_usage(quota);
                local_key.updated_at = Instant::now();
            }
            Verdict::QuotaExhausted { quota } => local_key.observe_usage(quota),
            Verdict::Paused { .. } | Verdict::PausedNow { .. } => local_key.observe_paused(),
            Verdict::Inactive(_) => local_key.record.flags.deactivated = true,
            Verdict::WrongSecret(now) => local_key.observe_wrong_secret(&key.digest, *now),
            Verdict::Expired(_) | Verdict::Outdated { .. } | Verdict::Restricted(_) | Verdict::Unknown(_) => {}
        });
    }

    /// Admits a request of an open key, whose charge is in flight. `None` if this node knows of too many requests: then home
    /// decides.
    pub(super) fn admit_before_charge(
        &self,
        id: KeyId,
        arrival: LedgerTime,
        now: LedgerTime,
        early: &AdmittedEarly,
        burst_window_ms: u64,
    ) -> Option<(Verdict, BurstLeft)> {
        let local_key = self.local_keys.get(&id)?;
        let mut local_key = lock_local_key(&local_key);
        local_key.burst_window_ms = burst_window_ms;
        let quota = local_key.admit_before_charge(arrival, now, early)?;
        let (scope, burst_epoch) = (early.opened.scope, early.opened.burst_epoch);
        Some((Verdict::Admitted { scope, quota, burst_epoch, is_open: true }, local_key.burst_left()))
    }

    fn observe_admitted(
        &self,
        request: &KeyRequest,
        arrival: LedgerTime,
        (scope, quota, burst_epoch): (Scope, &Quota, u64),
        received_at: Instant,
        burst_window_ms: u64,
    ) -> Result<BurstLeft, Verdict> {
        let key = &request.key;
        let new_key = || LocalKey::from_verdict(key, scope, quota, burst_epoch, received_at);
        let insert = || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(new_key())));
        let Ok(local_key) = self.local_keys.get_or_insert_with(&key.id, insert);
        let mut local_key = lock_local_key(&local_key);
        local_key.burst_window_ms = burst_window_ms;
        local_key.observe_admitted(key, arrival, scope, quota, burst_epoch, received_at);
        local_key.observe_restrictions(request.restricted.restrictions.as_ref());
        if is_mutant("looser-verdict-wins") {
            return Ok(local_key.burst_left());
        }
        if let Some(pause) = local_key.pause_if_exceeded(quota.now) {
            self.pending_charges.set_pause(key, pause);
            return Err(Verdict::PausedNow { now: quota.now, burst_epoch, burst_limit: quota.burst_limit });
        }
        let used = quota.used + self.pending_charges.count_on_day(key.id, quota.day);
        if used > quota.limit {
            return Err(Verdict::QuotaExhausted { quota: Quota { used: quota.limit, ..*quota } });
        }
        Ok(local_key.burst_left())
    }

    /// Whether this node has paused a key, and Redis may not know of it yet.
    pub(super) fn is_paused_here(&self, id: KeyId) -> bool {
        self.pending_charges.is_paused(id)
    }

    /// The restrictions of a key that this node knows, if the secret is one that it knows. After a new subscription it may be
    /// another PostgreSQL, which has lost them: then they are read again.
    pub(super) fn restrictions_of(&self, key: &ApiKey) -> Option<KnownRestrictions> {
        let since = self.is_subscribed.load(Ordering::Acquire).then(|| self.subscription_epoch.load(Ordering::Acquire));
        self.with_local_key(key.id, |local_key| local_key.restrictions_for(&key.digest, since))?
    }

    /// The last count of a key that Redis returned to this node.
    pub(super) fn local_usage(&self, id: KeyId) -> Option<DailyUsage> {
        self.local_keys.get(&id).and_then(|local_key| lock_local_key(&local_key).record.usage)
    }

    /// Merges the count that Redis returned for a reconciled batch.
    pub(super) fn merge_usage(&self, id: KeyId, usage: DailyUsage) {
        self.with_local_key(id, |local_key| local_key.record.merge_usage(Some(usage)));
    }

    fn with_local_key<T>(&self, id: KeyId, update: impl FnOnce(&mut LocalKey) -> T) -> Option<T> {
        self.local_keys.get(&id).map(|local_key| update(&mut lock_local_key(&local_key)))
    }

    /// Call this before a lookup in PostgreSQL, so that its result does not hide a change during the lookup.
    pub(super) fn begin_lookup(&self, id: KeyId) -> LookupStart {
        LookupStart {
            subscription_epoch: self.subscription_epoch.load(Ordering::Acquire),
            changes_reported: self.changes_reported.load(Ordering::Acquire),
            key_changes: self.with_local_key(id, |local_key| local_key.changes_reported()),
        }
    }

    /// Notes that a key has changed in PostgreSQL. Returns whether this node has a record of it.
    pub(super) fn report_change(&self, id: KeyId) -> bool {
        self.changes_reported.fetch_add(1, Ordering::AcqRel);
        self.with_local_key(id, LocalKey::report_change).is_some()
    }

    /// Sets whether this node receives key events, or a remote node follows the database of home. Marks all records as stale,
    /// because changes may have been missed or lost.
    pub(super) fn set_subscribed(&self, is_subscribed: bool) {
        self.subscription_epoch.fetch_add(1, Ordering::AcqRel);
        self.is_subscribed.store(is_subscribed, Ordering::Release);
    }

    /// Whether the local record of a key is as good as a query of PostgreSQL.
    pub(super) fn is_fresh(&self, id: KeyId) -> bool {
        let subscription_epoch = self.subscription_epoch.load(Ordering::Acquire);
        self.is_subscribed.load(Ordering::Acquire)
            && self
                .with_local_key(id, |local_key| local_key.is_fresh(subscription_epoch, FRESH_MAX_AGE))
                .unwrap_or_default()
    }

    /// Whether the local record of a key may be used while neither Redis nor PostgreSQL answers. Not if the key is
    /// known to have changed.
    pub(super) fn is_usable(&self, id: KeyId) -> bool {
        self.with_local_key(id, |local_key| self.is_usable_record(local_key)).unwrap_or_default()
    }

    fn is_usable_record(&self, local_key: &LocalKey) -> bool {
        local_key.updated_at.elapsed() < self.limits.max_age
            && (!local_key.is_in_doubt() || is_mutant("uses-key-in-doubt"))
    }

    /// Whether a key is known to have changed since its local record was read.
    pub(super) fn is_in_doubt(&self, id: KeyId) -> bool {
        self.with_local_key(id, |local_key| local_key.is_in_doubt()).unwrap_or_default()
    }

    /// Whether there is a local record of a key.
    pub(super) fn knows(&self, id: KeyId) -> bool {
        self.local_keys.contains_key(&id)
    }

    /// Whether to query PostgreSQL: not within [`STORE_BACKOFF`] of a failure, so that requests do not wait for it.
    pub(super) fn may_query_store(&self) -> bool {
        let failed_at = *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        failed_at.is_none_or(|at| at.elapsed() >= STORE_BACKOFF)
    }

    pub(super) fn record_store_failure(&self) {
        *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Updates the local record of a key from PostgreSQL.
    pub(super) fn update_record(&self, record: &KeyRecord, start: LookupStart) {
        let insert = || {
            let mut local_key = LocalKey::from_record(record.clone(), start.subscription_epoch);
            if self.changes_reported.load(Ordering::Acquire) != start.changes_reported {
                // One of these changes may be of this key. The next request looks it up again.
                local_key.report_change();
            }
            Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(local_key)))
        };
        let Ok(local_key) = self.local_keys.get_or_insert_with(&record.id, insert);
        // A verdict may have inserted a record during the lookup. Changes that were reported for it stay in doubt.
        let key_changes = start.key_changes.unwrap_or(0);
        lock_local_key(&local_key).update_record(record, start.subscription_epoch, key_changes);
    }

    /// Updates the local record of a key from home. It lacks the digest that this node did not send with the request.
    pub(super) fn update_partial_record(&self, mut record: KeyRecord, start: LookupStart) {
        self.with_local_key(record.id, |local_key| local_key.add_known_digest(&mut record));
        self.update_record(&record, start);
        self.with_local_key(record.id, LocalKey::mark_as_partial);
    }

    /// Removes a key that does not exist in PostgreSQL.
    pub(super) fn remove_key(&self, id: KeyId) {
        self.local_keys.remove(&id);
        self.pending_charges.remove_key(id);
    }

    /// Decides on a request at `now`, the time of Redis. An admitted request becomes the pending charge `charge` before
    /// this returns. `sent` is a charge that Redis did not answer.
    ///
    /// Returns `None` without a local record of the key, without capacity for another pending charge, or for a digest
    /// that only Redis or PostgreSQL can check.
    pub(super) fn check_request(
        &self,
        key: &ApiKey,
        charge: PendingCharge,
        now: LedgerTime,
        sent: Option<SentCharge>,
        burst_window_ms: u64,
        applied: AppliedRestrictions,
    ) -> Option<(Verdict, BurstLeft)> {
        let local_key = self.local_keys.get(&key.id)?;
        let mut local_key = lock_local_key(&local_key);
        local_key.burst_window_ms = burst_window_ms;
        if !self.pending_charges.has_capacity(key.id) {
            return None;
        }
        let pending_on = |day| {
            if is_mutant("no-pending-in-local-count") { 0 } else { self.pending_charges.count_on_day(key.id, day) }
        };
        let local_verdict = local_key.check(&key.digest, charge.at, now, pending_on, applied);
        let is_admitted = matches!(local_verdict, Some(LocalVerdict::Admitted { .. }));
        if let Some(sent) = sent
            && !is_mutant("unconfirmed-charge-dropped")
        {
            let unconfirmed = UnconfirmedCharge { sent, id: charge.id, is_admitted };
            self.pending_charges.add_unconfirmed(key, local_key.record.burst_epoch, unconfirmed);
        }
        let verdict = match local_verdict? {
            LocalVerdict::Admitted { scope, quota, burst_epoch } => {
                if sent.is_none() && !is_mutant("pending-charge-dropped") {
                    self.pending_charges.add_admitted(key, burst_epoch, (quota.day, quota.burst_limit), charge);
                }
                Verdict::Admitted { scope, quota, burst_epoch, is_open: false }
            }
            LocalVerdict::Paused(pause) => {
                let (now, burst_epoch) = (LedgerTime(pause.at_ms), pause.burst_epoch);
                self.pending_charges.set_pause(key, pause);
                Verdict::PausedNow { now, burst_epoch, burst_limit: local_key.record.burst_limit }
            }
            LocalVerdict::Refused(verdict) => verdict,
        };
        Some((verdict, local_key.burst_left()))
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

    /// Whether there is any local key record that may be used without Redis and PostgreSQL.
    pub(super) fn has_usable_keys(&self) -> bool {
        self.local_keys.iter().any(|(_, local_key)| self.is_usable_record(&lock_local_key(&local_key)))
    }
}

#[cfg(test)]
impl DegradedMode {
    pub(super) fn for_test() -> Self {
        let (max_age, store_timeout) = (Duration::from_secs(60), Duration::from_secs(1));
        Self::new(DegradedLimits { local_keys_max: 10, max_age, store_timeout })
    }
}

fn lock_local_key(local_key: &Mutex<LocalKey>) -> MutexGuard<'_, LocalKey> {
    local_key.lock().unwrap_or_else(PoisonError::into_inner)
}
