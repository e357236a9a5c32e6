//! Redis is down, frozen, full or demoted: requests fail in time, and the ledger recovers without a restart.

use std::time::{Duration, Instant};

use ipseity_domain::{DEMO_DAILY_LIMIT, KeyPause};
use ipseity_ledger::{AppliedRestrictions, ChargeId, Ledger, LedgerError, LedgerOptions, RECONCILE_DELAY, Verdict};
use ipseity_testkit::eventually;
use redis::cmd;

use crate::fixture::{self, LedgerFixture, arrived_now, ledger_on};

const TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout and a margin for a busy machine.
const FAILURE_TIMEOUT: Duration = Duration::from_millis(1_500);

fn short_timeout_ledger(fixture: &LedgerFixture) -> Ledger {
    ledger_with_timeout(fixture, TIMEOUT)
}

fn ledger_with_timeout(fixture: &LedgerFixture, timeout: Duration) -> Ledger {
    fixture::ledger_with_timeout(fixture.redis.url(), timeout)
}

/// Charges a key and returns the error, which must come in time.
async fn expect_failure(ledger: &Ledger, key: &ipseity_domain::ApiKey) -> LedgerError {
    let start = Instant::now();
    let error = ledger
        .charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("charge fails")
        .error;
    assert!(start.elapsed() < FAILURE_TIMEOUT, "{error} after {:?}", start.elapsed());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_scripts_are_reloaded_within_the_same_request() {
    let fixture = LedgerFixture::open().await;
    let (key, mut key_record) = fixture.filled_key(10).await;
    for generation in 2..5 {
        cmd("SCRIPT").arg("FLUSH").exec_async(&mut fixture.connection().await).await.expect("scripts are flushed");
        fixture.charge_admitted(&key).await;
        cmd("SCRIPT").arg("FLUSH").exec_async(&mut fixture.connection().await).await.expect("scripts are flushed");
        key_record.generation = generation;
        fixture.publish(&key_record).await;
        fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds");
    }
    assert_eq!(fixture.charge_admitted(&key).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn demoted_redis_applies_nothing_until_it_is_promoted() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    let mut connection = fixture.connection().await;
    // No server listens on that port: Redis keeps its data and is read-only.
    cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec_async(&mut connection).await.expect("server becomes a replica");
    for _ in 0..3 {
        let error = expect_failure(&fixture.ledger, &key).await;
        assert!(matches!(&error, LedgerError::NotApplied(cause) if cause.code() == Some("READONLY")), "{error:?}");
    }
    let pause = KeyPause { key: key.id, burst_epoch: 1, at_ms: 0, counts: [0; 60] };
    for outcome in [
        fixture.ledger.publish(&key_record).await.map(drop),
        fixture.ledger.delete_key_record(key.id).await,
        fixture.ledger.invalidate_key_record(key.id).await,
        fixture.ledger.mark_pause_recorded(&pause).await,
        fixture.ledger.claim_sweep(&fixture.ledger.owner_of(key.id), TIMEOUT).await.map(drop),
        fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.map(drop),
    ] {
        assert!(matches!(outcome, Err(LedgerError::NotApplied(_))), "{outcome:?}");
    }

    cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut connection).await.expect("server becomes a primary");
    fixture.fill(&key, &key_record).await;
    assert_eq!(fixture.charge_admitted(&key).await, 2, "no request was applied in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_redis_applies_nothing_and_reports_it() {
    let fixture = LedgerFixture::open().await;
    let (key, _) = fixture.filled_key(10).await;
    let mut connection = fixture.connection().await;
    for (memory, is_full) in [(1, true), (0, false)] {
        cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(memory)
            .exec_async(&mut connection)
            .await
            .expect("CONFIG SET succeeds");
        for outcome in [
            fixture
                .ledger
                .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
                .await
                .map(drop)
                .map_err(|failed| failed.error),
            fixture.ledger.delete_key_record(key.id).await,
        ] {
            assert_eq!(matches!(outcome, Err(LedgerError::NotApplied(_))), is_full, "{outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_redis_fails_requests_in_time_and_recovers() {
    let mut fixture = LedgerFixture::open().await;
    let ledger = ledger_with_timeout(&fixture, Duration::from_secs(1));
    let (key, key_record) = fixture.filled_key(10).await;
    ledger.ping().await.expect("Redis answers");
    for round in 0..3 {
        fixture.redis.kill9();
        for _ in 0..3 {
            let error = expect_failure(&ledger, &key).await;
            // A request that is sent while Redis dies sometimes gets no error, and times out.
            let is_expected = matches!(
                error,
                LedgerError::NotApplied(_) | LedgerError::ConnectionLost(_) | LedgerError::ReplyTimeout
            );
            assert!(is_expected, "round {round}: {error:?}");
        }
        fixture.redis.restart().await.expect("Redis restarts");
        let verdict = ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await;
        assert!(matches!(verdict, Ok(Verdict::Unknown(_))), "round {round}: {verdict:?}");
    }
    fixture.fill(&key, &key_record).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    fixture.redis.restart().await.expect("Redis restarts");
    let verdict = ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await;
    assert!(matches!(verdict, Ok(Verdict::Unknown(_))), "restarted without a request in between: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_redis_times_out_and_is_used_again_once_thawed() {
    let mut fixture = LedgerFixture::open().await;
    let (connected, unconnected) = (short_timeout_ledger(&fixture), short_timeout_ledger(&fixture));
    let (key, _) = fixture.filled_key(10).await;
    connected.ping().await.expect("Redis answers");
    fixture.redis.freeze();
    for _ in 0..2 {
        assert!(
            matches!(expect_failure(&connected, &key).await, LedgerError::ReplyTimeout),
            "it may have been applied"
        );
        assert!(
            matches!(expect_failure(&unconnected, &key).await, LedgerError::Unreachable),
            "the request was not sent"
        );
    }
    tokio::time::sleep(RECONCILE_DELAY).await;
    fixture.redis.thaw();
    for ledger in [&connected, &unconnected] {
        let responds = async || ledger.ping().await.is_ok();
        eventually("the ledger recovers", Duration::from_secs(10), responds).await.expect("Redis answers");
    }
    assert_eq!(fixture.charge_admitted(&key).await, 1, "Redis received the charges too late to apply them");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_can_be_created_while_redis_is_down() {
    let mut fixture = LedgerFixture::open().await;
    fixture.redis.kill9();
    let ledger = ledger_on(&fixture.redis);
    assert!(ledger.ping().await.is_err());
    fixture.redis.restart().await.expect("Redis starts");
    ledger.ping().await.expect("Redis answers");
    assert!(Ledger::new(&LedgerOptions::new("nonsense", TIMEOUT)).is_err());
}
