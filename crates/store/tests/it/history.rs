//! What happened to a key, when and by whom.

use domain::{ClearKey, KeyId};
use store::By;

use crate::stage::{Stage, name, pause, standing_of};

/// Acts and actors, newest first.
async fn told(stage: &Stage, account_id: i64, key: KeyId) -> Vec<String> {
    let rows = stage.store.history(account_id, key, 100).await.expect("a history");
    rows.iter().map(|row| format!("{} {}", row.act, row.actor)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_told_once_and_what_is_so_already_is_not_told() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (key, other) = (stage.key_of(&account).await.id, stage.key_of(&account).await.id);
    let (owner, operator) = (By::Owner(account.id), By::Operator);
    let rolled = ClearKey::roll(key, || fastrand::u8(..)).key();
    for _ in 0..2 {
        store.rename(owner, key, &name("another")).await.expect("a name");
        store.deactivate(operator, key).await.expect("a change");
    }
    for _ in 0..2 {
        store.reactivate(owner, key).await.expect("a change");
        store.record_pause(&pause(key, 1)).await.expect("a pause");
    }
    for _ in 0..2 {
        store.resume(owner, key).await.expect("a change");
    }
    store.retire(owner, key).await.expect("nothing to retire");
    store.roll(operator, &rolled, 60).await.expect("a change");
    for _ in 0..2 {
        store.retire(owner, key).await.expect("a change");
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
    assert_eq!(told(&stage, account.id, key).await, expected);
    assert_eq!(told(&stage, account.id, other).await, ["issued owner"]);

    let newest = store.history(account.id, key, 4).await.expect("a history");
    assert_eq!(newest.len(), 4);
    assert_eq!(newest[3].at_s, 1_800_000_000, "a pause is told for when it was, not for when it was written");

    store.delete(owner, key).await.expect("a deletion");
    assert_eq!(stage.sql("select count(*) from history").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_is_no_new_standing_and_a_retired_secret_is() {
    let stage = Stage::open().await;
    let (store, key) = (&stage.store, stage.key().await);
    store.rename(By::Operator, key.id, &name("another")).await.expect("a name");
    assert_eq!(stage.standing(key.id).await.generation, 1);
    assert_eq!(stage.outbox().await, [""; 0]);
    assert_eq!(stage.sql("select name from keys").await, "another");

    let rolled = ClearKey::roll(key.id, || fastrand::u8(..)).key();
    store.roll(By::Operator, &rolled, 60).await.expect("a change");
    let retired = standing_of(store.retire(By::Operator, key.id).await.expect("a change"));
    assert_eq!((retired.generation, retired.retired, retired.digest), (3, None, rolled.digest));
    assert_eq!(stage.outbox().await.len(), 2);
    let same = standing_of(store.retire(By::Operator, key.id).await.expect("no change"));
    assert_eq!(same.generation, 3);
}
