//! A replica is promoted manually. The ledger finds it without a restart.

use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, ChargeId, Ledger, LedgerError, Verdict};
use ipseity_testkit::{Redis, RedisOptions, eventually};

use crate::fixture::{LedgerFixture, admitted_count, arrived_now, ledger_with_timeout, new_key, wait_for_replica};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// A primary, a replica in sync, and a ledger with both addresses. The replica comes first.
async fn primary_and_replica() -> (LedgerFixture, Redis, Ledger) {
    let fixture = LedgerFixture::open().await;
    let replica = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    replica.replicate_from(&fixture.redis).await.expect("replica is in sync");
    let url = format!("{}, {}", replica.url(), fixture.redis.url());
    let ledger = ledger_with_timeout(url, SHORT_TIMEOUT);
    (fixture, replica, ledger)
}

/// A key that was charged once.
async fn key_charged_once(ledger: &Ledger) -> (ApiKey, KeyRecord) {
    let (key, key_record) = new_key(10);
    assert_eq!(charge_until_admitted(ledger, &key, &key_record).await.0, 1);
    (key, key_record)
}

/// Charges until it succeeds, with a fill if needed. Returns the count and how long it took.
async fn charge_until_admitted(ledger: &Ledger, key: &ApiKey, key_record: &KeyRecord) -> (u64, Duration) {
    let (start, mut count) = (Instant::now(), 0);
    eventually("charge is admitted", Duration::from_secs(30), async || {
        match ledger.charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await {
            Ok(Verdict::Unknown(fence)) => drop(ledger.fill(key_record, &fence).await),
            Ok(verdict) => count = admitted_count(&verdict),
            Err(_) => {}
        }
        count > 0
    })
    .await
    .expect("ledger recovers");
    (count, start.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_promoted_after_its_primary_was_killed_is_found() {
    let (mut fixture, replica, ledger) = primary_and_replica().await;
    let (key, key_record) = key_charged_once(&ledger).await;
    wait_for_replica(&fixture.redis).await;
    fixture.redis.kill9();
    for _ in 0..5 {
        // A replica may return unknown, but rejects the fill.
        let verdict = ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await;
        assert!(matches!(verdict, Err(_) | Ok(Verdict::Unknown(_))), "a replica admits no request: {verdict:?}");
    }
    replica.promote().await.expect("replica is promoted");
    let (count, took) = charge_until_admitted(&ledger, &key, &key_record).await;
    assert_eq!(count, 2);
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_promoted_while_its_primary_is_frozen_is_found() {
    let (mut fixture, replica, ledger) = primary_and_replica().await;
    let (key, key_record) = key_charged_once(&ledger).await;
    wait_for_replica(&fixture.redis).await;
    fixture.redis.freeze();
    let failed = ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("server is frozen");
    assert!(matches!(failed.error, LedgerError::ReplyTimeout), "{failed:?}");
    replica.promote().await.expect("replica is promoted");
    let (count, took) = charge_until_admitted(&ledger, &key, &key_record).await;
    assert_eq!(count, 2);
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_follows_repeated_role_swaps() {
    let (fixture, replica, ledger) = primary_and_replica().await;
    let (key, key_record) = key_charged_once(&ledger).await;
    let servers = [&fixture.redis, &replica];
    for (round, expected) in [(0, 2), (1, 3), (0, 4)] {
        let (old, new) = (servers[round], servers[1 - round]);
        wait_for_replica(old).await;
        new.promote().await.expect("replica is promoted");
        old.replicate_from(new).await.expect("replica is in sync");
        let (count, took) = charge_until_admitted(&ledger, &key, &key_record).await;
        assert_eq!(count, expected);
        assert!(took < RECOVERY_TIMEOUT, "{took:?}");
    }
}
