//! What a node goes on from while the counter store does not answer: what it last saw of each key, and its own requests of the last
//! minute. It keeps both while all is well too. What it admits meanwhile is noted, and settled when the store is back.
//!
//! Deliberately absent: I/O. `api::recall` asks the durable store, `api::settle` brings the notes to the counter store.

pub(crate) mod admit;
mod breaker;
mod clock;
mod demo;
mod local_limiter;
mod pending;
pub(crate) mod reconcile;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyRecord, Scope};
use ipseity_ledger::{ChargeId, LedgerTime, PendingCharge, Quota, Verdict};
use quick_cache::sync::Cache;

pub(crate) use breaker::Breaker;
pub(crate) use clock::LedgerClock;
pub(crate) use demo::DemoQuota;
use local_limiter::LocalKey;
pub(crate) use pending::PendingCharges;

/// Bounds of going on without the counter store.
#[derive(Clone, Copy, Debug)]
pub struct DegradedLimits {
    /// Keys remembered, and keys whose requests wait to be settled.
    pub local_keys_max: usize,
    /// How long what a node knows is good for while neither store can be asked.
    pub max_age: Duration,
    /// Verdicts missed in a row after which the counter store is left alone.
    pub failures_max: u32,
    /// Time for a question to the durable store, for which the caller has waited already.
    pub store_timeout: Duration,
}

/// How old what the durable store said may be while it can be asked again.
const FRESH_MAX_AGE: Duration = Duration::from_secs(1);
/// How long a durable store that did not answer is left alone.
const STORE_BACKOFF: Duration = Duration::from_millis(500);

pub(crate) struct DegradedMode {
    pub(crate) limits: DegradedLimits,
    pub(crate) breaker: Breaker,
    pub(crate) clock: LedgerClock,
    pub(crate) pending_charges: PendingCharges,
    pub(crate) demo_quota: DemoQuota,
    local_keys: Cache<KeyId, Arc<Mutex<LocalKey>>>,
    /// Raised when a key may have changed in the durable store.
    invalidation_epoch: AtomicU64,
    /// Whether such news reaches this node now.
    is_subscribed: AtomicBool,
    /// When the durable store last failed to answer.
    store_failed_at: Mutex<Option<Instant>>,
}

impl DegradedMode {
    pub(crate) fn new(limits: DegradedLimits) -> Self {
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

    /// Notes what the counter store has said of a key, and when that was heard.
    pub(crate) fn observe(&self, key: &ApiKey, verdict: &Verdict, received_at: Instant) {
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

    /// The count that the counter store last told of a key.
    pub(crate) fn local_usage(&self, id: KeyId) -> Option<DailyUsage> {
        self.local_keys.get(&id).and_then(|local_key| lock_local_key(&local_key).record.usage)
    }

    /// Notes a count that the counter store told when a batch was settled.
    pub(crate) fn merge_usage(&self, id: KeyId, usage: DailyUsage) {
        self.with_local_key(id, |local_key| local_key.record.merge_usage(Some(usage)));
    }

    fn with_local_key(&self, id: KeyId, update: impl FnOnce(&mut LocalKey)) {
        if let Some(local_key) = self.local_keys.get(&id) {
            update(&mut lock_local_key(&local_key));
        }
    }

    /// A number that changes with every piece of news; to be read before the durable store is asked.
    pub(crate) fn invalidation_epoch(&self) -> u64 {
        self.invalidation_epoch.load(Ordering::Acquire)
    }

    /// Some key has changed: what the durable store said before is to be asked again.
    pub(crate) fn invalidate(&self) {
        self.invalidation_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether news reaches this node from now on; what it missed before is in doubt.
    pub(crate) fn set_subscribed(&self, is_subscribed: bool) {
        self.invalidate();
        self.is_subscribed.store(is_subscribed, Ordering::Release);
    }

    /// Whether what is known of a key is as good as asking again.
    pub(crate) fn is_fresh(&self, id: KeyId) -> bool {
        let invalidation_epoch = self.invalidation_epoch();
        self.is_subscribed.load(Ordering::Acquire)
            && self
                .local_keys
                .get(&id)
                .is_some_and(|local_key| lock_local_key(&local_key).is_fresh(invalidation_epoch, FRESH_MAX_AGE))
    }

    /// Whether what is known of a key is good enough while nobody can be asked.
    pub(crate) fn is_usable(&self, id: KeyId) -> bool {
        self.local_keys
            .get(&id)
            .is_some_and(|local_key| lock_local_key(&local_key).updated_at.elapsed() < self.limits.max_age)
    }

    /// Whether the durable store is worth asking: one that failed is left alone for a moment, in which nobody waits for it.
    pub(crate) fn may_query_store(&self) -> bool {
        let failed_at = *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        failed_at.is_none_or(|at| at.elapsed() >= STORE_BACKOFF)
    }

    pub(crate) fn record_store_failure(&self) {
        *self.store_failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Learns what the durable store says of a key.
    pub(crate) fn update_record(&self, record: &KeyRecord, invalidation_epoch: u64) {
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

    /// The durable store does not know the key.
    pub(crate) fn remove_key(&self, id: KeyId) {
        self.local_keys.remove(&id);
        self.pending_charges.remove_key(id);
    }

    /// Judges a request by what is known; what is admitted is noted at once, with when its charge was sent if that was not answered. `None` when
    /// nothing here can tell.
    pub(crate) fn check_request(
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

    /// Keys that the durable store has said are refused, for a counter store that may not have heard of it.
    pub(crate) fn refused_records(&self) -> Vec<KeyRecord> {
        let records = self.local_keys.iter().filter_map(|(_, local_key)| {
            let local_key = lock_local_key(&local_key);
            let is_refused = local_key.record.flags.deactivated || local_key.record.flags.paused;
            (is_refused && local_key.is_from_store()).then(|| local_key.record.clone())
        });
        records.collect()
    }

    /// Whether any key is known.
    pub(crate) fn has_local_keys(&self) -> bool {
        !self.local_keys.is_empty()
    }
}

fn lock_local_key(local_key: &Mutex<LocalKey>) -> MutexGuard<'_, LocalKey> {
    local_key.lock().unwrap_or_else(PoisonError::into_inner)
}
