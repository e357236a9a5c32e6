//! The outbox: no change without its row, no row in two hands.

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
    assert_eq!(fixture.outbox_rows().await, [""; 0], "a new key is in no record yet");

    let store = &fixture.store;
    store.keys().deactivate(Actor::Operator, first.id).await.expect("a change");
    store.keys().deactivate(Actor::Operator, first.id).await.expect("no change");
    store.keys().reactivate(Actor::Operator, first.id).await.expect("a change");
    store.keys().record_pause(&pause(first.id, 1)).await.expect("a pause");
    store.keys().resume(Actor::Operator, first.id).await.expect("a change");
    let rotated = PlaintextKey::rotate(first.id, || fastrand::u8(..)).to_api_key();
    store.keys().rotate(Actor::Operator, &rotated, 60).await.expect("a change");
    let mut expected: Vec<String> = (2..=6).map(|generation| format!("{} {generation}", first.id)).collect();
    assert_eq!(fixture.outbox_rows().await, expected);

    store.keys().delete(Actor::Operator, first.id).await.expect("a deletion");
    fixture.sql(&format!("delete from accounts where id = {}", account.id)).await;
    expected.extend([format!("{} 7", first.id), format!("{} 2", second.id)]);
    assert_eq!(fixture.outbox_rows().await, expected);

    let mut claim = store.outbox().claim(100).await.expect("an answer").expect("a claim");
    let changes = claim.changes().await.expect("changes");
    assert!(changes.iter().all(|change| matches!(change, KeyChange::Deleted(_))), "{changes:?}");
    assert_eq!(changes.len(), 2, "one for each key");
    claim.ack().await.expect("an end");
    assert_eq!(fixture.outbox_rows().await, [""; 0]);
    assert!(store.outbox().claim(100).await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_claim_is_exclusive_and_released_on_drop() {
    let fixture = StoreFixture::open().await;
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let (first, second) = (fixture.create_key().await, fixture.create_key().await);
    fixture.store.keys().deactivate(Actor::Operator, first.id).await.expect("a change");
    fixture.store.keys().deactivate(Actor::Operator, second.id).await.expect("a change");

    let mut claim = fixture.store.outbox().claim(1).await.expect("an answer").expect("a claim");
    let mut other_claim = other.outbox().claim(10).await.expect("an answer").expect("a claim");
    assert!(other.outbox().claim(10).await.expect("an answer").is_none());
    let [change] = claim.changes().await.expect("changes").try_into().expect("one change");
    assert_eq!(updated_record(change).id, first.id);

    // Read when it is asked for, not when it was claimed.
    fixture.store.keys().reactivate(Actor::Operator, second.id).await.expect("a change");
    let [change] = other_claim.changes().await.expect("changes").try_into().expect("one change");
    let change = updated_record(change);
    assert_eq!((change.id, change.generation, change.flags.deactivated), (second.id, 3, false));

    drop(claim);
    other_claim.ack().await.expect("an end");
    eventually("the dropped claim is back", Duration::from_secs(10), async || {
        let found = other.outbox().claim(10).await.expect("an answer");
        match found {
            Some(mut claim) => claim.changes().await.expect("changes").len() == 2,
            None => false,
        }
    })
    .await
    .expect("both rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn ack_removes_outbox_rows_up_to_the_given_generation() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let (key, other) = (fixture.create_key().await, fixture.create_key().await);
    store.keys().deactivate(Actor::Operator, other.id).await.expect("a change");
    store.keys().deactivate(Actor::Operator, key.id).await.expect("a change");
    let second = store.keys().reactivate(Actor::Operator, key.id).await.expect("a change");
    store.keys().deactivate(Actor::Operator, key.id).await.expect("a change");
    store.outbox().ack(&second).await.expect("an answer");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 2", other.id), format!("{} 4", key.id)]);

    // What a relay holds is the relay's: nobody waits for it.
    let claim = store.outbox().claim(1).await.expect("an answer").expect("a claim");
    let deleted = store.keys().delete(Actor::Operator, other.id).await.expect("a deletion");
    store.outbox().ack(&deleted).await.expect("an answer");
    claim.ack().await.expect("an end");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 4", key.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_listener_wakes_on_change_and_after_reconnect() {
    let mut fixture = StoreFixture::open().await;
    let key = fixture.create_key().await;
    let mut listener =
        open_store(&fixture.postgres, Duration::from_secs(2)).outbox().listen().await.expect("a listener");
    let start = Instant::now();
    listener.wait(Duration::from_millis(50)).await.expect("patience");
    assert!(start.elapsed() >= Duration::from_millis(50), "woken by nothing");

    fixture.store.keys().deactivate(Actor::Operator, key.id).await.expect("a change");
    let start = Instant::now();
    listener.wait(TEST_TIMEOUT).await.expect("a wake");
    assert!(start.elapsed() < TEST_TIMEOUT, "not woken");

    fixture.postgres.kill9();
    listener.wait(TEST_TIMEOUT).await.expect("a wake, for what may have been missed");
    assert!(listener.wait(TEST_TIMEOUT).await.is_err(), "nobody to listen to");
    fixture.postgres.restart().await.expect("a server that comes back");
    listener.wait(TEST_TIMEOUT).await.expect("a wake, for what may have been missed since");
    let is_available = async || fixture.store.check().await.is_ok();
    eventually("the store heals", TEST_TIMEOUT, is_available).await.expect("an answer");
    fixture.store.keys().reactivate(Actor::Operator, key.id).await.expect("a change");
    let start = Instant::now();
    listener.wait(TEST_TIMEOUT).await.expect("a wake");
    assert!(start.elapsed() < TEST_TIMEOUT, "not woken");
}
