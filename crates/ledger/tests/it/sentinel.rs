//! Sentinel promotes a replica. The ledger follows without a restart.

use std::time::Duration;

use ipseity_ledger::{AppliedRestrictions, ChargeId, Ledger, LedgerError, Verdict};
use ipseity_testkit::{Redis, RedisOptions, RedisSentinels, eventually};

use crate::fixture::{LedgerFixture, admitted_count, arrived_now, ledger_with_timeout, new_key, wait_for_replica};

const TIMEOUT: Duration = Duration::from_millis(500);
const PASSWORD: &str = "sentinel-secret";

async fn start_sentinels(password: Option<&str>) -> (LedgerFixture, Redis, RedisSentinels) {
    let fixture = LedgerFixture::open().await;
    let replica = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    replica.replicate_from(&fixture.redis).await.expect("replica is in sync");
    let sentinels = RedisSentinels::start(&fixture.redis, password).await.expect("Sentinels start");
    (fixture, replica, sentinels)
}

async fn owner_address(ledger: &Ledger) -> String {
    let servers = ledger.diagnostics().await.expect("Redis answers");
    servers.into_iter().map(|server| server.address).collect::<Vec<_>>().join(",")
}

async fn fail_over(is_frozen: bool) {
    let (mut fixture, replica, mut sentinels) = start_sentinels(None).await;
    let ledger = ledger_with_timeout(sentinels.url(), TIMEOUT);
    assert_eq!(owner_address(&ledger).await, fixture.redis.address().to_string());
    let (key, key_record) = new_key(10);
    let charge =
        async || match ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await {
            Ok(Verdict::Unknown(fence)) => {
                let _ = ledger.fill(&key_record, &fence).await;
                None
            }
            Ok(verdict) => Some(admitted_count(&verdict)),
            Err(_) => None,
        };
    let mut count = None;
    let mut admits = async || {
        count = charge().await;
        count.is_some()
    };
    eventually("the first charge", Duration::from_secs(10), &mut admits).await.expect("Redis admits");
    wait_for_replica(&fixture.redis).await;
    // One of three may be missing.
    sentinels.kill9(0);
    if is_frozen {
        fixture.redis.freeze()
    } else {
        fixture.redis.kill9()
    }
    eventually("the promoted replica admits", Duration::from_secs(30), &mut admits).await.expect("ledger follows");
    assert_eq!(count, Some(2), "the promoted replica has the first charge");
    assert_eq!(owner_address(&ledger).await, replica.address().to_string());
    sentinels.await_promotion_of(&replica).await.expect("Sentinels agree");
    if is_frozen {
        // It still is a primary, until a Sentinel has demoted it.
        fixture.redis.thaw();
        let fresh = ledger_with_timeout(sentinels.url(), TIMEOUT);
        assert_eq!(owner_address(&fresh).await, replica.address().to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promoted_replica_of_a_killed_primary_is_used() {
    fail_over(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promoted_replica_of_a_frozen_primary_is_used() {
    fail_over(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_with_a_password_are_asked_and_errors_name_them() {
    let (fixture, _replica, sentinels) = start_sentinels(Some(PASSWORD)).await;
    let ledger = ledger_with_timeout(sentinels.url(), Duration::from_secs(5));
    assert_eq!(owner_address(&ledger).await, fixture.redis.address().to_string());
    let reported = ledger.sentinels().await;
    assert_eq!(reported.len(), 3);
    assert!(reported.iter().all(|info| info.primary == Ok(fixture.redis.address().to_string())), "{reported:?}");

    let without_password = sentinels.url().split('?').next().expect("URL").to_owned();
    let other_name = sentinels.url().replace("/ledger", "/other");
    for (url, cause) in [(without_password, "NOAUTH"), (other_name, "No such master with that name")] {
        let error = ledger_with_timeout(url, Duration::from_secs(5)).diagnostics().await.expect_err("no primary");
        let text = error.to_string();
        let is_complete = sentinels.addresses().iter().all(|address| text.contains(&address.to_string()));
        assert!(matches!(error, LedgerError::NoPrimary(_)) && is_complete && text.contains(cause), "{text}");
    }
}
