//! Two Redis servers under one PostgreSQL, a Redis of another deployment, and restored dumps.

use ipseity_keys::{DeploymentStatus, KeyServiceError};
use ipseity_ledger::Verdict;
use ipseity_store::Actor;
use ipseity_testkit::{Redis, RedisOptions};

use crate::fixture::{KeysFixture, TestNode, assert_in_effect, is_admitted};

async fn check(node: &TestNode) -> DeploymentStatus {
    let status = node.service.check_deployment().await.expect("check succeeds");
    assert_eq!(node.guard.status(), status);
    status
}

async fn compare(node: &TestNode) -> DeploymentStatus {
    node.service.compare_deployment().await.expect("check succeeds")
}

#[tokio::test(flavor = "multi_thread")]
async fn second_redis_is_not_trusted_while_other_nodes_use_the_first() {
    let fixture = KeysFixture::open().await;
    let second_redis = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    let (first, second, same) = (fixture.node(), fixture.node_at(&second_redis), fixture.node());
    assert_eq!(check(&first).await, DeploymentStatus::Matching);
    assert_eq!(check(&same).await, DeploymentStatus::Matching);
    assert_eq!(check(&second).await, DeploymentStatus::SplitRedis);
    assert_eq!(compare(&second).await, DeploymentStatus::SplitRedis);
    assert_eq!(check(&first).await, DeploymentStatus::Matching, "the first nodes are not affected");

    // The second node commits a change, and leaves it to the others.
    let key = fixture.create_key().await;
    assert!(is_admitted(&first.charge(&key).await));
    let committed = second.service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    assert!(matches!(committed.publish_error, Some(KeyServiceError::Mismatch(DeploymentStatus::SplitRedis))));
    assert!(matches!(second.service.apply_outbox().await, Err(KeyServiceError::Mismatch(_))));
    assert_eq!(fixture.outbox_count().await, "1");
    first.service.apply_outbox().await.expect("run succeeds");
    assert!(matches!(first.charge(&key).await, Verdict::Inactive(_)));

    // All nodes move to the second Redis.
    first.service.release_data_set().await.expect("claim is deleted");
    assert_eq!(check(&same).await, DeploymentStatus::Matching, "its claim is renewed");
    assert_eq!(check(&second).await, DeploymentStatus::SplitRedis, "one node is left");
    same.service.release_data_set().await.expect("claim is deleted");
    assert_eq!(check(&second).await, DeploymentStatus::SplitRedis, "the node may start again");
    assert_eq!(compare(&second).await, DeploymentStatus::UnclaimedRedis);
    fixture.sql("update deployment set released_at = released_at - interval '11 s'").await;
    assert_eq!(check(&second).await, DeploymentStatus::Matching);
    assert_eq!(check(&first).await, DeploymentStatus::SplitRedis);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_redis_that_is_used_again_are_not_trusted() {
    let fixture = KeysFixture::open().await;
    let second_redis = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    let key = fixture.create_key().await;
    let node = fixture.node();
    assert_eq!(check(&node).await, DeploymentStatus::Matching);
    assert!(is_admitted(&node.charge(&key).await));
    node.service.release_data_set().await.expect("claim is deleted");

    let moved = fixture.node_at(&second_redis);
    assert_eq!(check(&moved).await, DeploymentStatus::Matching);
    assert_in_effect(moved.service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
    moved.service.release_data_set().await.expect("claim is deleted");

    let returned = fixture.node();
    assert_eq!(check(&returned).await, DeploymentStatus::Matching);
    assert!(matches!(returned.charge(&key).await, Verdict::Inactive(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn promoted_replica_is_not_trusted_while_a_node_uses_the_old_primary() {
    let fixture = KeysFixture::open().await;
    let replica = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    replica.replicate_from(&fixture.redis).await.expect("replica is in sync");
    let (old, new) = (fixture.node(), fixture.node_at(&replica));
    assert_eq!(check(&old).await, DeploymentStatus::Matching);
    replica.promote().await.expect("replica is promoted");
    assert_eq!(check(&new).await, DeploymentStatus::SplitRedis);
    assert_eq!(check(&old).await, DeploymentStatus::Matching);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_data_in_a_running_redis_is_not_trusted() {
    let fixture = KeysFixture::open().await;
    let copy = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    let key = fixture.create_key().await;
    let node = fixture.node();
    // The first replica changes the identity of its primary.
    copy.replicate_from(&fixture.redis).await.expect("replica is in sync");
    assert_eq!(check(&node).await, DeploymentStatus::Matching);
    assert!(is_admitted(&node.charge(&key).await));
    copy.replicate_from(&fixture.redis).await.expect("replica is in sync");
    copy.promote().await.expect("replica is promoted");
    assert_in_effect(node.service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
    fixture.redis.replicate_from(&copy).await.expect("replica is in sync");
    fixture.redis.promote().await.expect("replica is promoted");
    assert_eq!(check(&node).await, DeploymentStatus::Matching, "it is the only node");
    assert!(matches!(node.charge(&key).await, Verdict::Inactive(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_redis_stays_trusted() {
    let mut fixture = KeysFixture::open().await;
    let nodes = [fixture.node(), fixture.node()];
    for is_restarted in [false, true] {
        for node in &nodes {
            check_after_reconnect(node).await;
        }
        for node in &nodes {
            assert_eq!(check(node).await, DeploymentStatus::Matching, "restarted: {is_restarted}");
        }
        fixture.redis.flushall().await.expect("Redis is emptied");
        assert_eq!(compare(&nodes[0]).await, DeploymentStatus::Matching, "the data set is the same");
        for node in &nodes {
            assert_eq!(check(node).await, DeploymentStatus::Matching, "restarted: {is_restarted}");
        }
        // The data survives this restart, but the server has another identity.
        fixture.redis.save_snapshot().await.expect("snapshot is saved");
        fixture.redis.restore_snapshot().await.expect("Redis restarts with its data");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_that_restarts_is_trusted_when_all_nodes_have_noticed() {
    let mut fixture = KeysFixture::open().await;
    let nodes = [fixture.node(), fixture.node(), fixture.node()];
    for node in &nodes {
        assert_eq!(check(node).await, DeploymentStatus::Matching);
    }
    fixture.redis.kill9();
    fixture.redis.restart().await.expect("Redis restarts");
    let mut statuses = Vec::new();
    for node in &nodes {
        statuses.push(check_after_reconnect(node).await);
    }
    let split = DeploymentStatus::SplitRedis;
    assert_eq!(statuses, [split, split, DeploymentStatus::Matching]);
    for node in &nodes {
        assert_eq!(check(node).await, DeploymentStatus::Matching);
    }
}

/// The first call after a restart of Redis may find that the connection is lost.
async fn check_after_reconnect(node: &TestNode) -> DeploymentStatus {
    match node.service.check_deployment().await {
        Err(KeyServiceError::Ledger(_)) => check(node).await,
        status => status.expect("check succeeds"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_of_another_deployment_is_not_trusted() {
    let (fixture, other) = (KeysFixture::open().await, KeysFixture::open().await);
    let (own_node, foreign_node) = (other.node(), fixture.node_at(&other.redis));
    assert_eq!(compare(&foreign_node).await, DeploymentStatus::Matching, "Redis has no marker yet");
    assert_eq!(check(&own_node).await, DeploymentStatus::Matching);
    assert_eq!(check(&foreign_node).await, DeploymentStatus::ForeignRedis);
    assert_eq!(compare(&foreign_node).await, DeploymentStatus::ForeignRedis);
    assert!(foreign_node.service.apply_outbox().await.is_ok(), "the outbox is empty");
    assert_eq!(fixture.sql("select count(*) from ledger_claims").await, "0");
    assert_eq!(check(&own_node).await, DeploymentStatus::Matching);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_records_from_before_a_restore_are_not_trusted() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();
    let [revoked, untouched] = [fixture.create_key().await, fixture.create_key().await];
    assert_eq!(check(&node).await, DeploymentStatus::Matching);
    assert!(is_admitted(&node.charge(&revoked).await) && is_admitted(&node.charge(&untouched).await));
    // The table is created again, as by `pg_restore --clean`. It has the key as deactivated, with the same generation.
    fixture
        .sql(
            "create table saved as select * from keys;
             drop table keys cascade;
             create table keys (like saved);
             insert into keys select * from saved;
             update keys set deactivated_at = now()",
        )
        .await;
    assert!(is_admitted(&node.charge(&revoked).await), "not noticed yet");
    assert_eq!(check(&node).await, DeploymentStatus::Matching);
    assert!(matches!(node.charge(&revoked).await, Verdict::Inactive(_)));
    assert!(matches!(node.charge(&untouched).await, Verdict::Inactive(_)));
    assert_in_effect(node.service.reactivate(Actor::Operator, untouched.id).await.expect("key is reactivated"));
    assert!(is_admitted(&node.charge(&untouched).await));
}
