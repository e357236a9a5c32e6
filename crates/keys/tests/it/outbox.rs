//! Changes whose maker died or could not reach Redis.

use std::time::Duration;

use ipseity_domain::KeyId;
use ipseity_keys::OutboxRun;
use ipseity_ledger::Verdict;
use ipseity_store::Actor;
use ipseity_testkit::Redis;

use crate::fixture::{KeysFixture, is_admitted};

#[tokio::test(flavor = "multi_thread")]
async fn every_node_can_complete_a_change() {
    let fixture = KeysFixture::open().await;
    let (node, other) = (fixture.node(), fixture.node());
    let [updated, deleted] = [fixture.create_key().await, fixture.create_key().await];
    assert!(is_admitted(&node.charge(&updated).await) && is_admitted(&node.charge(&deleted).await));
    fixture.store.keys().deactivate(Actor::Operator, updated.id).await.expect("key is deactivated");
    fixture.store.keys().delete(Actor::Operator, deleted.id).await.expect("key is deleted");
    assert!(is_admitted(&node.charge(&updated).await), "Redis does not know the change");
    let (one, two) = tokio::join!(node.service.apply_outbox(), other.service.apply_outbox());
    assert_eq!((one.expect("run succeeds"), two.expect("run succeeds")), Default::default());
    assert!(matches!(node.charge(&updated).await, Verdict::Inactive(_)));
    let verdict = node.charge_once(&deleted).await;
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    assert_eq!(fixture.outbox_count().await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_stays_in_the_outbox_while_redis_is_unreachable() {
    let mut fixture = KeysFixture::open().await;
    let key = fixture.create_key().await;
    let node = fixture.node_with_timeout(&fixture.redis, Duration::from_millis(500));
    assert!(is_admitted(&node.charge(&key).await));
    fixture.redis.freeze();
    let committed = node.service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    assert!(committed.publish_error.is_some());
    let run = node.service.apply_outbox().await.expect("PostgreSQL answers");
    assert_eq!(run, OutboxRun { delayed: vec![key.id], rejected: Vec::new() });
    assert_eq!(fixture.outbox_count().await, "1");
    assert!(node.metrics().contains("outbox_changes_failed_total 1"), "{}", node.metrics());
    fixture.redis.thaw();
    let node = fixture.node();
    assert_eq!(node.service.apply_outbox().await.expect("run succeeds"), OutboxRun::default());
    assert!(matches!(node.charge(&key).await, Verdict::Inactive(_)));
    assert_eq!(fixture.outbox_count().await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_cannot_be_applied_does_not_block_others() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();
    let mut keys = Vec::new();
    for _ in 0..3 {
        keys.push(fixture.create_key().await);
    }
    for key in &keys {
        assert!(is_admitted(&node.charge(key).await));
        fixture.store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    }
    // A script fails on the pauses of the first key's bucket.
    fixture
        .redis
        .run_command(&["SET", &format!("{}:pending", bucket_prefix(&fixture.redis, keys[0].id).await), "x"])
        .await
        .expect("Redis answers");
    let run = node.service.apply_outbox().await.expect("PostgreSQL answers");
    assert_eq!(run, OutboxRun { delayed: Vec::new(), rejected: vec![keys[0].id] });
    for key in &keys[1..] {
        assert!(matches!(node.charge(key).await, Verdict::Inactive(_)));
    }
    assert_eq!(fixture.outbox_count().await, "1");
    assert!(node.metrics().contains("outbox_changes_failed_total 1"), "{}", node.metrics());
}

/// The start of the names of a key's bucket, such as `i3:{b0123}`.
async fn bucket_prefix(redis: &Redis, key: KeyId) -> String {
    let dump = redis.dump_all().await.expect("Redis answers");
    let dump = String::from_utf8_lossy(&dump);
    let (before, _) = dump.split_once(&format!(":k:{key}")).expect("the key has a record");
    before[before.rfind("i3:").expect("names start with the layout version")..].to_owned()
}
