//! A clock of Redis that is set back pauses no key by mistake.

use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, BURST_LIMIT, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, Ledger, LedgerOptions, LedgerTime, Verdict};
use ipseity_testkit::{Redis, RedisOptions, TestClock};
use tokio::time::sleep;

use crate::fixture::{REQUEST_TIMEOUT, new_key, wait_for_replica};

/// The first requests arrived this long before the last ones.
const SPREAD_MS: u64 = 58_000;
const BURST_WINDOW: Duration = Duration::from_secs(60);

async fn start_redis(offset_ms: i64) -> (Redis, TestClock) {
    let clock = TestClock::open().expect("clock opens");
    clock.set_offset_ms(offset_ms);
    let options = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
    (Redis::start(options).await.expect("Redis starts"), clock)
}

/// Unlike the fixture's, it knows clocks that were set back.
fn open_ledger(url: impl Into<String>) -> Ledger {
    Ledger::new(&LedgerOptions::new(url, REQUEST_TIMEOUT)).expect("valid URL")
}

/// Charges a request, after a fill if necessary.
async fn charge(ledger: &Ledger, key: &ApiKey, key_record: &KeyRecord, arrival: Arrival) -> Verdict {
    loop {
        match ledger.charge(key, ChargeId::next(), arrival, AppliedRestrictions::default()).await {
            Ok(Verdict::Unknown(fence)) => drop(ledger.fill(key_record, &fence).await.expect("fill succeeds")),
            Ok(verdict) => return verdict,
            // The primary was changed.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Charges 300 requests that arrived in the last minute. Returns the instant after which their first has left the window.
async fn fill_window(ledger: &Ledger, key: &ApiKey, key_record: &KeyRecord) -> Instant {
    // The estimate of the clock is as good as it gets.
    ledger.ping().await.expect("Redis answers");
    for _ in 0..5 {
        let _ = charge(ledger, key, key_record, Arrival::AtOwner(LedgerTime(1_000_000_000_000))).await;
    }
    let (start, now) = (Instant::now(), ledger.owner_of(key.id).now());
    for request in 1..=BURST_LIMIT as u64 {
        let arrival = LedgerTime(now.0 - SPREAD_MS + request * SPREAD_MS / BURST_LIMIT as u64);
        let arrival = if request == 1 { LedgerTime(now.0 - SPREAD_MS) } else { arrival };
        let verdict = charge(ledger, key, key_record, Arrival::AtOwner(arrival)).await;
        assert!(matches!(verdict, Verdict::Admitted { .. }), "request {request}: {verdict:?}");
    }
    start + BURST_WINDOW - Duration::from_millis(SPREAD_MS)
}

/// Charges two requests after the first of 300 has left the window: the second of them has not, so it pauses the key.
async fn assert_exact(ledger: &Ledger, key: &ApiKey, key_record: &KeyRecord, first_leaves: Instant, step: &str) {
    sleep(first_leaves.saturating_duration_since(Instant::now()) + Duration::from_millis(5)).await;
    let verdict = charge(ledger, key, key_record, Arrival::Here(Instant::now())).await;
    assert!(matches!(verdict, Verdict::Admitted { .. }), "{step}: {verdict:?}");
    // The limit still applies. A clock that was set forward lets some requests leave the window early.
    let mut further = 0;
    while matches!(charge(ledger, key, key_record, Arrival::Here(Instant::now())).await, Verdict::Admitted { .. }) {
        further += 1;
        assert!(further <= 40, "{step}: the key is never paused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_below_its_limit_is_not_paused_when_the_clock_is_set_back() {
    let (redis, clock) = start_redis(0).await;
    let ledger = open_ledger(redis.url());
    // A larger step back starts a new log.
    for step_ms in [0, -50, -500, 3_000, -900] {
        let (key, key_record) = new_key(10_000);
        let first_leaves = fill_window(&ledger, &key, &key_record).await;
        clock.advance_ms(step_ms);
        assert_exact(&ledger, &key, &key_record, first_leaves, &format!("{step_ms} ms")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_of_a_distant_remote_node_notices_that_the_clock_was_set_back() {
    let (redis, clock) = start_redis(0).await;
    let ledger = open_ledger(redis.url());
    let (key, key_record) = new_key(10_000);
    let first_leaves = fill_window(&ledger, &key, &key_record).await;
    clock.advance_ms(-100);
    sleep(first_leaves.saturating_duration_since(Instant::now()) + Duration::from_millis(5)).await;
    // It was sent before, and its time is possible by the clock that was set back.
    let sent_at = LedgerTime(ledger.owner_of(key.id).now().0 - 300);
    let verdict =
        charge(&ledger, &key, &key_record, Arrival::AtRemoteNode { arrival: sent_at, sent_at, slot: None }).await;
    assert!(matches!(verdict, Verdict::Admitted { .. }), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_below_its_limit_is_not_paused_after_a_promotion_to_another_clock() {
    for behind_ms in [50, 500] {
        let (mut primary, _clock) = start_redis(0).await;
        let (replica, _slower_clock) = start_redis(-behind_ms).await;
        replica.replicate_from(&primary).await.expect("replica is in sync");
        let ledger = open_ledger(format!("{}, {}", replica.url(), primary.url()));
        let (key, key_record) = new_key(10_000);
        let first_leaves = fill_window(&ledger, &key, &key_record).await;
        wait_for_replica(&primary).await;
        replica.promote().await.expect("replica is promoted");
        primary.kill9();
        assert_exact(&ledger, &key, &key_record, first_leaves, &format!("{behind_ms} ms behind")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fall_of_the_clock_is_counted_once_although_verdicts_do_not_go_back() {
    let (redis, clock) = start_redis(0).await;
    let ledger = open_ledger(redis.url());
    let (key, key_record) = new_key(10_000);
    ledger.ping().await.expect("Redis answers");
    assert!(matches!(
        charge(&ledger, &key, &key_record, Arrival::Here(Instant::now())).await,
        Verdict::Admitted { .. }
    ));
    clock.advance_ms(-900);
    for _ in 0..10 {
        charge(&ledger, &key, &key_record, Arrival::Here(Instant::now())).await;
        ledger.refresh_clocks().await;
    }
    let window_ms = ledger.owner_of(key.id).burst_window_ms();
    assert!((58_900..=59_100).contains(&window_ms), "{window_ms}");
}
