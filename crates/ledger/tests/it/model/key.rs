//! The model of one key, from the specification: all request times and plain counts. It is independent of the scripts.

use ipseity_domain::{
    ApiKey, BURST_LIMIT, BURST_WINDOW_S, DailyUsage, KeyDigest, KeyFlags, KeyPause, KeyRecord, PlaintextKey,
    PreviousDigest, Scope, UtcDay,
};
use ipseity_ledger::{LedgerTime, Quota, Verdict};

const BURST_WINDOW_MS: u64 = BURST_WINDOW_S * 1000;
const DAY_MS: u64 = 86_400_000;
/// If the clock goes back by at most this, the time of the newest request is used.
const CLOCK_SKEW_TOLERANCE_MS: u64 = 1_000;

/// The expected state of a key in PostgreSQL and Redis.
pub struct KeyModel {
    pub key: ApiKey,
    pub previous_key: Option<ApiKey>,
    /// The record in PostgreSQL, unless `deleted`.
    pub stored: KeyRecord,
    pub deleted: bool,
    /// Changes that are not published yet.
    pub undelivered: Vec<KeyRecord>,
    /// Pauses that PostgreSQL does not have yet.
    pub unrecorded_pauses: Vec<KeyPause>,
    pub record: Option<RecordModel>,
}

/// The expected state of a key in Redis.
pub struct RecordModel {
    pub key_record: KeyRecord,
    /// The time of each request since the last resume.
    pub requests: Vec<u64>,
    /// The time of the newest request, even if the log is deleted.
    pub newest_ms: u64,
    pub today: DailyUsage,
    pub yesterday: Option<DailyUsage>,
    pub written_ms: u64,
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
            flags: KeyFlags::default(),
            generation: 1,
            burst_epoch: 1,
            usage: None,
        };
        Self {
            key,
            previous_key: None,
            stored,
            deleted: false,
            undelivered: Vec::new(),
            unrecorded_pauses: Vec::new(),
            record: None,
        }
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
        self.unrecorded_pauses.retain(|unrecorded| unrecorded != pause);
        if !self.deleted && self.stored.burst_epoch == pause.burst_epoch && !self.stored.flags.paused {
            self.change(|stored| stored.flags.paused = true);
        }
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

    pub fn flush_usage(&mut self) {
        if let Some(record) = &self.record
            && record.today.count > 0
        {
            self.stored.usage =
                Some(self.stored.usage.map_or(record.today, |stored_usage| newer_usage(stored_usage, record.today)));
        }
    }

    fn has_unrecorded_pause(&self, burst_epoch: u64) -> bool {
        self.unrecorded_pauses.iter().any(|pause| pause.burst_epoch == burst_epoch)
    }

    pub fn fill(&mut self, key_record: &KeyRecord, now_ms: u64) {
        let mut filled = key_record.clone();
        filled.flags.paused |= self.has_unrecorded_pause(key_record.burst_epoch);
        self.record = Some(RecordModel {
            key_record: filled,
            requests: Vec::new(),
            newest_ms: 0,
            today: key_record.usage.unwrap_or(NO_USAGE),
            yesterday: None,
            written_ms: now_ms,
        });
    }

    /// Publishes a change. Redis keeps it only if it has a record of the key and the change is newer.
    pub fn publish(&mut self, key_record: &KeyRecord, now_ms: u64) {
        let has_unrecorded_pause = self.has_unrecorded_pause(key_record.burst_epoch);
        let Some(record) = &mut self.record else { return };
        if key_record.generation <= record.key_record.generation {
            return;
        }
        let paused_here = record.key_record.flags.paused && record.key_record.burst_epoch == key_record.burst_epoch;
        if record.key_record.burst_epoch != key_record.burst_epoch {
            record.requests.clear();
            record.newest_ms = 0;
        }
        record.key_record = key_record.clone();
        record.key_record.flags.paused |= paused_here || has_unrecorded_pause;
        record.today = newer_usage(key_record.usage.unwrap_or(NO_USAGE), record.today);
        record.written_ms = now_ms;
    }

    /// The expected verdict, or `None` if Redis has no record of the key.
    pub fn charge(&mut self, digest: KeyDigest, clock_ms: u64) -> Option<Verdict> {
        let record = self.record.as_mut()?;
        let key_record = &mut record.key_record;
        let previous_digest = key_record
            .previous
            .filter(|previous| clock_ms < previous.expires_at_s * 1000)
            .map(|previous| previous.digest);
        if digest != key_record.digest && Some(digest) != previous_digest {
            return Some(Verdict::WrongSecret(LedgerTime(clock_ms)));
        }
        if key_record.flags.deactivated {
            return Some(Verdict::Inactive(LedgerTime(clock_ms)));
        }
        if key_record.flags.paused {
            return Some(Verdict::Paused(LedgerTime(clock_ms)));
        }

        let mut now_ms = clock_ms;
        if record.newest_ms > clock_ms + CLOCK_SKEW_TOLERANCE_MS {
            record.requests.clear();
        } else {
            now_ms = now_ms.max(record.newest_ms);
        }
        let recent = record.requests.iter().rev().take_while(|&&at| now_ms < at + BURST_WINDOW_MS);
        if recent.clone().count() >= BURST_LIMIT {
            let mut counts = [0; BURST_WINDOW_S as usize];
            for at in recent.chain([&now_ms]) {
                counts[59 - usize::try_from((now_ms - at) / 1000).expect("second of the window")] += 1;
            }
            let pause = KeyPause { key: key_record.id, burst_epoch: key_record.burst_epoch, at_ms: now_ms, counts };
            key_record.flags.paused = true;
            self.unrecorded_pauses.push(pause.clone());
            return Some(Verdict::PausedNow(pause));
        }
        record.requests.push(now_ms);
        record.newest_ms = now_ms;
        Some(record.charge_quota(now_ms, clock_ms))
    }
}

impl RecordModel {
    fn charge_quota(&mut self, now_ms: u64, clock_ms: u64) -> Verdict {
        let day = UtcDay(u32::try_from(now_ms / DAY_MS).expect("day fits into u32"));
        if day > self.today.day {
            if self.today.count > 0 {
                self.yesterday = Some(self.today);
            }
            self.today = DailyUsage { day, count: 0 };
            self.written_ms = clock_ms;
        }
        let limit = self.key_record.daily_limit;
        let exhausted = self.today.count >= limit;
        if !exhausted {
            self.today.count += 1;
        }
        let used = if exhausted { limit } else { self.today.count };
        let quota = Quota { now: LedgerTime(now_ms), limit, day: self.today.day, used };
        if exhausted {
            Verdict::QuotaExhausted { quota }
        } else {
            Verdict::Admitted {
                scope: self.key_record.scope,
                quota,
                yesterday: self.yesterday,
                burst_epoch: self.key_record.burst_epoch,
            }
        }
    }
}

const NO_USAGE: DailyUsage = DailyUsage { day: UtcDay(0), count: 0 };

/// The newer day, or the larger count if the days are equal.
fn newer_usage(one: DailyUsage, other: DailyUsage) -> DailyUsage {
    if (one.day, one.count) > (other.day, other.count) { one } else { other }
}
