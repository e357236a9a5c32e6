//! Keys, as pages show them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipseity_domain::{DAY_S, DailyUsage, KeyId, KeyState, PlaintextKey, UtcDay};
use ipseity_store::{Actor, KeyDailyUsage};

use crate::fixture::{StoreFixture, pause};

pub fn today() -> UtcDay {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock is after 1970");
    UtcDay(u32::try_from(since_1970.as_secs() / DAY_S).expect("day parses"))
}

/// Waits until midnight if it is near, so that "today" is the same day throughout a test.
pub async fn wait_past_midnight() -> UtcDay {
    let is_clear =
        async || SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_secs() % DAY_S < DAY_S - 30);
    ipseity_testkit::eventually("midnight has passed", Duration::from_secs(40), is_clear)
        .await
        .expect("midnight passes in time");
    today()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_summary_counts_today_and_not_yesterday() {
    let fixture = StoreFixture::open().await;
    let (account, today) = (fixture.create_account().await, wait_past_midnight().await);
    let (used_key, idle_key) = (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let count = |key, day, count| KeyDailyUsage { key, usage: DailyUsage { day, count } };
    let counts =
        [count(used_key, today, 7), count(used_key, UtcDay(today.0 - 1), 9), count(idle_key, UtcDay(today.0 - 1), 5)];
    fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
    let rows = fixture.store.keys().list(account.id).await.expect("keys are listed");
    let summaries: Vec<(KeyId, u64, i64)> = rows
        .iter()
        .map(|row| (row.id, row.used_today, row.last_used.as_ref().map_or(0, |(_, count)| *count)))
        .collect();
    assert_eq!(summaries, [(used_key, 7, 7), (idle_key, 0, 5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_summary_shows_pause_evidence_while_paused() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (key, other) = (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let row = async || store.keys().find(account.id, key).await.expect("query succeeds").expect("key exists");
    assert_eq!(row().await.pause, None);

    store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    assert_eq!(row().await.pause, None, "the evidence of an ended pause is not shown");
    let mut second = pause(key, 2);
    (second.at_ms, second.counts[0]) = (1_800_000_900_456, 17);
    store.keys().record_pause(&second).await.expect("pause is recorded");
    let paused = row().await;
    let evidence = paused.pause.expect("evidence exists");
    assert_eq!((paused.state, evidence.paused_at_ms), (KeyState::Paused, 1_800_000_900_456));
    assert_eq!((evidence.counts.len(), evidence.counts[0], evidence.counts[59]), (60, 17, 301));

    store.keys().deactivate(Actor::Operator, key).await.expect("key is deactivated");
    let inactive = row().await;
    assert_eq!(
        (inactive.state, inactive.pause.is_some()),
        (KeyState::Inactive, true),
        "a key can be inactive and paused"
    );
    assert_eq!(store.keys().find(account.id, other).await.expect("query succeeds").expect("key exists").pause, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_summary_shows_previous_secret_expiry_while_valid() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let key = fixture.create_key_for(&account).await.id;
    let previous_until = async || {
        store.keys().find(account.id, key).await.expect("query succeeds").expect("key exists").previous_until_s
    };
    assert_eq!(previous_until().await, None);
    store
        .keys()
        .rotate(Actor::Operator, &PlaintextKey::rotate(key, || fastrand::u8(..)).to_api_key(), 3_600)
        .await
        .expect("key is rotated");
    let now_s =
        fixture.sql("select floor(extract(epoch from now()))::bigint").await.parse::<i64>().expect("time parses");
    assert!((now_s + 3_500..=now_s + 3_600).contains(&previous_until().await.expect("previous secret is valid")));
    fixture.sql("update keys set retired_until = now() - interval '1 second'").await;
    assert_eq!(previous_until().await, None);
}
