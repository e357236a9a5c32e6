//! Incarnations: records of another Redis data set are not trusted.

use ipseity_domain::{DEMO_DAILY_LIMIT, DailyUsage, KeyFlags, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, ChargeId, DemoVerdict, Published, Verdict};
use ipseity_testkit::{Redis, RedisOptions};

use crate::fixture::{LedgerFixture, admitted_count, arrived_now, ledger_on, new_key};

#[tokio::test(flavor = "multi_thread")]
async fn record_from_an_old_snapshot_is_not_trusted() {
    let mut fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    fixture.redis.save_snapshot().await.expect("snapshot is saved");
    assert_eq!(fixture.charge_admitted(&key).await, 2);
    let inactive = KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..key_record };
    fixture.publish(&inactive).await;

    fixture.redis.kill9();
    fixture.redis.restart().await.expect("Redis restarts");
    fixture.fill(&key, &inactive).await;
    assert!(matches!(fixture.charge(&key).await, Verdict::Inactive(_)));

    fixture.redis.restart().await.expect("Redis restarts");
    let usage = DailyUsage { day: current_day(&fixture).await, count: 2 };
    fixture.fill(&key, &KeyRecord { flags: KeyFlags::default(), generation: 3, usage: Some(usage), ..inactive }).await;
    assert_eq!(fixture.charge_admitted(&key).await, 3, "the larger of both counts");
}

async fn current_day(fixture: &LedgerFixture) -> ipseity_domain::UtcDay {
    let (key, _) = fixture.filled_key(1).await;
    let Verdict::Admitted { quota, .. } = fixture.charge(&key).await else { panic!("not admitted") };
    quota.day
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_with_a_fence_from_an_old_snapshot_is_rejected() {
    let mut fixture = LedgerFixture::open().await;
    let (key, active) = new_key(10);
    let fence = fixture.expect_unknown(&key).await;
    fixture.redis.save_snapshot().await.expect("snapshot is saved");
    let inactive = KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..active.clone() };
    fixture.publish(&inactive).await;
    fixture.redis.restore_snapshot().await.expect("Redis restarts");
    assert!(!fixture.ledger.fill(&active, &fence).await.expect("Redis answers"));
    fixture.expect_unknown(&key).await;
}

/// Attaches the first replica, which changes the identity of Redis on open connections.
async fn attach_replica(primary: &Redis) -> Redis {
    let replica = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    replica.replicate_from(primary).await.expect("replica is in sync");
    replica
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_incarnation_is_detected_on_open_connections() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    let _replica = attach_replica(&fixture.redis).await;
    assert_eq!(fixture.charge_admitted(&key).await, 2, "an open connection keeps its incarnation");

    let new_ledger = ledger_on(&fixture.redis);
    let Verdict::Unknown(fence) = new_ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect("charge succeeds")
    else {
        panic!("record exists")
    };
    assert!(new_ledger.fill(&key_record, &fence).await.expect("fill succeeds"));
    assert_eq!(
        new_ledger
            .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .map(|verdict| admitted_count(&verdict))
            .expect("charge succeeds"),
        3
    );
    assert_eq!(fixture.charge_admitted(&key).await, 4, "it reads the new incarnation after a mismatch");
    assert_eq!(
        new_ledger
            .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .map(|verdict| admitted_count(&verdict))
            .expect("charge succeeds"),
        5
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_and_demo_charge_detect_a_changed_incarnation() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10).await;
    let old_ledgers = [ledger_on(&fixture.redis), ledger_on(&fixture.redis)];
    for ledger in &old_ledgers {
        ledger.ping().await.expect("Redis accepts a connection");
    }
    fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    let _replica = attach_replica(&fixture.redis).await;

    let new_ledger = ledger_on(&fixture.redis);
    let Verdict::Unknown(fence) = new_ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect("charge succeeds")
    else {
        panic!("record exists")
    };
    assert!(new_ledger.fill(&key_record, &fence).await.expect("fill succeeds"));
    let inactive = KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..key_record };
    let published = old_ledgers[0].publish(&inactive).await.expect("publish succeeds");
    assert_eq!(published, Published::Applied);
    assert!(matches!(
        new_ledger
            .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .expect("charge succeeds"),
        Verdict::Inactive(_)
    ));

    assert_eq!(new_ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"), DemoVerdict::Unknown);
    new_ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    for (ledger, count) in [(&old_ledgers[1], 3), (&new_ledger, 4), (&old_ledgers[1], 5)] {
        let verdict = ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds");
        assert!(matches!(verdict, DemoVerdict::Admitted { quota, .. } if quota.used == count), "{verdict:?}");
    }
}
