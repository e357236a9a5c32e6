//! The local limiter: decides on the requests of one key by the rules of charge.lua, from the local record
//! and request log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ipseity_domain::{
    ApiKey, BURST_LIMIT, BURST_WINDOW_S, DailyUsage, KeyDigest, KeyFlags, KeyPause, KeyRecord, KeyState, Scope, UtcDay,
};
use ipseity_ledger::{LedgerTime, Quota, Verdict};

const BURST_WINDOW_MS: u64 = BURST_WINDOW_S * 1000;
/// A clock that steps back by at most this much is treated as not having moved.
const CLOCK_SKEW_TOLERANCE_MS: u64 = 1000;

pub(super) struct LocalKey {
    /// Its usage is the last count from Redis or PostgreSQL. It does not include pending charges.
    pub(super) record: KeyRecord,
    pub(super) updated_at: Instant,
    source: RecordSource,
    /// Times of this node's requests in the last 60 seconds, oldest first. Other nodes may have admitted more.
    request_times: VecDeque<LedgerTime>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordSource {
    /// A verdict from Redis. It lacks the previous digest of a rotated key and the generation.
    Ledger,
    /// PostgreSQL, read at this invalidation epoch.
    Store(u64),
}

impl LocalKey {
    pub(super) fn from_verdict(
        key: &ApiKey,
        scope: Scope,
        quota: &Quota,
        burst_epoch: u64,
        updated_at: Instant,
    ) -> Self {
        let record = KeyRecord {
            id: key.id,
            digest: key.digest,
            previous: None,
            scope,
            daily_limit: quota.limit,
            flags: KeyFlags::default(),
            generation: 0,
            burst_epoch,
            usage: None,
        };
        Self { record, updated_at, source: RecordSource::Ledger, request_times: VecDeque::new() }
    }

    pub(super) fn from_record(record: KeyRecord, invalidation_epoch: u64) -> Self {
        Self {
            record,
            updated_at: Instant::now(),
            source: RecordSource::Store(invalidation_epoch),
            request_times: VecDeque::new(),
        }
    }

    pub(super) fn observe_admitted(
        &mut self,
        key: &ApiKey,
        scope: Scope,
        quota: &Quota,
        burst_epoch: u64,
        received_at: Instant,
    ) {
        if !self.record.accepts(&key.digest, quota.now.as_secs()) {
            (self.record.digest, self.record.previous) = (key.digest, None);
        }
        self.enter_burst_epoch(burst_epoch);
        self.record.scope = scope;
        self.record.daily_limit = quota.limit;
        self.record.flags = KeyFlags::default();
        // Verdicts of one batch can be processed in any order.
        self.record.merge_usage(Some(DailyUsage { day: quota.day, count: quota.used }));
        (self.updated_at, self.source) = (received_at, RecordSource::Ledger);
        self.record_request(quota.now);
    }

    pub(super) fn observe_exhausted(&mut self, quota: &Quota) {
        self.record.daily_limit = quota.limit;
        self.record.merge_usage(Some(DailyUsage { day: quota.day, count: quota.used }));
        self.record_request(quota.now);
    }

    pub(super) fn update_record(&mut self, record: &KeyRecord, invalidation_epoch: u64) {
        // The results of two queries may arrive in the wrong order.
        if record.generation < self.record.generation {
            return;
        }
        self.enter_burst_epoch(record.burst_epoch);
        let usage = self.record.usage;
        self.record = record.clone();
        self.record.merge_usage(usage);
        (self.updated_at, self.source) = (Instant::now(), RecordSource::Store(invalidation_epoch));
    }

    pub(super) const fn is_from_store(&self) -> bool {
        matches!(self.source, RecordSource::Store(_))
    }

    /// A record from a verdict is never fresh: the key may have been paused just before Redis stopped answering.
    pub(super) fn is_fresh(&self, invalidation_epoch: u64, max_age: Duration) -> bool {
        self.source == RecordSource::Store(invalidation_epoch) && self.updated_at.elapsed() < max_age
    }

    /// Decides on a request and logs its time. `pending_on` returns the number of this node's pending charges
    /// of a day.
    ///
    /// Returns `None` for an unknown digest if the record is from a verdict: the digest may be the previous one.
    pub(super) fn check(
        &mut self,
        digest: &KeyDigest,
        now: LedgerTime,
        pending_on: impl FnOnce(UtcDay) -> u64,
    ) -> Option<Verdict> {
        if !self.record.accepts(digest, now.as_secs()) {
            return self.is_from_store().then_some(Verdict::WrongSecret(now));
        }
        match self.record.flags.state() {
            KeyState::Inactive => return Some(Verdict::Inactive(now)),
            KeyState::Paused => return Some(Verdict::Paused(now)),
            KeyState::Active => {}
        }
        let now = self.record_request(now);
        if self.request_times.len() > BURST_LIMIT {
            self.record.flags.paused = true;
            return Some(Verdict::PausedNow(self.build_pause(now)));
        }
        let usage = self.record.usage.unwrap_or(DailyUsage { day: UtcDay(0), count: 0 });
        let day = now.day().max(usage.day);
        let used = if usage.day == day { usage.count } else { 0 } + pending_on(day);
        let limit = self.record.daily_limit;
        Some(if used >= limit {
            Verdict::QuotaExhausted { quota: Quota { now, limit, day, used: limit } }
        } else {
            let quota = Quota { now, limit, day, used: used + 1 };
            let (scope, burst_epoch) = (self.record.scope, self.record.burst_epoch);
            Verdict::Admitted { scope, quota, yesterday: None, burst_epoch }
        })
    }

    /// A resume starts a new burst epoch with an empty log.
    fn enter_burst_epoch(&mut self, burst_epoch: u64) {
        if self.record.burst_epoch != burst_epoch {
            self.record.burst_epoch = burst_epoch;
            self.request_times.clear();
        }
    }

    /// Adds a request to the log. Returns its time, corrected for a clock that stepped back slightly.
    fn record_request(&mut self, now: LedgerTime) -> LedgerTime {
        let now = match self.request_times.back() {
            Some(last) if now < *last && last.0 - now.0 <= CLOCK_SKEW_TOLERANCE_MS => *last,
            Some(last) if now < *last => {
                self.request_times.clear();
                now
            }
            Some(_) | None => now,
        };
        while self.request_times.front().is_some_and(|time| now.0 - time.0 >= BURST_WINDOW_MS) {
            self.request_times.pop_front();
        }
        if self.request_times.len() > BURST_LIMIT {
            self.request_times.pop_front();
        }
        self.request_times.push_back(now);
        now
    }

    fn build_pause(&self, now: LedgerTime) -> KeyPause {
        let mut counts = [0; BURST_WINDOW_S as usize];
        for time in &self.request_times {
            let age_s = usize::try_from((now.0 - time.0) / 1000).unwrap_or(usize::MAX);
            if let Some(count) = counts.iter_mut().rev().nth(age_s) {
                *count += 1;
            }
        }
        KeyPause { key: self.record.id, burst_epoch: self.record.burst_epoch, at_ms: now.0, counts }
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::PlaintextKey;

    use super::*;

    const NOON: LedgerTime = LedgerTime(1_800_014_400_000);

    fn local_key(limit: u64) -> (LocalKey, ApiKey) {
        let key = PlaintextKey::generate(|| fastrand::u8(..)).to_api_key();
        let quota = Quota { now: NOON, limit, day: NOON.day(), used: 1 };
        let mut local_key = LocalKey::from_verdict(&key, Scope::Ip, &quota, 1, Instant::now());
        local_key.observe_admitted(&key, Scope::Ip, &quota, 1, Instant::now());
        (local_key, key)
    }

    fn noon_plus_ms(ms: u64) -> LedgerTime {
        LedgerTime(NOON.0 + ms)
    }

    #[test]
    fn local_count_continues_from_the_last_redis_count() {
        let (mut local_key, key) = local_key(3);
        let Some(Verdict::Admitted { quota, .. }) = local_key.check(&key.digest, noon_plus_ms(1), |_| 0) else {
            panic!("refused")
        };
        assert_eq!(quota.used, 2);
        let Some(Verdict::Admitted { quota, .. }) = local_key.check(&key.digest, noon_plus_ms(2), |_| 1) else {
            panic!("refused")
        };
        assert_eq!((quota.used, quota.remaining()), (3, 0));
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(3), |_| 2), Some(Verdict::QuotaExhausted { .. })));
        let next_day = LedgerTime(NOON.0 + 86_400_000);
        let Some(Verdict::Admitted { quota, .. }) = local_key.check(&key.digest, next_day, |_| 0) else {
            panic!("refused")
        };
        assert_eq!((quota.day, quota.used), (next_day.day(), 1));
    }

    #[test]
    fn out_of_order_verdicts_never_lower_the_local_count() {
        let (mut local_key, key) = local_key(10);
        for used in [3, 2] {
            let quota = Quota { now: NOON, limit: 10, day: NOON.day(), used };
            local_key.observe_admitted(&key, Scope::Ip, &quota, 1, Instant::now());
        }
        assert_eq!(local_key.record.usage, Some(DailyUsage { day: NOON.day(), count: 3 }));
    }

    #[test]
    fn local_request_301_within_60_seconds_pauses_the_key() {
        let (mut local_key, key) = local_key(10_000);
        for ms in 1..300 {
            assert!(
                matches!(local_key.check(&key.digest, noon_plus_ms(ms), |_| 0), Some(Verdict::Admitted { .. })),
                "{ms}"
            );
        }
        let Some(Verdict::PausedNow(pause)) = local_key.check(&key.digest, noon_plus_ms(59_999), |_| 0) else {
            panic!("admitted")
        };
        assert_eq!((pause.counts[0], pause.counts[59], pause.counts.iter().sum::<u16>()), (300, 1, 301));
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(120_000), |_| 0), Some(Verdict::Paused(_))));
    }

    #[test]
    fn local_burst_window_slides_after_60_seconds() {
        let (mut local_key, key) = local_key(10_000);
        for ms in 1..300 {
            local_key.check(&key.digest, noon_plus_ms(ms), |_| 0);
        }
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(60_000), |_| 0), Some(Verdict::Admitted { .. })));
    }

    #[test]
    fn unknown_digest_is_rejected_only_by_a_postgres_record() {
        let (mut local_key, key) = local_key(10_000);
        let other_digest = KeyDigest::new([7; 32]);
        assert!(local_key.check(&other_digest, noon_plus_ms(1), |_| 0).is_none());
        let record = KeyRecord { generation: 2, ..local_key.record.clone() };
        local_key.update_record(&record, 0);
        assert!(matches!(local_key.check(&other_digest, noon_plus_ms(2), |_| 0), Some(Verdict::WrongSecret(_))));
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(3), |_| 0), Some(Verdict::Admitted { .. })));
    }

    #[test]
    fn invalidation_or_a_verdict_makes_the_local_record_stale() {
        let (mut local_key, _) = local_key(10_000);
        assert!(!local_key.is_fresh(0, Duration::from_secs(1)));
        local_key.update_record(&local_key.record.clone(), 0);
        assert!(local_key.is_fresh(0, Duration::from_secs(1)) && !local_key.is_fresh(1, Duration::from_secs(1)));
    }

    #[test]
    fn resume_clears_the_local_log_and_old_records_are_ignored() {
        let (mut local_key, key) = local_key(10_000);
        for ms in 1..=300 {
            local_key.check(&key.digest, noon_plus_ms(ms), |_| 0);
        }
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(301), |_| 0), Some(Verdict::Paused(_))));
        let resumed =
            KeyRecord { generation: 5, burst_epoch: 2, flags: KeyFlags::default(), ..local_key.record.clone() };
        let older = KeyRecord { generation: 4, ..local_key.record.clone() };
        local_key.update_record(&resumed, 0);
        local_key.update_record(&older, 0);
        assert!(matches!(local_key.check(&key.digest, noon_plus_ms(302), |_| 0), Some(Verdict::Admitted { .. })));
    }
}
