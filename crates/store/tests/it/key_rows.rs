//! Keys as pages show them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::{ClearKey, DAY_S, Day, KeyId, State, Used};
use store::{By, RolledUp};

use crate::stage::{Stage, pause};

pub fn today() -> Day {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    Day(u32::try_from(since_1970.as_secs() / DAY_S).expect("a day"))
}

/// Waits out the last seconds of a day: a test that asks for today must not see two of them.
pub async fn far_from_midnight() -> Day {
    let calm =
        async || SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_secs() % DAY_S < DAY_S - 30);
    testkit::eventually("midnight has passed", Duration::from_secs(40), calm).await.expect("another day");
    today()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_tells_of_today_and_not_of_yesterday() {
    let stage = Stage::open().await;
    let (account, today) = (stage.account().await, far_from_midnight().await);
    let (used, idle) = (stage.key_of(&account).await.id, stage.key_of(&account).await.id);
    let count = |key, day, count| RolledUp { key, used: Used { day, count } };
    let counts = [count(used, today, 7), count(used, Day(today.0 - 1), 9), count(idle, Day(today.0 - 1), 5)];
    stage.store.roll_up(&counts).await.expect("a roll-up");
    let rows = stage.store.keys(account.id).await.expect("keys");
    let told: Vec<(KeyId, u64, i64)> =
        rows.iter().map(|row| (row.id, row.today, row.last_used.as_ref().map_or(0, |(_, count)| *count))).collect();
    assert_eq!(told, [(used, 7, 7), (idle, 0, 5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_shows_the_evidence_while_the_key_is_paused() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (key, other) = (stage.key_of(&account).await.id, stage.key_of(&account).await.id);
    let row = async || store.find_key(account.id, key).await.expect("an answer").expect("a key");
    assert_eq!(row().await.pause, None);

    store.record_pause(&pause(key, 1)).await.expect("a pause");
    store.resume(By::Operator, key).await.expect("a change");
    assert_eq!(row().await.pause, None, "a pause that is over is no evidence");
    let mut second = pause(key, 2);
    (second.at_ms, second.counts[0]) = (1_800_000_900_456, 17);
    store.record_pause(&second).await.expect("a pause");
    let paused = row().await;
    let evidence = paused.pause.expect("evidence");
    assert_eq!((paused.state, evidence.at_ms), (State::Paused, 1_800_000_900_456));
    assert_eq!((evidence.counts.len(), evidence.counts[0], evidence.counts[59]), (60, 17, 301));

    store.deactivate(By::Operator, key).await.expect("a change");
    let inactive = row().await;
    assert_eq!((inactive.state, inactive.pause.is_some()), (State::Inactive, true), "two facts, both shown");
    assert_eq!(store.find_key(account.id, other).await.expect("an answer").expect("a key").pause, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_tells_until_when_the_old_secret_holds_while_it_does() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let key = stage.key_of(&account).await.id;
    let until = async || store.find_key(account.id, key).await.expect("an answer").expect("a key").retired_until_s;
    assert_eq!(until().await, None);
    store.roll(By::Operator, &ClearKey::roll(key, || fastrand::u8(..)).key(), 3_600).await.expect("a change");
    let now_s = stage.sql("select floor(extract(epoch from now()))::bigint").await.parse::<i64>().expect("a time");
    assert!((now_s + 3_500..=now_s + 3_600).contains(&until().await.expect("a time")));
    stage.sql("update keys set retired_until = now() - interval '1 second'").await;
    assert_eq!(until().await, None);
}
