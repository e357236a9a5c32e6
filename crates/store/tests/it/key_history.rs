//! The history of keys.

use ipseity_domain::{KeyId, PlaintextKey};
use ipseity_store::Actor;

use crate::fixture::{StoreFixture, key_name, pause, updated_record};

/// Actions and actors, newest first.
async fn history_entries(fixture: &StoreFixture, account_id: i64, key: KeyId) -> Vec<String> {
    let rows = fixture.store.audit_log().list_for_key(account_id, key, None, 100).await.expect("history is read");
    rows.iter().map(|row| format!("{} {}", row.action, row.actor)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_effective_change_is_recorded_once_in_history() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (key, other) = (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let (owner, operator) = (Actor::Owner(account.id), Actor::Operator);
    let rotated = PlaintextKey::rotate(key, || fastrand::u8(..)).to_api_key();
    for _ in 0..2 {
        store.keys().rename(owner, key, &key_name("another")).await.expect("key is renamed");
        store.keys().deactivate(operator, key).await.expect("key is deactivated");
    }
    for _ in 0..2 {
        store.keys().reactivate(owner, key).await.expect("key is reactivated");
        store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    }
    for _ in 0..2 {
        store.keys().resume(owner, key, false).await.expect("key is resumed");
    }
    store.keys().revoke_previous(owner, key).await.expect("revoking without a previous secret succeeds");
    store.keys().rotate(operator, &rotated, 60).await.expect("key is rotated");
    for _ in 0..2 {
        store.keys().revoke_previous(owner, key).await.expect("previous secret is revoked");
    }
    let expected = [
        "retired owner",
        "rolled operator",
        "resumed owner",
        "paused service",
        "reactivated owner",
        "deactivated operator",
        "renamed owner",
        "issued owner",
    ];
    assert_eq!(history_entries(&fixture, account.id, key).await, expected);
    assert_eq!(history_entries(&fixture, account.id, other).await, ["issued owner"]);

    let newest = store.audit_log().list_for_key(account.id, key, None, 4).await.expect("history is read");
    assert_eq!(newest.len(), 4);
    let older =
        store.audit_log().list_for_key(account.id, key, Some(newest[3].id), 100).await.expect("history is read");
    let actions: Vec<_> = older.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["reactivated", "deactivated", "renamed", "issued"]);
    assert_eq!(newest[3].at_s, 1_800_000_000, "a pause has its time and not the time of its row");

    store.keys().delete(owner, key).await.expect("account is deleted");
    assert_eq!(fixture.sql("select count(*) from history").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_keeps_generation_and_revoking_previous_raises_it() {
    let fixture = StoreFixture::open().await;
    let (store, key) = (&fixture.store, fixture.create_key().await);
    store.keys().rename(Actor::Operator, key.id, &key_name("another")).await.expect("key is renamed");
    assert_eq!(fixture.key_record(key.id).await.generation, 1);
    assert_eq!(fixture.outbox_rows().await, [""; 0]);
    assert_eq!(fixture.sql("select name from keys").await, "another");

    let rotated = PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key();
    store.keys().rotate(Actor::Operator, &rotated, 60).await.expect("key is rotated");
    let revoked = updated_record(
        store.keys().revoke_previous(Actor::Operator, key.id).await.expect("previous secret is revoked"),
    );
    assert_eq!((revoked.generation, revoked.previous, revoked.digest), (3, None, rotated.digest));
    assert_eq!(fixture.outbox_rows().await.len(), 2);
    let unchanged =
        updated_record(store.keys().revoke_previous(Actor::Operator, key.id).await.expect("repeated change succeeds"));
    assert_eq!(unchanged.generation, 3);
}
