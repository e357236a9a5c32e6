//! The outbox: every change has a row, and no process blocks another.

use std::time::{Duration, Instant};

use ipseity_domain::{KeyChange, PlaintextKey, UtcDay};
use ipseity_store::{Actor, RefusalCount, RefusalReason};
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
    store.keys().resume(Actor::Operator, first.id, false).await.expect("key is resumed");
    let rotated = PlaintextKey::rotate(first.id, || fastrand::u8(..)).to_api_key();
    store.keys().rotate(Actor::Operator, &rotated, 60).await.expect("key is rotated");
    let mut expected: Vec<String> = (2..=6).map(|generation| format!("{} {generation}", first.id)).collect();
    assert_eq!(fixture.outbox_rows().await, expected);

    store.keys().delete(Actor::Operator, first.id).await.expect("account is deleted");
    fixture.sql(&format!("delete from accounts where id = {}", account.id)).await;
    expected.extend([format!("{} 7", first.id), format!("{} 2", second.id)]);
    assert_eq!(fixture.outbox_rows().await, expected);

    let rows = store.outbox().list(0, 100).await.expect("rows are listed");
    assert_eq!(rows.len(), expected.len());
    for key in [first.id, second.id] {
        let change = store.keys().find_change(key).await.expect("query succeeds");
        assert_eq!(change, KeyChange::Deleted(key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_can_apply_and_remove_the_same_rows() {
    let fixture = StoreFixture::open().await;
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let (first, second) = (fixture.create_key().await, fixture.create_key().await);
    fixture.store.keys().deactivate(Actor::Operator, first.id).await.expect("key is deactivated");
    fixture.store.keys().deactivate(Actor::Operator, second.id).await.expect("key is deactivated");
    let rows = fixture.store.outbox().list(0, 100).await.expect("rows are listed");
    assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), [first.id, second.id]);
    assert_eq!(other.outbox().list(0, 100).await.expect("rows are listed"), rows, "rows are not locked");
    assert_eq!(other.outbox().list(rows[0].id, 100).await.expect("rows are listed"), rows[1..]);
    assert_eq!(other.outbox().list(0, 1).await.expect("rows are listed"), rows[..1]);

    // The state is the current one, not that of the row.
    fixture.store.keys().reactivate(Actor::Operator, second.id).await.expect("key is reactivated");
    let change = updated_record(other.keys().find_change(second.id).await.expect("query succeeds"));
    assert_eq!((change.id, change.generation, change.flags.deactivated), (second.id, 3, false));

    // A row that was added after the list stays.
    let row_ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let (one, two) = tokio::join!(fixture.store.outbox().remove(&row_ids, None), other.outbox().remove(&row_ids, None));
    one.and(two).expect("rows are removed");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 3", second.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_a_frozen_process_ends_with_its_transaction() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    let refusal = RefusalCount { key, day: UtcDay(20_400), reason: RefusalReason::Burst, count: 1 };
    let frozen_store = open_store(&fixture.postgres, TEST_TIMEOUT);
    let refusals = [refusal];
    let add_refusals = || Box::pin(frozen_store.usage().add_refusals(&refusals));
    let mut call = add_refusals();
    let open_transactions = "select count(*) from pg_stat_activity where application_name = 'test'
                             and state = 'idle in transaction'";
    // The call makes no progress while it is not polled, like that of a stopped process. On a busy machine it may end first.
    while fixture.sql(open_transactions).await == "0" {
        tokio::select! {
            outcome = &mut call => {
                outcome.expect("refusals are added");
                call = add_refusals();
            }
            () = tokio::time::sleep(Duration::from_micros(100)) => {}
        }
    }
    let is_ended = async || fixture.sql(open_transactions).await == "0";
    eventually("PostgreSQL ends the session", TEST_TIMEOUT, is_ended).await.expect("session ends in time");
    call.await.expect_err("the connection is closed");
    add_refusals().await.expect("the pool opens another connection");
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
    store.outbox().ack(&second, Some("another")).await.expect("query succeeds");
    assert_eq!(fixture.outbox_rows().await.len(), 4, "nodes do not use that data set");
    store.outbox().ack(&second, None).await.expect("outbox row is removed");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 2", other.id), format!("{} 4", key.id)]);

    let deleted = store.keys().delete(Actor::Operator, other.id).await.expect("key is deleted");
    store.outbox().ack(&deleted, None).await.expect("outbox row is removed");
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
