//! The outbox: every change has a row, and each row is claimed once.

use std::time::{Duration, Instant};

use ipseity_domain::{KeyChange, PlaintextKey};
use ipseity_store::Actor;
use ipseity_testkit::eventually;

use crate::fixture::{StoreFixture, TEST_TIMEOUT, open_store, pause, updated_record};

#[tokio::test(flavor = "multi_thread")]
async fn every_key_change_and_cascade_writes_an_outbox_row() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let (first, second) = (fixture.create_key_for(&account).await, fixture.create_key_for(&account).await);
    assert_eq!(fixture.outbox_rows().await, [""; 0], "a new key is not cached yet");

    let store = &fixture.store;
    store.keys().deactivate(Actor::Operator, first.id).await.expect("key is deactivated");
    store.keys().deactivate(Actor::Operator, first.id).await.expect("repeated change succeeds");
    store.keys().reactivate(Actor::Operator, first.id).await.expect("key is reactivated");
    store.keys().record_pause(&pause(first.id, 1)).await.expect("pause is recorded");
    store.keys().resume(Actor::Operator, first.id).await.expect("key is resumed");
    let rotated = PlaintextKey::rotate(first.id, || fastrand::u8(..)).to_api_key();
    store.keys().rotate(Actor::Operator, &rotated, 60).await.expect("key is rotated");
    let mut expected: Vec<String> = (2..=6).map(|generation| format!("{} {generation}", first.id)).collect();
    assert_eq!(fixture.outbox_rows().await, expected);

    store.keys().delete(Actor::Operator, first.id).await.expect("account is deleted");
    fixture.sql(&format!("delete from accounts where id = {}", account.id)).await;
    expected.extend([format!("{} 7", first.id), format!("{} 2", second.id)]);
    assert_eq!(fixture.outbox_rows().await, expected);

    let mut claim = store.outbox().claim(100).await.expect("rows are claimed").expect("outbox has rows");
    let changes = claim.changes().await.expect("records are read");
    assert!(changes.iter().all(|change| matches!(change, KeyChange::Deleted(_))), "{changes:?}");
    assert_eq!(changes.len(), 2, "one change per key");
    claim.ack().await.expect("batch is removed");
    assert_eq!(fixture.outbox_rows().await, [""; 0]);
    assert!(store.outbox().claim(100).await.expect("rows are claimed").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_claim_is_exclusive_and_released_on_drop() {
    let fixture = StoreFixture::open().await;
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let (first, second) = (fixture.create_key().await, fixture.create_key().await);
    fixture.store.keys().deactivate(Actor::Operator, first.id).await.expect("key is deactivated");
    fixture.store.keys().deactivate(Actor::Operator, second.id).await.expect("key is deactivated");

    let mut claim = fixture.store.outbox().claim(1).await.expect("rows are claimed").expect("outbox has rows");
    let mut other_claim = other.outbox().claim(10).await.expect("rows are claimed").expect("outbox has rows");
    assert!(other.outbox().claim(10).await.expect("rows are claimed").is_none());
    let [change] = claim.changes().await.expect("records are read").try_into().expect("exactly one change");
    assert_eq!(updated_record(change).id, first.id);

    // The record is read on request and not when it was claimed.
    fixture.store.keys().reactivate(Actor::Operator, second.id).await.expect("key is reactivated");
    let [change] = other_claim.changes().await.expect("records are read").try_into().expect("exactly one change");
    let change = updated_record(change);
    assert_eq!((change.id, change.generation, change.flags.deactivated), (second.id, 3, false));

    drop(claim);
    other_claim.ack().await.expect("batch is removed");
    eventually("the dropped claim is available again", Duration::from_secs(10), async || {
        let found = other.outbox().claim(10).await.expect("rows are claimed");
        match found {
            Some(mut claim) => claim.changes().await.expect("records are read").len() == 2,
            None => false,
        }
    })
    .await
    .expect("both rows appear in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn ack_removes_outbox_rows_up_to_the_given_generation() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let (key, other) = (fixture.create_key().await, fixture.create_key().await);
    store.keys().deactivate(Actor::Operator, other.id).await.expect("key is deactivated");
    store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    let second = store.keys().reactivate(Actor::Operator, key.id).await.expect("key is reactivated");
    store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    store.outbox().ack(&second).await.expect("outbox row is removed");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 2", other.id), format!("{} 4", key.id)]);

    // Claimed rows are skipped without waiting.
    let claim = store.outbox().claim(1).await.expect("rows are claimed").expect("outbox has rows");
    let deleted = store.keys().delete(Actor::Operator, other.id).await.expect("account is deleted");
    store.outbox().ack(&deleted).await.expect("outbox row is removed");
    claim.ack().await.expect("batch is removed");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 4", key.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_listener_wakes_on_change_and_after_reconnect() {
    let mut fixture = StoreFixture::open().await;
    let key = fixture.create_key().await;
    let mut listener =
        open_store(&fixture.postgres, Duration::from_secs(2)).outbox().listen().await.expect("listener connects");
    let start = Instant::now();
    listener.wait(Duration::from_millis(50)).await.expect("timeout elapses");
    assert!(start.elapsed() >= Duration::from_millis(50), "woken without a reason");

    fixture.store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    let start = Instant::now();
    listener.wait(TEST_TIMEOUT).await.expect("notification arrives");
    assert!(start.elapsed() < TEST_TIMEOUT, "not woken in time");

    fixture.postgres.kill9();
    listener.wait(TEST_TIMEOUT).await.expect("lost connection wakes the listener");
    assert!(listener.wait(TEST_TIMEOUT).await.is_err(), "PostgreSQL is stopped");
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    listener.wait(TEST_TIMEOUT).await.expect("new connection wakes the listener");
    let is_available = async || fixture.store.check().await.is_ok();
    eventually("the store recovers", TEST_TIMEOUT, is_available).await.expect("condition holds in time");
    fixture.store.keys().reactivate(Actor::Operator, key.id).await.expect("key is reactivated");
    let start = Instant::now();
    listener.wait(TEST_TIMEOUT).await.expect("notification arrives");
    assert!(start.elapsed() < TEST_TIMEOUT, "not woken in time");
}
