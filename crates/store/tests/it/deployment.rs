//! The identity of the deployment, and the claims of its nodes on Redis data sets.

use std::time::Duration;

use ipseity_store::{Store, StoreError, StoreIdentity, StoreOptions};
use ipseity_testkit::eventually;
use uuid::Uuid;

use crate::fixture::{DATABASE, StoreFixture, TEST_TIMEOUT, open_store};

async fn identity(store: &Store) -> StoreIdentity {
    store.deployment().identity().await.expect("identity is read")
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_is_stable_until_a_dump_is_restored() {
    let mut fixture = StoreFixture::open().await;
    let original = identity(&fixture.store).await;
    assert_eq!((original.deployment_id.len(), original.fingerprint.len()), (36, 8));
    fixture.store.migrate().await.expect("repeated migration succeeds");
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    let is_available = async || fixture.store.check().await.is_ok();
    eventually("the store recovers", TEST_TIMEOUT, is_available).await.expect("store recovers");
    assert_eq!(identity(&open_store(&fixture.postgres, TEST_TIMEOUT)).await, original);

    let dump = fixture.postgres.dir().join("dump");
    fixture.postgres.back_up(DATABASE, &dump).await.expect("dump succeeds");
    fixture.postgres.restore("restored", &dump).await.expect("restore succeeds");
    let url = fixture.postgres.url("restored");
    let options = StoreOptions {
        url,
        application_name: "test",
        operator: None,
        token: None,
        connections_max: 1,
        timeout: TEST_TIMEOUT,
    };
    let restored = identity(&Store::new(&options).expect("options are valid")).await;
    assert_eq!(restored.deployment_id, original.deployment_id);
    assert_ne!(restored.fingerprint, original.fingerprint, "other oids");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_role_can_claim_a_data_set() {
    let fixture = StoreFixture::open().await;
    let restricted_store = fixture.node_store().await;
    assert_eq!(identity(&restricted_store).await, identity(&fixture.store).await);
    let node = Uuid::from_u128(1);
    assert!(restricted_store.deployment().claim_data_set(node, "a").await.expect("claim succeeds"));
    restricted_store.deployment().release_data_set(node).await.expect("claim is deleted");

    fixture.sql("revoke execute on function pg_control_system() from public").await;
    let refused = restricted_store.deployment().identity().await.expect_err("the function is not permitted");
    assert!(matches!(refused, StoreError::Fault(_)), "{refused:?}");
}

/// Three nodes of one deployment.
const NODES: [Uuid; 3] = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];

async fn claim(fixture: &StoreFixture, node: Uuid, data_set: &str) -> bool {
    fixture.store.deployment().claim_data_set(node, data_set).await.expect("query succeeds")
}

/// Lets time pass for the claims.
async fn pass_time(fixture: &StoreFixture, s: u32) {
    let sql = format!(
        "update ledger_claims set since = since - interval '{s} s', seen_at = seen_at - interval '{s} s';
         update deployment set released_at = released_at - interval '{s} s'"
    );
    fixture.sql(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_can_only_claim_the_same_data_set() {
    let fixture = StoreFixture::open().await;
    let [first, second, third] = NODES;
    let is_claimed =
        async |data_set| fixture.store.deployment().is_data_set_claimed(data_set).await.expect("query succeeds");
    assert!(claim(&fixture, first, "a").await);
    assert!(claim(&fixture, second, "a").await);
    assert!(!claim(&fixture, third, "b").await);
    assert!(claim(&fixture, first, "a").await, "a refused claim does not count");
    assert!(is_claimed("a").await);

    // All nodes find another data set, for example after a restart of Redis.
    assert!(!claim(&fixture, first, "c").await, "the second node has not noticed");
    assert!(claim(&fixture, second, "c").await, "the third is not a holder");
    assert!(claim(&fixture, first, "c").await);
    assert!(!claim(&fixture, third, "b").await);
    assert!(!is_claimed("a").await);
    pass_time(&fixture, 9).await;
    assert!(!claim(&fixture, third, "b").await, "the claims are recent");
    pass_time(&fixture, 2).await;
    assert!(claim(&fixture, third, "b").await, "the claims have expired, and the node has asked for eleven seconds");
    assert!(!claim(&fixture, first, "c").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn fingerprint_changes_with_the_data_set() {
    let fixture = StoreFixture::open().await;
    let mut fingerprints = Vec::new();
    for data_set in ["a", "a", "b", "a"] {
        assert!(claim(&fixture, NODES[0], data_set).await);
        let identity = identity(&fixture.store).await;
        assert_eq!(identity.data_set_id.as_deref(), Some(data_set));
        fingerprints.push(identity.fingerprint);
    }
    assert_eq!(fingerprints[0], fingerprints[1], "the claim was refreshed");
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 3, "also if nodes return to an earlier data set");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_another_data_set_does_not_overtake_the_holders_after_an_outage() {
    let fixture = StoreFixture::open().await;
    let [holder, stray, _] = NODES;
    assert!(claim(&fixture, holder, "a").await);
    assert!(!claim(&fixture, stray, "b").await);
    pass_time(&fixture, 60).await;
    for _ in 0..3 {
        assert!(!claim(&fixture, stray, "b").await, "it has not asked for ten seconds");
        pass_time(&fixture, 3).await;
    }
    assert!(claim(&fixture, holder, "a").await);
    pass_time(&fixture, 3).await;
    assert!(!claim(&fixture, stray, "b").await, "the holder is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_another_data_set_waits_for_a_holder_that_restarts() {
    let fixture = StoreFixture::open().await;
    let [holder, stray, restarted] = NODES;
    assert!(claim(&fixture, holder, "a").await);
    assert!(!claim(&fixture, stray, "b").await);
    fixture.store.deployment().release_data_set(holder).await.expect("claim is deleted");
    assert!(!claim(&fixture, stray, "b").await);
    assert!(claim(&fixture, restarted, "a").await);
    assert!(!claim(&fixture, stray, "b").await);

    // A deployment that was stopped can start with another data set immediately.
    for node in [restarted, stray] {
        fixture.store.deployment().release_data_set(node).await.expect("claim is deleted");
    }
    assert!(claim(&fixture, holder, "c").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_from_a_clock_that_was_ahead_have_no_effect() {
    let fixture = StoreFixture::open().await;
    let [holder, moved, _] = NODES;
    assert!(claim(&fixture, holder, "a").await);
    fixture.sql("update ledger_claims set seen_at = seen_at + interval '1 hour'").await;
    assert!(!claim(&fixture, moved, "b").await);
    fixture.sql("update ledger_claims set since = since - interval '11 s' where data_set_id = 'b'").await;
    assert!(claim(&fixture, moved, "b").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_claims_on_different_data_sets_one_succeeds() {
    let fixture = StoreFixture::open().await;
    for round in 0..20 {
        fixture.sql("delete from ledger_claims; update deployment set data_set_id = null").await;
        let deployment = fixture.store.deployment();
        let (one, two) = tokio::join!(
            deployment.claim_data_set(Uuid::from_u128(1), "a"),
            deployment.claim_data_set(Uuid::from_u128(2), "b")
        );
        let claims = [one.expect("query succeeds"), two.expect("query succeeds")];
        assert_eq!(claims.into_iter().filter(|is_claimed| *is_claimed).count(), 1, "round {round}");
    }
    let blocked = open_store(&fixture.postgres, Duration::from_millis(500));
    let outcome = tokio::join!(
        fixture.sql("begin; select pg_advisory_xact_lock(hashtextextended('ipseity: ledger claims', 0)); select pg_sleep(2); commit"),
        async {
            let is_locked = async || fixture.sql("select count(*) from pg_locks where locktype = 'advisory'").await != "0";
            eventually("the lock is taken", TEST_TIMEOUT, is_locked).await.expect("lock is taken in time");
            blocked.deployment().claim_data_set(Uuid::from_u128(1), "a").await
        }
    );
    assert!(matches!(outcome.1, Err(StoreError::Outage(_))), "a claim waits no longer than the timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn most_holders_decide_after_ten_seconds() {
    let fixture = StoreFixture::open().await;
    for node in NODES {
        assert!(claim(&fixture, node, "a").await);
    }
    // Redis has restarted, and the last node reaches another one.
    let [first, second, misrouted] = NODES;
    for _ in 0..4 {
        for (node, data_set) in [(first, "b"), (second, "b"), (misrouted, "c")] {
            assert!(!claim(&fixture, node, data_set).await);
        }
        pass_time(&fixture, 3).await;
    }
    assert!(!claim(&fixture, misrouted, "c").await);
    assert!(claim(&fixture, first, "b").await);
    assert!(claim(&fixture, second, "b").await);
    assert!(!claim(&fixture, misrouted, "c").await);
}
