//! Pending charges: requests that the local limiter admitted and that are not yet reconciled with Redis.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipseity_domain::{ApiKey, BURST_LIMIT, BURST_WINDOW_S, KeyDigest, KeyId, KeyPause, UtcDay, is_mutant};
use ipseity_ledger::{PendingCharge, RECONCILE_DELAY, ReconcileBatch, SentCharge, UnconfirmedCharge};

/// Maximum number of unconfirmed charges in one batch, so that Redis is never busy with one for long.
const UNCONFIRMED_PER_BATCH_MAX: usize = BURST_LIMIT;

/// Pending charges by key. Memory is bounded: `keys_max` keys, and per key as many request times as its burst limit.
pub(crate) struct PendingCharges {
    by_key: Mutex<HashMap<KeyId, PendingKey>>,
    /// Number of keys. Nearly always 0, so that requests need not take the lock.
    key_count: AtomicUsize,
    keys_max: usize,
    last_batch: AtomicU64,
}

#[derive(Default)]
struct PendingKey {
    /// Of the last request.
    digest: Option<KeyDigest>,
    burst_epoch: u64,
    /// Requests that were not charged, minus those that were charged and then refused by this node.
    days: BTreeMap<UtcDay, i64>,
    recent: VecDeque<PendingCharge>,
    /// Charges that Redis may have applied. They are reconciled when they can no longer be applied.
    unconfirmed: VecDeque<(Instant, UnconfirmedCharge)>,
    /// A pause that Redis may not have yet.
    pause: Option<KeyPause>,
    /// Whether PostgreSQL has it.
    is_pause_recorded: bool,
    /// The batch that was sent. It is sent again unchanged until Redis confirms it.
    in_flight: Option<ReconcileBatch>,
}

impl PendingCharges {
    pub(super) fn new(keys_max: usize) -> Self {
        let (key_count, last_batch) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { by_key: Mutex::default(), key_count, keys_max, last_batch }
    }

    fn is_empty(&self) -> bool {
        self.key_count.load(Ordering::Acquire) == 0
    }

    /// Whether another request of this key can be added.
    pub(super) fn has_capacity(&self, key: KeyId) -> bool {
        let by_key = self.lock();
        by_key.len() < self.keys_max || by_key.contains_key(&key)
    }

    /// Whether a key has requests that are not reconciled.
    pub(in crate::admission) fn has_key(&self, key: KeyId) -> bool {
        !self.is_empty() && self.lock().contains_key(&key)
    }

    /// Adds an admitted request that was certainly not charged, to its day, and to the burst window of its key's limit.
    pub(in crate::admission) fn add_admitted(
        &self,
        key: &ApiKey,
        burst_epoch: u64,
        (day, burst_limit): (UtcDay, usize),
        charge: PendingCharge,
    ) {
        self.update(key, burst_epoch, |pending_key| {
            *pending_key.days.entry(day).or_default() += 1;
            if pending_key.burst_epoch == burst_epoch {
                pending_key.recent.push_back(charge);
            }
            // Redis ignores what has left the burst window.
            let is_over = |oldest: &PendingCharge| oldest.at.0 + BURST_WINDOW_S * 1000 <= charge.at.0;
            while pending_key.recent.len() > burst_limit || pending_key.recent.front().is_some_and(is_over) {
                pending_key.recent.pop_front();
            }
        });
    }

    /// Adds an admitted request that the daily quota rejected: Redis has it in the log, but not in the count.
    pub(in crate::admission) fn add_logged(&self, key: &ApiKey, burst_epoch: u64, day: UtcDay) {
        self.update(key, burst_epoch, |pending_key| *pending_key.days.entry(day).or_default() += 1);
    }

    /// Adds a request whose charge Redis may have applied.
    pub(in crate::admission) fn add_unconfirmed(&self, key: &ApiKey, burst_epoch: u64, charge: UnconfirmedCharge) {
        self.update(key, burst_epoch, |pending_key| pending_key.unconfirmed.push_back((Instant::now(), charge)));
    }

    /// Takes back the charge of a request that Redis admitted and this node refused.
    pub(super) fn take_back(&self, key: &ApiKey, burst_epoch: u64, day: UtcDay) {
        self.update(key, burst_epoch, |pending_key| *pending_key.days.entry(day).or_default() -= 1);
    }

    pub(super) fn set_pause(&self, key: &ApiKey, pause: KeyPause) {
        self.update(key, pause.burst_epoch, |pending_key| {
            if pending_key.pause.is_none() && pending_key.burst_epoch == pause.burst_epoch {
                (pending_key.pause, pending_key.is_pause_recorded) = (Some(pause.clone()), false);
            }
        });
    }

    /// Number of a day's requests that the count in Redis may not include yet.
    pub(super) fn count_on_day(&self, key: KeyId, day: UtcDay) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.lock().get(&key).map_or(0, |pending_key| pending_key.count_on_day(day))
    }

    /// Whether this node has paused a key, and Redis may not know of it yet.
    pub(in crate::admission) fn is_paused(&self, key: KeyId) -> bool {
        !self.is_empty() && self.lock().get(&key).is_some_and(|pending_key| pending_key.pause.is_some())
    }

    /// A pause of this key that PostgreSQL may not have yet.
    pub(in crate::admission) fn unrecorded_pause(&self, key: KeyId) -> Option<KeyPause> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&key)?.unrecorded_pause()
    }

    /// Pauses that PostgreSQL may not have yet.
    pub(super) fn unrecorded_pauses(&self) -> Vec<KeyPause> {
        self.lock().values().filter_map(PendingKey::unrecorded_pause).collect()
    }

    /// Notes that PostgreSQL has a pause.
    pub(super) fn mark_pause_recorded(&self, pause: &KeyPause) {
        let mut by_key = self.lock();
        if let Some(pending_key) =
            by_key.get_mut(&pause.key).filter(|pending_key| pending_key.pause.as_ref() == Some(pause))
        {
            pending_key.is_pause_recorded = true;
        }
    }

    /// All batches to send now, of keys for which `is_reachable`.
    pub(super) fn take_batches(&self, is_reachable: impl Fn(KeyId) -> bool) -> Vec<ReconcileBatch> {
        let mut by_key = self.lock();
        by_key.retain(|_, pending_key| !pending_key.is_empty());
        self.key_count.store(by_key.len(), Ordering::Release);
        let next_number = || self.last_batch.fetch_add(1, Ordering::Relaxed) + 1;
        let reachable = by_key.iter_mut().filter(|(key, _)| is_reachable(**key));
        reachable.filter_map(|(key, pending_key)| pending_key.next_batch(*key, next_number)).collect()
    }

    /// Notes an attempt to send a batch that had no reply.
    pub(super) fn note_attempt(&self, batch: &ReconcileBatch, attempt: SentCharge) {
        let mut by_key = self.lock();
        if let Some(in_flight) = by_key.get_mut(&batch.key).and_then(|pending_key| pending_key.in_flight.as_mut()) {
            in_flight.first_attempt.get_or_insert(attempt);
        }
    }

    /// Marks a batch as confirmed by Redis.
    pub(super) fn confirm_batch(&self, batch: &ReconcileBatch) {
        if let Some(pending_key) = self.lock().get_mut(&batch.key) {
            pending_key.in_flight = None;
            if pending_key.pause == batch.pause {
                pending_key.pause = None;
            }
        }
    }

    /// Drops the charges of a key. Returns the number of its requests.
    pub(super) fn remove_key(&self, key: KeyId) -> u64 {
        self.lock().remove(&key).map_or(0, |pending_key| pending_key.total_requests())
    }

    /// Number of pending requests.
    pub(crate) fn total_requests(&self) -> u64 {
        self.lock().values().map(PendingKey::total_requests).sum()
    }

    /// Pending requests of each key.
    pub(super) fn requests_by_key(&self) -> Vec<(KeyId, u64)> {
        self.lock().iter().map(|(key, pending_key)| (*key, pending_key.total_requests())).collect()
    }

    /// A key with pending charges, with the digest of its last request.
    pub(in crate::admission) fn api_key(&self, id: KeyId) -> Option<ApiKey> {
        Some(ApiKey { id, digest: self.lock().get(&id)?.digest? })
    }

    fn update(&self, key: &ApiKey, burst_epoch: u64, update: impl FnOnce(&mut PendingKey)) {
        let mut by_key = self.lock();
        let pending_key = by_key.entry(key.id).or_default();
        pending_key.digest = Some(key.digest);
        pending_key.enter_burst_epoch(burst_epoch);
        update(pending_key);
        self.key_count.store(by_key.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, PendingKey>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingKey {
    /// Starts a new burst epoch. Requests of the old one still count toward the daily quota, not toward the
    /// burst limit. The verdict on a request of an old one may be late.
    fn enter_burst_epoch(&mut self, burst_epoch: u64) {
        if self.burst_epoch < burst_epoch {
            self.burst_epoch = burst_epoch;
            self.recent.clear();
            self.pause = None;
        }
    }

    fn unrecorded_pause(&self) -> Option<KeyPause> {
        self.pause.clone().filter(|_| !self.is_pause_recorded)
    }

    fn next_batch(&mut self, key: KeyId, next_number: impl Fn() -> u64) -> Option<ReconcileBatch> {
        if self.in_flight.is_none() {
            // Oldest first.
            let due = self.unconfirmed.iter().take_while(|(timed_out_at, _)| timed_out_at.elapsed() >= RECONCILE_DELAY);
            let due = due.count().min(UNCONFIRMED_PER_BATCH_MAX);
            // The requests of a batch displace older ones in the log, where unconfirmed charges are looked up.
            let is_too_early = due == 0 && !self.unconfirmed.is_empty();
            if is_too_early || (self.days.is_empty() && due == 0 && self.pause.is_none()) {
                return None;
            }
            self.in_flight = Some(ReconcileBatch {
                key,
                number: next_number(),
                burst_epoch: self.burst_epoch,
                days: std::mem::take(&mut self.days).into_iter().collect(),
                recent: std::mem::take(&mut self.recent).into(),
                unconfirmed: self.unconfirmed.drain(..due).map(|(_, charge)| charge).collect(),
                pause: self.pause.clone(),
                first_attempt: None,
            });
        }
        let mut batch = self.in_flight.clone()?;
        if is_mutant("batch-number-not-kept") {
            batch.number = next_number();
        }
        Some(batch)
    }

    fn count_on_day(&self, day: UtcDay) -> u64 {
        let unconfirmed = self.unconfirmed.iter().map(|(_, charge)| charge);
        let unconfirmed = unconfirmed.chain(self.in_flight.iter().flat_map(|batch| &batch.unconfirmed));
        let unconfirmed = unconfirmed.filter(|charge| charge.is_admitted && charge.sent.at.day() == day).count();
        let in_flight = self.in_flight.iter().flat_map(|batch| &batch.days);
        let days = self.days.iter().map(|(day, count)| (*day, *count)).chain(in_flight.copied());
        let not_charged: i64 = days.filter(|(of_day, _)| *of_day == day).map(|(_, count)| count).sum();
        unconfirmed as u64 + u64::try_from(not_charged).unwrap_or(0)
    }

    fn total_requests(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(batch_requests).sum::<u64>();
        self.days.values().map(|count| count.unsigned_abs()).sum::<u64>() + self.unconfirmed.len() as u64 + in_flight
    }

    fn is_empty(&self) -> bool {
        self.total_requests() == 0 && self.pause.is_none() && self.in_flight.is_none()
    }
}

/// Number of requests that a batch reconciles.
pub(super) fn batch_requests(batch: &ReconcileBatch) -> u64 {
    batch.days.iter().map(|(_, count)| count.unsigned_abs()).sum::<u64>() + batch.unconfirmed.len() as u64
}
