//! Tests of the local limiter.

use ipseity_domain::{BURST_LIMIT, PlaintextKey, PreviousDigest, Restrictions};

use super::*;

const NOON: LedgerTime = LedgerTime(1_800_014_400_000);

fn local_key(limit: u64) -> (LocalKey, ApiKey) {
    let key = PlaintextKey::generate(|| fastrand::u8(..)).to_api_key();
    let quota = Quota { now: NOON, limit, day: NOON.day(), used: 1, burst_limit: BURST_LIMIT };
    let mut local_key = LocalKey::from_verdict(&key, Scope::Ip, &quota, 1, Instant::now());
    local_key.observe_admitted(&key, NOON, Scope::Ip, &quota, 1, Instant::now());
    (local_key, key)
}

fn noon_plus_ms(ms: u64) -> LedgerTime {
    LedgerTime(NOON.0 + ms)
}

/// Decides on a request that has just arrived.
fn admits_at(local_key: &mut LocalKey, key: &ApiKey, ms: u64) -> bool {
    matches!(check_at(local_key, &key.digest, noon_plus_ms(ms), 0), Some(LocalVerdict::Admitted { .. }))
}

fn check_at(local_key: &mut LocalKey, digest: &KeyDigest, at: LedgerTime, pending: u64) -> Option<LocalVerdict> {
    local_key.check(digest, at, at, |_| pending, AppliedRestrictions::default())
}

#[test]
fn local_count_continues_from_the_last_redis_count() {
    let (mut local_key, key) = local_key(3);
    let Some(LocalVerdict::Admitted { quota, .. }) = check_at(&mut local_key, &key.digest, noon_plus_ms(1), 0) else {
        panic!("refused")
    };
    assert_eq!(quota.used, 2);
    let Some(LocalVerdict::Admitted { quota, .. }) = check_at(&mut local_key, &key.digest, noon_plus_ms(2), 1) else {
        panic!("refused")
    };
    assert_eq!((quota.used, quota.remaining()), (3, 0));
    assert!(matches!(
        check_at(&mut local_key, &key.digest, noon_plus_ms(3), 2),
        Some(LocalVerdict::Refused(Verdict::QuotaExhausted { .. }))
    ));
    let next_day = LedgerTime(NOON.0 + 86_400_000);
    let Some(LocalVerdict::Admitted { quota, .. }) = check_at(&mut local_key, &key.digest, next_day, 0) else {
        panic!("refused")
    };
    assert_eq!((quota.day, quota.used), (next_day.day(), 1));
}

#[test]
fn out_of_order_verdicts_never_lower_the_local_count() {
    let (mut local_key, key) = local_key(10);
    for used in [3, 2] {
        let quota = Quota { now: NOON, limit: 10, day: NOON.day(), used, burst_limit: BURST_LIMIT };
        local_key.observe_admitted(&key, NOON, Scope::Ip, &quota, 1, Instant::now());
    }
    assert_eq!(local_key.record.usage, Some(DailyUsage { day: NOON.day(), count: 3 }));
}

#[test]
fn local_request_301_within_60_seconds_pauses_the_key() {
    let (mut local_key, key) = local_key(10_000);
    for ms in 1..300 {
        assert!(admits_at(&mut local_key, &key, ms), "{ms}");
    }
    let Some(LocalVerdict::Paused(pause)) = check_at(&mut local_key, &key.digest, noon_plus_ms(59_999), 0) else {
        panic!("admitted")
    };
    assert_eq!((pause.counts[0], pause.counts[59], pause.counts.iter().sum::<u16>()), (300, 1, 301));
    assert!(matches!(
        check_at(&mut local_key, &key.digest, noon_plus_ms(120_000), 0),
        Some(LocalVerdict::Refused(Verdict::Paused { .. }))
    ));
}

#[test]
fn local_burst_limit_is_that_of_the_key() {
    let (mut local_key, key) = local_key(10_000);
    let observe = |local_key: &mut LocalKey, burst_limit| {
        let quota = Quota { now: NOON, limit: 10_000, day: NOON.day(), used: 2, burst_limit };
        local_key.observe_usage(&quota);
    };
    observe(&mut local_key, 400);
    for ms in 1..400 {
        assert!(admits_at(&mut local_key, &key, ms), "{ms}");
    }
    assert_eq!(local_key.burst_left().requests, 0);
    // Of those requests, the last eleven are enough to know that the lower limit is exceeded.
    observe(&mut local_key, 10);
    assert!(matches!(
        check_at(&mut local_key, &key.digest, noon_plus_ms(400), 0),
        Some(LocalVerdict::Paused(pause)) if pause.counts.iter().sum::<u16>() == 11
    ));
}

#[test]
fn verdicts_that_took_long_do_not_pause_the_key() {
    let (mut local_key, key) = local_key(10_000);
    let observe = |local_key: &mut LocalKey, arrival_ms, charged_ms| {
        let (now, burst_limit) = (noon_plus_ms(charged_ms), BURST_LIMIT);
        let quota = Quota { now, limit: 10_000, day: NOON.day(), used: 2, burst_limit };
        local_key.observe_admitted(&key, noon_plus_ms(arrival_ms), Scope::Ip, &quota, 1, Instant::now());
        local_key.pause_if_exceeded(quota.now).is_some()
    };
    // The charges of the first 300 requests took 100 ms longer than those of the next.
    for ms in 1..300 {
        assert!(!observe(&mut local_key, ms, ms + 100), "{ms}");
    }
    // 51 of the first ones have left the window.
    for request in 1..=51 {
        assert!(!observe(&mut local_key, 60_050, 60_050), "{request}");
    }
    assert!(observe(&mut local_key, 60_050, 60_050));
}

#[test]
fn local_burst_window_slides_after_60_seconds() {
    let (mut local_key, key) = local_key(10_000);
    for ms in 1..300 {
        check_at(&mut local_key, &key.digest, noon_plus_ms(ms), 0);
    }
    assert!(admits_at(&mut local_key, &key, 60_000));
}

#[test]
fn unknown_digest_is_rejected_only_by_a_postgres_record() {
    let (mut local_key, key) = local_key(10_000);
    let other_digest = KeyDigest::new([7; 32]);
    assert!(check_at(&mut local_key, &other_digest, noon_plus_ms(1), 0).is_none());
    let record = KeyRecord { generation: 2, ..local_key.record.clone() };
    local_key.update_record(&record, 0, 0);
    assert!(matches!(
        check_at(&mut local_key, &other_digest, noon_plus_ms(2), 0),
        Some(LocalVerdict::Refused(Verdict::WrongSecret(_)))
    ));
    assert!(admits_at(&mut local_key, &key, 3));
}

#[test]
fn invalidation_or_a_verdict_makes_the_local_record_stale() {
    let (mut local_key, _) = local_key(10_000);
    assert!(!local_key.is_fresh(0, Duration::from_secs(1)));
    local_key.update_record(&local_key.record.clone(), 0, 0);
    assert!(local_key.is_fresh(0, Duration::from_secs(1)) && !local_key.is_fresh(1, Duration::from_secs(1)));
}

#[test]
fn resume_clears_the_local_log_and_old_records_are_ignored() {
    let (mut local_key, key) = local_key(10_000);
    for ms in 1..=300 {
        check_at(&mut local_key, &key.digest, noon_plus_ms(ms), 0);
    }
    assert!(matches!(
        check_at(&mut local_key, &key.digest, noon_plus_ms(301), 0),
        Some(LocalVerdict::Refused(Verdict::Paused { .. }))
    ));
    let resumed = KeyRecord { generation: 5, burst_epoch: 2, flags: KeyFlags::default(), ..local_key.record.clone() };
    let older = KeyRecord { generation: 4, ..local_key.record.clone() };
    local_key.update_record(&resumed, 0, 0);
    local_key.update_record(&older, 0, 0);
    assert!(admits_at(&mut local_key, &key, 302));
}

#[test]
fn record_from_home_keeps_the_other_digest_of_its_generation() {
    let (local_key, key) = local_key(10);
    let old = KeyDigest::new([7; 32]);
    let previous = PreviousDigest { digest: old, expires_at_s: NOON.as_secs() + 3_600 };
    let of_previous = |generation| KeyRecord {
        digest: KeyDigest::new([0; 32]),
        previous: Some(previous),
        generation,
        ..local_key.record.clone()
    };
    let of_current = |generation| KeyRecord { generation, ..local_key.record.clone() };
    let accepts = |record: &KeyRecord| [key.digest, old].map(|digest| record.accepts(&digest, NOON.as_secs()));
    for (known, received, accepted) in [
        (of_current(2), of_previous(2), [true, true]),
        (of_previous(2), of_current(2), [true, true]),
        (of_previous(2), of_previous(2), [false, true]),
        (of_previous(1), of_current(2), [true, false]),
        (of_current(1), of_previous(2), [false, true]),
    ] {
        let (mut received, known) = (received, LocalKey::from_record(known, 1));
        known.add_known_digest(&mut received);
        assert_eq!(accepts(&received), accepted);
    }
}

#[test]
fn verdict_does_not_bring_back_restrictions_that_postgres_has_lost() {
    let restrictions = |version, epoch| {
        let versioned = Arc::new(VersionedRestrictions { version, restrictions: Restrictions::default() });
        KnownRestrictions { versioned, epoch }
    };
    let version = |local_key: &LocalKey| local_key.record.restrictions.as_ref().map(|versioned| versioned.version);
    // Made by the verdict itself, after the record was evicted.
    let (mut local_key, _) = local_key(10);
    local_key.observe_restrictions(Some(&restrictions(2, 1)));
    local_key.observe_restrictions(Some(&restrictions(1, 1)));
    assert_eq!(version(&local_key), Some(2));
    // Read from another PostgreSQL meanwhile.
    let read = KeyRecord { generation: 1, restrictions: None, ..local_key.record.clone() };
    local_key.update_record(&read, 2, 0);
    local_key.observe_restrictions(Some(&restrictions(2, 1)));
    assert_eq!(version(&local_key), None);
}
