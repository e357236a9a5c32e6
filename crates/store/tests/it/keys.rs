//! Keys and their standing.

use std::time::{SystemTime, UNIX_EPOCH};

use domain::{Change, ClearKey, Day, Marks, Scope, State, Used};
use store::{By, Refused, RolledUp, StoreError};
use tokio::task::JoinSet;

use crate::stage::{Stage, mint, name, pause, standing_of};

#[tokio::test(flavor = "multi_thread")]
async fn an_account_holds_ten_keys_whoever_races() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    let mut race = JoinSet::new();
    for number in 0..40 {
        let (store, account) = (stage.store.clone(), account.clone());
        race.spawn(async move {
            store.issue(&account, By::Operator, &name(&format!("key {number}")), Scope::Ip, &mint()).await
        });
    }
    let outcomes = race.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    let refused = |outcome: &&Result<(), StoreError>| matches!(outcome, Err(StoreError::Refused(Refused::KeysSpent)));
    assert_eq!(outcomes.iter().filter(refused).count(), 30);

    let insert = |id: &str, seat| {
        format!(
            "insert into keys (id, account_id, seat, name, scope, digest)
             values ('{id}', {}, {seat}, 'x', 'ip', sha256('x'))",
            account.id
        )
    };
    assert!(stage.refusal(&insert("aaaaaaaaaa", 11)).await.contains("keys_seat_check"));
    assert!(stage.refusal(&insert("aaaaaaaaaa", 10)).await.contains("keys_account_id_seat_key"));

    let rows = stage.store.keys(account.id).await.expect("keys");
    let leaving = rows[3].id;
    assert!(
        matches!(stage.store.delete(By::Operator, leaving).await.expect("a change"), Change::Gone(id) if id == leaving)
    );
    stage.key_of(&account).await;
    assert_eq!(stage.store.keys(account.id).await.expect("keys").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn deactivation_and_pause_are_two_facts() {
    let stage = Stage::open().await;
    let (store, key) = (&stage.store, stage.key().await);
    let facts = |deactivated, paused| Marks { deactivated, paused };

    let same = standing_of(store.resume(By::Operator, key.id).await.expect("a change"));
    assert_eq!((same.generation, same.window), (1, 1), "a key that is not paused has nothing to resume");
    let same = standing_of(store.reactivate(By::Operator, key.id).await.expect("a change"));
    assert_eq!((same.marks, same.generation), (facts(false, false), 1));

    store.record_pause(&pause(key.id, 1)).await.expect("a pause");
    let inactive = standing_of(store.deactivate(By::Operator, key.id).await.expect("a change"));
    assert_eq!((inactive.marks, inactive.generation, inactive.window), (facts(true, true), 3, 1));
    let again = standing_of(store.deactivate(By::Operator, key.id).await.expect("a change"));
    assert_eq!(again.generation, 3, "what is so already is no change");
    let reactivated = standing_of(store.reactivate(By::Operator, key.id).await.expect("a change"));
    assert_eq!((reactivated.marks.state(), reactivated.window), (State::Paused, 1));
    let resumed = standing_of(store.resume(By::Operator, key.id).await.expect("a change"));
    assert_eq!((resumed.marks.state(), resumed.generation, resumed.window), (State::Active, 5, 2));

    store.deactivate(By::Operator, key.id).await.expect("a change");
    store.record_pause(&pause(key.id, 2)).await.expect("a pause");
    let resumed = standing_of(store.resume(By::Operator, key.id).await.expect("a change"));
    assert_eq!(resumed.marks.state(), State::Inactive, "a resume does not reactivate");
    assert_eq!(stage.standing(key.id).await, resumed);

    let unknown = mint();
    for outcome in [
        store.deactivate(By::Operator, unknown.id).await,
        store.reactivate(By::Operator, unknown.id).await,
        store.resume(By::Operator, unknown.id).await,
        store.roll(By::Operator, &unknown, 60).await,
        store.delete(By::Operator, unknown.id).await,
    ] {
        assert!(matches!(outcome, Err(StoreError::Refused(Refused::UnknownKey))), "{outcome:?}");
    }
    assert!(store.find_standing(unknown.id).await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_key_keeps_its_old_digest_for_a_while_or_not_at_all() {
    let stage = Stage::open().await;
    let old = stage.key().await;
    let roll = || ClearKey::roll(old.id, || fastrand::u8(..)).key();
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();

    let (first, before_s) = (roll(), now_s());
    let rolled = standing_of(stage.store.roll(By::Operator, &first, 60).await.expect("a change"));
    let retired = rolled.retired.expect("a retired digest");
    assert_eq!((rolled.digest, retired.digest, rolled.generation), (first.digest, old.digest, 2));
    assert!((before_s + 60..=now_s() + 60).contains(&retired.until_s));

    let second = roll();
    let rolled = standing_of(stage.store.roll(By::Operator, &second, 60).await.expect("a change"));
    assert_eq!(rolled.retired.map(|retired| retired.digest), Some(first.digest), "only the last one");

    let leaked_once = roll();
    let rolled = standing_of(stage.store.roll(By::Operator, &leaked_once, 0).await.expect("a change"));
    assert_eq!((rolled.digest, rolled.retired), (leaked_once.digest, None), "no overlap, no old digest");
    assert_eq!(stage.standing(old.id).await, rolled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_and_a_list_tell_the_newest_usage() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    let key = stage.key_of(&account).await;
    assert_eq!(stage.standing(key.id).await.used, None);
    let days = [(20_400, 7), (20_402, 3), (20_401, 9)];
    let counts = days.map(|(day, count)| RolledUp { key: key.id, used: Used { day: Day(day), count } });
    stage.store.roll_up(&counts).await.expect("a roll-up");
    assert_eq!(stage.standing(key.id).await.used, Some(Used { day: Day(20_402), count: 3 }));

    stage.store.deactivate(By::Operator, key.id).await.expect("a change");
    let [row] = stage.store.keys(account.id).await.expect("keys").try_into().expect("one key");
    assert_eq!((row.id, row.name.as_str(), row.scope), (key.id, "a key", Scope::Geo));
    assert_eq!((row.state, row.last_used), (State::Inactive, Some(("2025-11-10".to_owned(), 3))));
}
