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
    let options = StoreOptions { url, application_name: "test", connections_max: 1, timeout: TEST_TIMEOUT };
    let restored = identity(&Store::new(&options).expect("options are valid")).await;
    assert_eq!(restored.deployment_id, original.deployment_id);
    assert_ne!(restored.fingerprint, original.fingerprint, "other oids");
}

#[tokio::test(flavor = "multi_thread")]
async fn role_with_row_privileges_can_read_the_identity() {
    let fixture = StoreFixture::open().await;
    fixture
        .sql("create role clerk login; grant select, insert, update, delete on all tables in schema public to clerk")
        .await;
    let restricted_store = fixture.store_as("clerk");
    assert_eq!(identity(&restricted_store).await, identity(&fixture.store).await);
    let node = Uuid::from_u128(1);
    assert!(restricted_store.deployment().claim_ledger(node, "a").await.expect("claim succeeds"));
    restricted_store.deployment().release_ledger(node).await.expect("claim is deleted");

    fixture.sql("revoke execute on function pg_control_system() from public").await;
    let refused = restricted_store.deployment().identity().await.expect_err("the function is not permitted");
    assert!(matches!(refused, StoreError::Fault(_)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_can_only_claim_the_same_ledger() {
    let fixture = StoreFixture::open().await;
    let deployment = fixture.store.deployment();
    let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
    let claim = async |node, ledger| deployment.claim_ledger(node, ledger).await.expect("query succeeds");
    let is_other_claimed = async |ledger| deployment.is_other_ledger_claimed(ledger).await.expect("query succeeds");
    assert!(claim(first, "a").await);
    assert!(claim(second, "a").await);
    assert!(!claim(third, "b").await);
    assert!(claim(first, "a").await, "a refused claim does not count");
    assert!(is_other_claimed("b").await && !is_other_claimed("a").await);

    // The first node moves to another data set. It succeeds when no other node uses the previous one.
    assert!(!claim(first, "b").await);
    deployment.release_ledger(second).await.expect("claim is deleted");
    assert!(claim(first, "b").await);
    assert!(!claim(second, "a").await);
    fixture.sql("update ledger_claims set seen_at = seen_at - interval '9 seconds'").await;
    assert!(!claim(second, "a").await, "the claim is recent");
    fixture.sql("update ledger_claims set seen_at = seen_at - interval '2 seconds'").await;
    assert!(claim(second, "a").await, "the claim has expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_claims_on_different_ledgers_one_succeeds() {
    let fixture = StoreFixture::open().await;
    for round in 0..20 {
        fixture.sql("delete from ledger_claims").await;
        let deployment = fixture.store.deployment();
        let (one, two) = tokio::join!(
            deployment.claim_ledger(Uuid::from_u128(1), "a"),
            deployment.claim_ledger(Uuid::from_u128(2), "b")
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
            blocked.deployment().claim_ledger(Uuid::from_u128(1), "a").await
        }
    );
    assert!(matches!(outcome.1, Err(StoreError::Outage(_))), "a claim waits no longer than the timeout");
}
