//! Owners and their keys: to an owner, the keys of others do not exist.

use domain::{ClearKey, Scope};
use store::{By, Refused};

use crate::stage::{Stage, mint, name, pause, refused};

/// Everything that PostgreSQL holds of keys, as text.
async fn all(stage: &Stage) -> String {
    let keys = stage.sql("select k::text from keys k order by id").await;
    let history = stage.sql("select h::text from history h order by id").await;
    format!("{keys}\n{history}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_neither_see_nor_change_a_strangers_key() {
    let stage = Stage::open().await;
    let (store, owner, stranger) = (&stage.store, stage.account().await, stage.account().await);
    let (active, troubled) = (stage.key_of(&owner).await.id, stage.key_of(&owner).await.id);
    let rolled = |id| ClearKey::roll(id, || fastrand::u8(..)).key();
    // Every change finds something to do on one of the two.
    store.roll(By::Operator, &rolled(troubled), 3_600).await.expect("a change");
    store.record_pause(&pause(troubled, 1)).await.expect("a pause");
    store.deactivate(By::Operator, troubled).await.expect("a change");
    let (before, announced) = (all(&stage).await, stage.outbox().await);

    let by = By::Owner(stranger.id);
    for id in [active, troubled, mint().id] {
        for outcome in [
            store.deactivate(by, id).await,
            store.reactivate(by, id).await,
            store.resume(by, id).await,
            store.retire(by, id).await,
            store.roll(by, &rolled(id), 60).await,
            store.delete(by, id).await,
        ] {
            assert_eq!(refused(outcome), Refused::UnknownKey);
        }
        assert_eq!(refused(store.rename(by, id, &name("mine")).await), Refused::UnknownKey);
        assert!(store.find_key(stranger.id, id).await.expect("an answer").is_none());
        assert_eq!(store.history(stranger.id, id, 10).await.expect("an answer"), []);
    }
    assert!(store.keys(stranger.id).await.expect("an answer").is_empty());
    assert_eq!(refused(store.issue(&owner, by, &name("x"), Scope::Ip, &mint()).await), Refused::UnknownAccount);
    assert_eq!((all(&stage).await, stage.outbox().await), (before, announced));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_change_a_key_in_every_way() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (by, key) = (By::Owner(account.id), stage.key_of(&account).await);
    store.record_pause(&pause(key.id, 1)).await.expect("a pause");
    store.resume(by, key.id).await.expect("a change");
    store.deactivate(by, key.id).await.expect("a change");
    store.reactivate(by, key.id).await.expect("a change");
    store.rename(by, key.id, &name("another")).await.expect("a name");
    store.roll(by, &ClearKey::roll(key.id, || fastrand::u8(..)).key(), 60).await.expect("a change");
    store.retire(by, key.id).await.expect("a change");
    assert_eq!(stage.standing(key.id).await.generation, 7);
    store.delete(by, key.id).await.expect("a deletion");
    assert!(store.find_standing(key.id).await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_gone_gets_no_key() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    stage.store.delete_account(account.id).await.expect("a deletion");
    let issued = stage.store.issue(&account, By::Owner(account.id), &name("x"), Scope::Ip, &mint()).await;
    assert_eq!(refused(issued), Refused::UnknownAccount);
}
