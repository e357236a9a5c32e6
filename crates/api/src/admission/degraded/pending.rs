//! Pending charges: requests that the local limiter admitted and that are not yet reconciled with Redis.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipseity_domain::{BURST_LIMIT, DailyUsage, KeyId, KeyPause, UtcDay};
use ipseity_ledger::{PendingCharge, RECONCILE_DELAY, ReconcileBatch};

/// Pending charges by key. Memory is bounded: `keys_max` keys, and per key at most `BURST_LIMIT` request times.
pub(crate) struct PendingCharges {
    by_key: Mutex<HashMap<KeyId, PendingKey>>,
    keys_max: usize,
}

#[derive(Default)]
struct PendingKey {
    burst_epoch: u64,
    days: BTreeMap<UtcDay, u64>,
    recent: VecDeque<PendingCharge>,
    /// Charges that Redis may have applied. They are reconciled only after a delayed call can no longer arrive.
    unconfirmed: Vec<(Instant, PendingCharge)>,
    pause: Option<KeyPause>,
    /// The batch that was sent. It is sent again unchanged until Redis confirms it.
    in_flight: Option<ReconcileBatch>,
}

impl PendingCharges {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { by_key: Mutex::default(), keys_max }
    }

    /// Whether another request of this key can be added.
    pub(super) fn has_capacity(&self, key: KeyId) -> bool {
        let by_key = self.lock();
        by_key.len() < self.keys_max || by_key.contains_key(&key)
    }

    /// Adds an admitted request. `timed_out_at` is set if Redis may have applied its charge.
    pub(super) fn add_admitted(
        &self,
        key: KeyId,
        burst_epoch: u64,
        day: UtcDay,
        charge: PendingCharge,
        timed_out_at: Option<Instant>,
    ) {
        let mut by_key = self.lock();
        let pending_key = by_key.entry(key).or_default();
        pending_key.enter_burst_epoch(burst_epoch);
        match timed_out_at {
            Some(timed_out_at) => pending_key.unconfirmed.push((timed_out_at, charge)),
            None => {
                *pending_key.days.entry(day).or_default() += 1;
                pending_key.recent.push_back(charge);
                if pending_key.recent.len() > BURST_LIMIT {
                    pending_key.recent.pop_front();
                }
            }
        }
    }

    pub(super) fn set_pause(&self, pause: KeyPause) {
        let mut by_key = self.lock();
        let pending_key = by_key.entry(pause.key).or_default();
        pending_key.enter_burst_epoch(pause.burst_epoch);
        pending_key.pause = Some(pause);
    }

    /// Number of a day's requests that the count in Redis does not include yet.
    pub(super) fn count_on_day(&self, key: KeyId, day: UtcDay) -> u64 {
        self.lock().get(&key).map_or(0, |pending_key| pending_key.count_on_day(day))
    }

    /// The burst epoch of a pause that is not recorded yet.
    pub(super) fn paused_burst_epoch(&self, key: KeyId) -> Option<u64> {
        let by_key = self.lock();
        let pending_key = by_key.get(&key)?;
        pending_key.pause.as_ref().map(|pause| pause.burst_epoch)
    }

    /// Pauses that PostgreSQL may not have yet.
    pub(super) fn unrecorded_pauses(&self) -> Vec<KeyPause> {
        self.lock().values().filter_map(|pending_key| pending_key.pause.clone()).collect()
    }

    /// Removes a pause that PostgreSQL has. The outbox worker publishes it to Redis.
    pub(super) fn remove_recorded_pause(&self, pause: &KeyPause) {
        let mut by_key = self.lock();
        if let Some(pending_key) =
            by_key.get_mut(&pause.key).filter(|pending_key| pending_key.pause.as_ref() == Some(pause))
        {
            pending_key.pause = None;
        }
    }

    /// All batches to send now.
    pub(super) fn take_batches(&self) -> Vec<ReconcileBatch> {
        let mut by_key = self.lock();
        by_key.retain(|_, pending_key| !pending_key.is_empty());
        by_key.iter_mut().filter_map(|(key, pending_key)| pending_key.next_batch(*key)).collect()
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

    /// Drops the charges of a deleted key.
    pub(super) fn remove_key(&self, key: KeyId) {
        self.lock().remove(&key);
    }

    /// Number of pending requests.
    pub(crate) fn total_requests(&self) -> u64 {
        self.lock().values().map(PendingKey::total_requests).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, PendingKey>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingKey {
    /// Starts a new burst epoch. Requests of the old one still count toward the daily quota, not toward the
    /// burst limit.
    fn enter_burst_epoch(&mut self, burst_epoch: u64) {
        if self.burst_epoch != burst_epoch {
            self.burst_epoch = burst_epoch;
            self.recent.clear();
            self.pause = None;
        }
    }

    fn next_batch(&mut self, key: KeyId) -> Option<ReconcileBatch> {
        if self.in_flight.is_none() {
            let (due, not_due): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unconfirmed)
                .into_iter()
                .partition(|(timed_out_at, _)| timed_out_at.elapsed() >= RECONCILE_DELAY);
            self.unconfirmed = not_due;
            if self.days.is_empty() && due.is_empty() && self.pause.is_none() {
                return None;
            }
            let days = std::mem::take(&mut self.days).into_iter().map(|(day, count)| DailyUsage { day, count });
            self.in_flight = Some(ReconcileBatch {
                key,
                batch_id: fastrand::u64(..),
                burst_epoch: self.burst_epoch,
                days: days.collect(),
                recent: std::mem::take(&mut self.recent).into(),
                unconfirmed: due.into_iter().map(|(_, charge)| charge).collect(),
                pause: self.pause.clone(),
            });
        }
        self.in_flight.clone()
    }

    fn count_on_day(&self, day: UtcDay) -> u64 {
        let unconfirmed = self.unconfirmed.iter().map(|(_, charge)| charge);
        let in_flight_unconfirmed = self.in_flight.iter().flat_map(|batch| &batch.unconfirmed);
        let unconfirmed_on_day =
            unconfirmed.chain(in_flight_unconfirmed).filter(|charge| charge.at.day() == day).count() as u64;
        let in_flight = self.in_flight.iter().flat_map(|batch| &batch.days).filter(|usage| usage.day == day);
        self.days.get(&day).copied().unwrap_or(0) + in_flight.map(|usage| usage.count).sum::<u64>() + unconfirmed_on_day
    }

    fn total_requests(&self) -> u64 {
        let in_flight = self
            .in_flight
            .iter()
            .map(|batch| batch.days.iter().map(|usage| usage.count).sum::<u64>() + batch.unconfirmed.len() as u64);
        self.days.values().sum::<u64>() + self.unconfirmed.len() as u64 + in_flight.sum::<u64>()
    }

    fn is_empty(&self) -> bool {
        self.total_requests() == 0 && self.pause.is_none() && self.in_flight.is_none()
    }
}
