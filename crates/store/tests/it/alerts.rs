//! Alerts: one of a kind a key and day, if its owner wants it.

use domain::{Day, KeyId, Plan, Used};
use store::{Account, AlertKind, AlertSwitches, By, RolledUp};

use crate::key_rows::far_from_midnight;
use crate::stage::{PATIENCE, Stage, node, pause};

/// Seven requests a day: near are six, for four fifths are 5.6.
async fn small_account(stage: &Stage) -> Account {
    let plan = Plan { name: "small".to_owned(), daily_limit: 7 };
    let _known_already = stage.store.add_plan(&plan).await;
    let account = stage.account().await;
    stage.store.set_plan(&account, "small").await.expect("a plan");
    account
}

async fn used(stage: &Stage, key: KeyId, day: Day, count: u64) {
    stage.store.roll_up(&[RolledUp { key, used: Used { day, count } }]).await.expect("a roll-up");
}

/// Kinds and days since 1970 of all alerts.
async fn alerts(stage: &Stage) -> Vec<String> {
    let rows = "select kind || ' ' || day - date '1970-01-01' from alerts order by day, kind";
    stage.sql(rows).await.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_nears_or_reaches_its_limit_is_told_once() {
    let stage = Stage::open().await;
    let today = far_from_midnight().await;
    let account = small_account(&stage).await;
    let (key, rich) = (stage.key_of(&account).await.id, stage.key().await.id);
    let Day(day) = today;
    for (count, expected) in [(5, vec![]), (6, vec![format!("near {day}")])] {
        used(&stage, key, today, count).await;
        used(&stage, rich, today, count * 1_000).await;
        assert_eq!(alerts(&stage).await, expected, "{count} of 7");
    }
    for count in [7, 7, 8] {
        used(&stage, key, today, count).await;
        assert_eq!(alerts(&stage).await, [format!("near {day}"), format!("spent {day}")]);
    }
    used(&stage, rich, today, 8_000).await;
    assert_eq!(stage.sql(&format!("select kind from alerts where key_id = '{rich}'")).await, "near");
    stage.sql("delete from alerts").await;
    used(&stage, key, today, 7).await;
    assert_eq!(alerts(&stage).await, [""; 0], "a count that is no news raises nothing");

    for (other, is_told) in [(day - 2, false), (day - 1, true), (day + 1, false)] {
        used(&stage, key, Day(other), 6).await;
        assert_eq!(alerts(&stage).await.contains(&format!("near {other}")), is_told, "{other} on {day}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_switched_off_is_neither_raised_nor_mailed() {
    let stage = Stage::open().await;
    let today = far_from_midnight().await;
    let account = small_account(&stage).await;
    let key = stage.key_of(&account).await.id;
    let none = AlertSwitches { near: false, spent: false, paused: false };
    stage.store.set_alerts(account.id, none).await.expect("switches");
    let _others_want_all = stage.account().await;
    used(&stage, key, today, 7).await;
    stage.store.record_pause(&pause(key, 1)).await.expect("a pause");
    assert_eq!(alerts(&stage).await, [""; 0]);

    let all = AlertSwitches { near: true, spent: true, paused: true };
    stage.store.set_alerts(account.id, all).await.expect("switches");
    used(&stage, key, today, 8).await;
    stage.store.resume(By::Operator, key).await.expect("a change");
    stage.store.record_pause(&pause(key, 2)).await.expect("a pause");
    let kinds = [AlertKind::Near, AlertKind::Spent, AlertKind::Paused];
    for (kind, wanted) in kinds.into_iter().zip([
        AlertSwitches { near: true, ..none },
        AlertSwitches { spent: true, ..none },
        AlertSwitches { paused: true, ..none },
    ]) {
        stage.store.set_alerts(account.id, wanted).await.expect("switches");
        let alert = stage.store.next_alert().await.expect("an answer").expect("an alert");
        assert_eq!(alert.kind, kind);
        assert!(stage.store.next_alert().await.expect("an answer").is_none(), "the others are switched off");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_told_once_a_day() {
    let stage = Stage::open().await;
    let key = stage.key().await.id;
    for window in 1..=3 {
        let mut pause = pause(key, window);
        // 2027-01-15, 08:00; the third a day later.
        pause.at_ms += if window == 3 { 86_400_000 } else { window };
        stage.store.record_pause(&pause).await.expect("a pause");
        stage.store.record_pause(&pause).await.expect("a duplicate");
        stage.store.resume(By::Operator, key).await.expect("a change");
    }
    assert_eq!(alerts(&stage).await, ["paused 20833", "paused 20834"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_claimed_by_one_tried_again_and_done_when_sent() {
    let stage = Stage::open().await;
    let today = far_from_midnight().await;
    let account = small_account(&stage).await;
    let key = stage.key_of(&account).await.id;
    used(&stage, key, today, 6).await;
    used(&stage, key, Day(today.0 - 1), 6).await;
    let due_now = async || stage.sql("update alerts set try_at = now() where mailed_at is null").await;
    stage
        .sql("update alerts set try_at = try_at - interval '1 second' where day = (now() at time zone 'utc')::date")
        .await;

    let first = stage.store.next_alert().await.expect("an answer").expect("an alert");
    let other = node(&stage.postgres, PATIENCE);
    let second = other.next_alert().await.expect("an answer").expect("an alert");
    assert!(other.next_alert().await.expect("an answer").is_none(), "each is in one hand");
    let day = stage.sql("select (now() at time zone 'utc')::date").await;
    assert_eq!((first.key, first.key_name.as_str(), first.kind), (key, "a key", AlertKind::Near));
    assert_eq!((first.day.as_str(), first.used, first.limit), (day.as_str(), 6, 7));
    assert_eq!(first.email, account.email);

    stage.store.alert_sent(second.key, &second.day, second.kind).await.expect("an answer");
    for _ in 0..7 {
        due_now().await;
        let again = stage.store.next_alert().await.expect("an answer").expect("an alert");
        assert_eq!(again.day, first.day, "the other was sent");
        assert!(stage.store.next_alert().await.expect("an answer").is_none(), "not before its time");
    }
    due_now().await;
    assert!(stage.store.next_alert().await.expect("an answer").is_none(), "given up");
    used(&stage, key, today, 6).await;
    assert_eq!(alerts(&stage).await.len(), 2, "and not begun anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_was_sent_is_done_and_no_other_is() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    let (key, other) = (stage.key_of(&account).await.id, stage.key_of(&account).await.id);
    let all = format!(
        "insert into alerts select key, day, kind from unnest(array['{key}', '{other}']) key,
         unnest(array['2026-11-15', '2026-11-16']::date[]) day, unnest(array['near', 'spent', 'paused']) kind"
    );
    stage.sql(&all).await;
    stage.store.alert_sent(key, "2026-11-15", AlertKind::Spent).await.expect("an answer");
    let sent = stage.sql("select key_id, day, kind from alerts where mailed_at is not null").await;
    assert_eq!(sent, format!("{key}|2026-11-15|spent"));
}
