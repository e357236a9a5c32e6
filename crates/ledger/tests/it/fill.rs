//! Fills and publishes that overtake each other.

use ipseity_domain::{KeyFlags, KeyRecord};
use ipseity_ledger::{Published, Verdict};
use redis::cmd;

use crate::fixture::{LedgerFixture, admitted_count, new_key};

/// The record after another change.
fn next_change(key_record: &KeyRecord, deactivated: bool) -> KeyRecord {
    let flags = KeyFlags { deactivated, ..key_record.flags };
    KeyRecord { flags, generation: key_record.generation + 1, ..key_record.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_charge_is_unknown_and_admitted_after_a_fill() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = new_key(10);
    let fence = fixture.expect_unknown(&key).await;
    assert!(fixture.ledger.fill(&key_record, &fence).await.expect("fill succeeds"));
    let verdict = fixture.charge(&key).await;
    assert_eq!(admitted_count(&verdict), 1);
    let Verdict::Admitted { scope, quota, .. } = verdict else { panic!("not admitted") };
    assert_eq!((scope, quota.limit, quota.remaining()), (key_record.scope, 10, 9));
    assert_eq!(quota.day, quota.now.day());
    assert!((1..=86_400).contains(&quota.retry_after_s()));

    assert!(fixture.ledger.fill(&key_record, &fence).await.expect("fill succeeds"), "a second fill succeeds");
    assert_eq!(fixture.charge_admitted(&key).await, 2, "it does not reset the count");
}

#[tokio::test(flavor = "multi_thread")]
async fn overtaken_fill_never_restores_a_changed_key() {
    let fixture = LedgerFixture::open().await;
    let (key, active) = new_key(10);

    let fence = fixture.expect_unknown(&key).await;
    fixture.publish(&next_change(&active, true)).await;
    assert!(!fixture.ledger.fill(&active, &fence).await.expect("Redis answers"), "deactivated key");
    fixture.expect_unknown(&key).await;

    let fence = fixture.expect_unknown(&key).await;
    fixture.ledger.delete_key_record(key.id).await.expect("delete succeeds");
    assert!(!fixture.ledger.fill(&active, &fence).await.expect("Redis answers"), "deleted key");
    fixture.expect_unknown(&key).await;

    let fence = fixture.expect_unknown(&key).await;
    fixture.redis.flushall().await.expect("data is deleted");
    assert!(!fixture.ledger.fill(&active, &fence).await.expect("Redis answers"), "lost fence");
    fixture.expect_unknown(&key).await;

    fixture.fill(&key, &active).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    fixture.ledger.delete_key_record(key.id).await.expect("delete succeeds");
    fixture.publish(&next_change(&active, false)).await;
    fixture.expect_unknown(&key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_writes_only_newer_changes_over_existing_records() {
    let fixture = LedgerFixture::open().await;
    let (key, active) = new_key(10);
    let inactive = next_change(&active, true);

    fixture.publish(&inactive).await;
    let redis_keys: Vec<String> =
        cmd("KEYS").arg("*").query_async(&mut fixture.connection().await).await.expect("KEYS succeeds");
    assert!(redis_keys.iter().all(|redis_key| redis_key.ends_with(":fence")), "{redis_keys:?}");

    fixture.fill(&key, &inactive).await;
    let older = active.clone();
    let equal = KeyRecord { generation: inactive.generation, ..active.clone() };
    for late in [older, equal] {
        assert_eq!(fixture.ledger.publish(&late).await.expect("publish succeeds"), Published::Superseded);
        assert!(matches!(fixture.charge(&key).await, Verdict::Inactive(_)));
    }
    fixture.publish(&inactive).await;
    assert!(matches!(fixture.charge(&key).await, Verdict::Inactive(_)), "the same change again");
    fixture.publish(&next_change(&inactive, false)).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
}
