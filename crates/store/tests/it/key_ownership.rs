//! Ownership of keys: for an owner, the keys of others do not exist.

use ipseity_domain::{PlaintextKey, Restrictions, Scope};
use ipseity_store::{Actor, StoreRefusal};

use crate::fixture::{StoreFixture, expect_refusal, generate_key, key_name, pause};

/// All rows about keys, as text.
async fn dump_keys_and_history(fixture: &StoreFixture) -> String {
    let keys = fixture.sql("select k::text from keys k order by id").await;
    let history = fixture.sql("select h::text from history h order by id").await;
    format!("{keys}\n{history}")
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_cannot_see_or_change_keys_of_others() {
    let fixture = StoreFixture::open().await;
    let (store, owner, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let (active_key, paused_key) = (fixture.create_key_for(&owner).await.id, fixture.create_key_for(&owner).await.id);
    let rotated = |id| PlaintextKey::rotate(id, || fastrand::u8(..)).to_api_key();
    // Every change is possible on one of the two.
    store.keys().rotate(Actor::Operator, &rotated(paused_key), 3_600).await.expect("key is rotated");
    store.keys().record_pause(&pause(paused_key, 1)).await.expect("pause is recorded");
    store.keys().deactivate(Actor::Operator, paused_key).await.expect("key is deactivated");
    let (before, outbox_before) = (dump_keys_and_history(&fixture).await, fixture.outbox_rows().await);

    let actor = Actor::Owner(other.id);
    for id in [active_key, paused_key, generate_key().id] {
        for outcome in [
            store.keys().deactivate(actor, id).await,
            store.keys().reactivate(actor, id).await,
            store.keys().resume(actor, id, false).await,
            store.keys().revoke_previous(actor, id).await,
            store.keys().rotate(actor, &rotated(id), 60).await,
            store.keys().delete(actor, id).await,
        ] {
            assert_eq!(expect_refusal(outcome), StoreRefusal::UnknownKey);
        }
        assert_eq!(expect_refusal(store.keys().rename(actor, id, &key_name("mine")).await), StoreRefusal::UnknownKey);
        assert!(store.keys().find(other.id, id).await.expect("query succeeds").is_none());
        assert_eq!(store.audit_log().list_for_key(other.id, id, None, 10).await.expect("query succeeds"), []);
    }
    assert!(store.keys().list(other.id).await.expect("query succeeds").is_empty());
    assert_eq!(
        expect_refusal(
            store
                .keys()
                .create(&owner, actor, &key_name("x"), Scope::Ip, &generate_key(), &Restrictions::default())
                .await
        ),
        StoreRefusal::UnknownAccount
    );
    assert_eq!((dump_keys_and_history(&fixture).await, fixture.outbox_rows().await), (before, outbox_before));
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_can_make_every_key_change() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (actor, key) = (Actor::Owner(account.id), fixture.create_key_for(&account).await);
    store.keys().record_pause(&pause(key.id, 1)).await.expect("pause is recorded");
    store.keys().resume(actor, key.id, false).await.expect("key is resumed");
    store.keys().deactivate(actor, key.id).await.expect("key is deactivated");
    store.keys().reactivate(actor, key.id).await.expect("key is reactivated");
    store.keys().rename(actor, key.id, &key_name("another")).await.expect("key is renamed");
    store
        .keys()
        .rotate(actor, &PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key(), 60)
        .await
        .expect("key is rotated");
    store.keys().revoke_previous(actor, key.id).await.expect("previous secret is revoked");
    assert_eq!(fixture.key_record(key.id).await.generation, 7);
    store.keys().delete(actor, key.id).await.expect("account is deleted");
    assert!(store.keys().find_record(key.id).await.expect("query succeeds").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_gets_no_key() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    fixture.store.accounts().delete(account.id, None).await.expect("account is deleted");
    let issued = fixture
        .store
        .keys()
        .create(
            &account,
            Actor::Owner(account.id),
            &key_name("x"),
            Scope::Ip,
            &generate_key(),
            &Restrictions::default(),
        )
        .await;
    assert_eq!(expect_refusal(issued), StoreRefusal::UnknownAccount);
}
