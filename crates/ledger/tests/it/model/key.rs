//! The model of one key, from the specification: all request times and plain counts. It is independent of the scripts.

use std::sync::Arc;

use ipseity_domain::{
    ApiKey, BURST_LIMIT, BURST_WINDOW_S, DailyUsage, KeyDigest, KeyFlags, KeyPause, KeyRecord, PlaintextKey,
    PreviousDigest, Restrictions, Scope, VersionedRestrictions,
};
use ipseity_ledger::{AppliedRestrictions, LedgerTime, Published, Quota, Verdict};

use super::days::{Counts, DayColumns, merge_days, newest_days, raise_count, start_day};
use super::incarnation::ModelIncarnation;
use crate::fixture::DAY_MS;

/// The highest burst limit of a key.
pub const BURST_LIMIT_HIGHEST: usize = 400;
const BURST_WINDOW_MS: u64 = BURST_WINDOW_S * 1000;
/// If the clock goes back by at most this, the time of the newest request is used.
const CLOCK_SKEW_TOLERANCE_MS: u64 = 1_000;

/// The expected state of a key in PostgreSQL and Redis.
pub struct KeyModel {
    pub key: ApiKey,
    pub previous_key: Option<ApiKey>,
    /// The record in PostgreSQL without its usage, unless `deleted`.
    pub stored: KeyRecord,
    pub deleted: bool,
    /// The usage in PostgreSQL.
    pub flushed: Counts,
    /// Counts that no column of the record holds, and that PostgreSQL may lack.
    pub unflushed: Counts,
    /// Changes that are not published yet.
    pub undelivered: Vec<KeyRecord>,
    /// Pauses that PostgreSQL does not have yet.
    pub unrecorded_pauses: Vec<KeyPause>,
    pub record: Option<RecordModel>,
}

/// The expected state of a key in Redis.
pub struct RecordModel {
    pub key_record: KeyRecord,
    /// What the record was written from. `None` if it was invalidated.
    pub incarnation: Option<ModelIncarnation>,
    /// The arrivals of requests since the last resume that may still be in their burst window.
    pub requests: Vec<u64>,
    /// When the newest request was charged, even if the log is deleted.
    pub newest_ms: u64,
    /// Whether the log expired since the newest request was charged.
    pub is_log_deleted: bool,
    pub days: DayColumns,
    /// Charges up to this time can be missing from the log.
    pub log_start_ms: u64,
    pub written_ms: u64,
}

/// The limit of the specification, or another.
pub fn random_burst_limit(rng: &mut fastrand::Rng) -> usize {
    if rng.bool() { BURST_LIMIT } else { rng.usize(20..=BURST_LIMIT_HIGHEST) }
}

impl KeyModel {
    pub fn issue(rng: &mut fastrand::Rng) -> Self {
        let key = PlaintextKey::generate(|| rng.u8(..)).to_api_key();
        let stored = KeyRecord {
            id: key.id,
            digest: key.digest,
            previous: None,
            scope: Scope::ALL[rng.usize(..Scope::ALL.len())],
            daily_limit: rng.u64(5..=400),
            burst_limit: random_burst_limit(rng),
            restrictions: None,
            flags: KeyFlags::default(),
            generation: 1,
            burst_epoch: 1,
            usage: None,
            previous_usage: None,
        };
        Self {
            key,
            previous_key: None,
            stored,
            deleted: false,
            flushed: Counts::new(),
            unflushed: Counts::new(),
            undelivered: Vec::new(),
            unrecorded_pauses: Vec::new(),
            record: None,
        }
    }

    /// The record in PostgreSQL. Days that were flushed while the clock of Redis was wrong are left out.
    pub fn stored_record(&self, now_ms: u64) -> KeyRecord {
        let flushed = self.flushed.iter().map(|(&day, &count)| DailyUsage { day, count });
        let counts = merge_days(flushed, LedgerTime(now_ms).day());
        let [usage, previous_usage] = newest_days(&counts).map(|usage| Some(usage).filter(|usage| usage.count > 0));
        KeyRecord { usage, previous_usage, ..self.stored.clone() }
    }

    /// Changes the key in PostgreSQL. The change reaches Redis when it is published.
    pub fn change(&mut self, change: impl FnOnce(&mut KeyRecord)) {
        change(&mut self.stored);
        self.stored.generation += 1;
        self.undelivered.push(self.stored.clone());
    }

    pub fn resume(&mut self) {
        if self.stored.flags.paused {
            self.change(|stored| {
                stored.flags.paused = false;
                stored.burst_epoch += 1;
            });
        }
    }

    /// Records a pause in PostgreSQL, unless its burst epoch is over.
    pub fn record_pause(&mut self, pause: &KeyPause) {
        self.unrecorded_pauses.retain(|unrecorded| unrecorded.burst_epoch != pause.burst_epoch);
        if !self.deleted && self.stored.burst_epoch == pause.burst_epoch && !self.stored.flags.paused {
            self.change(|stored| stored.flags.paused = true);
        }
    }

    /// Changes the restrictions. The key expires at that time, if given.
    pub fn restrict(&mut self, expires_at_s: Option<u64>) {
        let version = self.restriction_version() + 1;
        let restrictions = Restrictions { expires_at_s, ..Restrictions::default() };
        self.change(|stored| stored.restrictions = Some(Arc::new(VersionedRestrictions { version, restrictions })));
    }

    /// The version of the restrictions in PostgreSQL.
    pub fn restriction_version(&self) -> u64 {
        self.stored.restrictions.as_ref().map_or(0, |versioned| versioned.version)
    }

    pub fn rotate(&mut self, rng: &mut fastrand::Rng, until_s: u64) {
        let new = PlaintextKey::rotate(self.key.id, || rng.u8(..)).to_api_key();
        let old = std::mem::replace(&mut self.key, new);
        self.previous_key = Some(old);
        self.change(|stored| {
            stored.digest = new.digest;
            stored.previous = Some(PreviousDigest { digest: old.digest, expires_at_s: until_s });
        });
    }

    fn has_unrecorded_pause(&self, burst_epoch: u64) -> bool {
        self.unrecorded_pauses.iter().any(|pause| pause.burst_epoch == burst_epoch)
    }

    pub fn is_trusted(&self, incarnation: ModelIncarnation) -> bool {
        self.record.as_ref().is_some_and(|record| incarnation.trusts(record.incarnation))
    }

    /// Fills a record that is missing or not trusted.
    pub fn fill(&mut self, key_record: &KeyRecord, incarnation: ModelIncarnation, now_ms: u64) {
        let mut filled = key_record.clone();
        filled.flags.paused |= self.has_unrecorded_pause(key_record.burst_epoch);
        let old = self.record.take();
        let days = self.merge_days(key_record, old.as_ref(), true, now_ms);
        let log_start_ms = old.as_ref().map_or(now_ms, |old| old.next_log_start_ms(now_ms));
        let old = old.filter(|old| old.key_record.burst_epoch == key_record.burst_epoch);
        let is_log_deleted = old.as_ref().is_some_and(|old| old.is_log_deleted);
        let (requests, newest_ms) = old.map_or((Vec::new(), 0), |old| (old.requests, old.newest_ms));
        let incarnation = Some(incarnation);
        self.record = Some(RecordModel {
            key_record: filled,
            incarnation,
            requests,
            newest_ms,
            is_log_deleted,
            days,
            log_start_ms,
            written_ms: now_ms,
        });
    }

    /// The newest two days of PostgreSQL and Redis. No unflushed count is lost.
    fn merge_days(
        &mut self,
        key_record: &KeyRecord,
        old: Option<&RecordModel>,
        is_fill: bool,
        now_ms: u64,
    ) -> DayColumns {
        let stored = [key_record.usage, key_record.previous_usage].into_iter().flatten();
        let mut counts = merge_days(stored.chain(old.iter().flat_map(|old| old.days)), LedgerTime(now_ms).day());
        if is_fill {
            let moved = |day| self.unflushed.get(day).copied().unwrap_or_default();
            counts.iter_mut().for_each(|(day, count)| *count = moved(day).max(*count));
        }
        let days = newest_days(&counts);
        for (&day, &count) in counts.iter().filter(|(day, _)| old.is_some() && **day < days[1].day) {
            self.keep_unflushed(DailyUsage { day, count });
        }
        days
    }

    fn keep_unflushed(&mut self, usage: DailyUsage) {
        if usage.count > self.flushed.get(&usage.day).copied().unwrap_or_default() {
            raise_count(&mut self.unflushed, usage);
        }
    }

    /// Publishes a change. Redis keeps it only if it trusts its record of the key and the change is newer.
    pub fn publish(&mut self, key_record: &KeyRecord, incarnation: ModelIncarnation, now_ms: u64) -> Published {
        let is_trusted = self.is_trusted(incarnation);
        let has_unrecorded_pause = self.has_unrecorded_pause(key_record.burst_epoch);
        let Some(mut record) = self.record.take() else { return Published::Applied };
        if !is_trusted {
            record.incarnation = None;
            self.record = Some(record);
            return Published::Applied;
        }
        let old_generation = record.key_record.generation;
        if key_record.generation > old_generation {
            record.days = self.merge_days(key_record, Some(&record), false, now_ms);
            let is_same_epoch = record.key_record.burst_epoch == key_record.burst_epoch;
            let paused_here = record.key_record.flags.paused && is_same_epoch;
            if !is_same_epoch {
                record.log_start_ms = record.next_log_start_ms(now_ms);
                record.requests.clear();
                record.newest_ms = 0;
            } else if record.key_record.burst_limit != key_record.burst_limit {
                // A log of another limit may have lost its first entries.
                record.log_start_ms = record.next_log_start_ms(now_ms);
            }
            record.key_record = key_record.clone();
            record.key_record.flags.paused |= paused_here || has_unrecorded_pause;
            record.incarnation = Some(incarnation);
            record.written_ms = now_ms;
        }
        self.record = Some(record);
        if key_record.generation < old_generation { Published::Superseded } else { Published::Applied }
    }

    /// The expected verdict, or `None` if Redis has no record that the node trusts.
    pub fn charge(
        &mut self,
        digest: KeyDigest,
        incarnation: ModelIncarnation,
        arrival_ms: u64,
        clock_ms: u64,
        applied: AppliedRestrictions,
    ) -> Option<Verdict> {
        if !self.is_trusted(incarnation) {
            return None;
        }
        let mut record = self.record.take()?;
        let verdict = self.charge_record(&mut record, digest, arrival_ms, clock_ms, applied);
        self.record = Some(record);
        Some(verdict)
    }

    fn charge_record(
        &mut self,
        record: &mut RecordModel,
        digest: KeyDigest,
        arrival_ms: u64,
        clock_ms: u64,
        applied: AppliedRestrictions,
    ) -> Verdict {
        let key_record = &mut record.key_record;
        let previous_digest = key_record
            .previous
            .filter(|previous| clock_ms < previous.expires_at_s * 1000)
            .map(|previous| previous.digest);
        if digest != key_record.digest && Some(digest) != previous_digest {
            return Verdict::WrongSecret(LedgerTime(clock_ms));
        }
        if key_record.flags.deactivated {
            return Verdict::Inactive(LedgerTime(clock_ms));
        }
        if key_record.flags.paused {
            return Verdict::Paused { now: LedgerTime(clock_ms), burst_limit: key_record.burst_limit };
        }
        if let Some(VersionedRestrictions { version, restrictions }) = key_record.restrictions.as_deref() {
            if restrictions.expires_at_s.is_some_and(|expires_at_s| clock_ms >= expires_at_s * 1000) {
                return Verdict::Expired(LedgerTime(clock_ms));
            }
            if applied.version < *version {
                return Verdict::Outdated { now: LedgerTime(clock_ms), version: *version };
            }
        }
        if applied.is_refused {
            return Verdict::Restricted(LedgerTime(clock_ms));
        }

        let mut now_ms = clock_ms;
        if record.newest_ms > clock_ms + CLOCK_SKEW_TOLERANCE_MS {
            record.log_start_ms = record.next_log_start_ms(clock_ms);
            record.requests.clear();
            record.is_log_deleted = false;
        } else {
            now_ms = now_ms.max(record.newest_ms);
        }
        let (days, moved) = start_day(record.days, LedgerTime(now_ms).day());
        if let Some(moved) = moved {
            self.keep_unflushed(moved);
        }
        record.requests.retain(|at| now_ms < at + BURST_WINDOW_MS);
        let burst_limit = record.key_record.burst_limit;
        if record.requests.len() >= burst_limit {
            let mut counts = [0; BURST_WINDOW_S as usize];
            for at in record.requests.iter().chain([&now_ms]) {
                counts[59 - usize::try_from((now_ms - at) / 1000).expect("second of the window")] += 1;
            }
            let (id, burst_epoch) = (record.key_record.id, record.key_record.burst_epoch);
            record.key_record.flags.paused = true;
            self.unrecorded_pauses.push(KeyPause { key: id, burst_epoch, at_ms: now_ms, counts });
            return Verdict::PausedNow { now: LedgerTime(now_ms), burst_epoch, burst_limit };
        }
        record.restart_lost_log(now_ms);
        record.requests.push(arrival_ms);
        record.newest_ms = now_ms;
        record.is_log_deleted = false;
        if days != record.days {
            record.days = days;
            record.written_ms = clock_ms;
        }
        record.charge_quota(now_ms)
    }
}

impl RecordModel {
    /// After the log was deleted, charges up to the newest request cannot be proven. A later time comes from a wrong
    /// clock, which hides when the last request before it was charged.
    fn next_log_start_ms(&self, now_ms: u64) -> u64 {
        now_ms.max(self.newest_ms).max(self.log_start_ms).min(now_ms + DAY_MS)
    }

    /// An empty log in the burst window of the newest request has lost entries.
    pub fn restart_lost_log(&mut self, now_ms: u64) {
        if self.is_log_deleted && now_ms < self.newest_ms + BURST_WINDOW_MS {
            self.log_start_ms = self.next_log_start_ms(now_ms);
        }
    }

    fn charge_quota(&mut self, now_ms: u64) -> Verdict {
        let (limit, today) = (self.key_record.daily_limit, &mut self.days[0]);
        let exhausted = today.count >= limit;
        if !exhausted {
            today.count += 1;
        }
        let used = if exhausted { limit } else { today.count };
        let burst_limit = self.key_record.burst_limit;
        let quota = Quota { now: LedgerTime(now_ms), limit, day: today.day, used, burst_limit };
        if exhausted {
            Verdict::QuotaExhausted { quota }
        } else {
            Verdict::Admitted {
                scope: self.key_record.scope,
                quota,
                burst_epoch: self.key_record.burst_epoch,
                is_open: false,
            }
        }
    }
}
