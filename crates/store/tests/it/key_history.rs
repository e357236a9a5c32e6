//! What happened to a key, when and by whom.

use ipseity_domain::{KeyId, PlaintextKey};
use ipseity_store::Actor;

use crate::fixture::{StoreFixture, key_name, pause, updated_record};

/// Acts and actors, newest first.
async fn history_entries(fixture: &StoreFixture, account_id: i64, key: KeyId) -> Vec<String> {
    let rows = fixture.store.audit_log().list_for_key(account_id, key, 100).await.expect("a history");
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
        store.keys().rename(owner, key, &key_name("another")).await.expect("a name");
        store.keys().deactivate(operator, key).await.expect("a change");
    }
    for _ in 0..2 {
        store.keys().reactivate(owner, key).await.expect("a change");
        store.keys().record_pause(&pause(key, 1)).await.expect("a pause");
    }
    for _ in 0..2 {
        store.keys().resume(owner, key).await.expect("a change");
    }
    store.keys().revoke_previous(owner, key).await.expect("nothing to retire");
    store.keys().rotate(operator, &rotated, 60).await.expect("a change");
    for _ in 0..2 {
        store.keys().revoke_previous(owner, key).await.expect("a change");
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

    let newest = store.audit_log().list_for_key(account.id, key, 4).await.expect("a history");
    assert_eq!(newest.len(), 4);
    assert_eq!(newest[3].at_s, 1_800_000_000, "a pause is told for when it was, not for when it was written");

    store.keys().delete(owner, key).await.expect("a deletion");
    assert_eq!(fixture.sql("select count(*) from history").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_keeps_generation_and_revoking_previous_raises_it() {
    let fixture = StoreFixture::open().await;
    let (store, key) = (&fixture.store, fixture.create_key().await);
    store.keys().rename(Actor::Operator, key.id, &key_name("another")).await.expect("a name");
    assert_eq!(fixture.key_record(key.id).await.generation, 1);
    assert_eq!(fixture.outbox_rows().await, [""; 0]);
    assert_eq!(fixture.sql("select name from keys").await, "another");

    let rotated = PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key();
    store.keys().rotate(Actor::Operator, &rotated, 60).await.expect("a change");
    let revoked = updated_record(store.keys().revoke_previous(Actor::Operator, key.id).await.expect("a change"));
    assert_eq!((revoked.generation, revoked.previous, revoked.digest), (3, None, rotated.digest));
    assert_eq!(fixture.outbox_rows().await.len(), 2);
    let unchanged = updated_record(store.keys().revoke_previous(Actor::Operator, key.id).await.expect("no change"));
    assert_eq!(unchanged.generation, 3);
}
