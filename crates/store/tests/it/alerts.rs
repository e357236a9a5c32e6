//! Alerts: one for each pause, and at most one of each other kind per key per day, if the owner has enabled it.

use ipseity_domain::{DailyUsage, KeyId, Limits, Plan, UtcDay};
use ipseity_store::{Account, Actor, AlertKind, AlertPreferences, KeyDailyUsage};

use crate::fixture::{StoreFixture, TEST_TIMEOUT, open_store, pause};
use crate::key_summaries::wait_past_midnight;

/// A plan with seven requests per day. Four fifths are 5.6, so the alert is due at six.
async fn create_small_plan_account(fixture: &StoreFixture) -> Account {
    let plan = Plan { name: "small".to_owned(), limits: Limits { daily_limit: 7, ..Limits::SPECIFIED } };
    let _exists_already = fixture.store.plans().create(&plan).await;
    let account = fixture.create_account().await;
    fixture.store.accounts().set_plan(&account, "small").await.expect("plan is set");
    account
}

async fn merge_count(fixture: &StoreFixture, key: KeyId, day: UtcDay, count: u64) {
    fixture
        .store
        .usage()
        .merge_counts(&[KeyDailyUsage { key, usage: DailyUsage { day, count } }])
        .await
        .expect("usage is merged");
}

/// The kind and day (since 1970) of all alerts.
async fn alert_rows(fixture: &StoreFixture) -> Vec<String> {
    let rows = "select kind || ' ' || day - date '1970-01-01' from alerts order by day, kind";
    fixture.sql(rows).await.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_is_raised_once_near_and_at_the_daily_limit() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let (key, large_plan_key) = (fixture.create_key_for(&account).await.id, fixture.create_key().await.id);
    let UtcDay(day) = today;
    for (count, expected) in [(5, vec![]), (6, vec![format!("near {day}")])] {
        merge_count(&fixture, key, today, count).await;
        merge_count(&fixture, large_plan_key, today, count * 1_000).await;
        assert_eq!(alert_rows(&fixture).await, expected, "{count} of 7");
    }
    for count in [7, 7, 8] {
        merge_count(&fixture, key, today, count).await;
        assert_eq!(alert_rows(&fixture).await, [format!("near {day}"), format!("spent {day}")]);
    }
    merge_count(&fixture, large_plan_key, today, 8_000).await;
    assert_eq!(fixture.sql(&format!("select kind from alerts where key_id = '{large_plan_key}'")).await, "near");
    fixture.sql("delete from alerts").await;
    merge_count(&fixture, key, today, 7).await;
    assert_eq!(alert_rows(&fixture).await, [""; 0], "an unchanged count creates no alert");

    for (other, is_raised) in [(day - 2, false), (day - 1, true), (day + 1, false)] {
        merge_count(&fixture, key, UtcDay(other), 6).await;
        assert_eq!(alert_rows(&fixture).await.contains(&format!("near {other}")), is_raised, "{other} on {day}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_alerts_are_neither_raised_nor_claimed() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let key = fixture.create_key_for(&account).await.id;
    let none = AlertPreferences { near_quota: false, quota_exhausted: false, paused: false };
    fixture.store.accounts().set_alert_preferences(account.id, none).await.expect("preferences are stored");
    let _other_account = fixture.create_account().await;
    merge_count(&fixture, key, today, 7).await;
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    assert_eq!(alert_rows(&fixture).await, [""; 0]);

    let all = AlertPreferences { near_quota: true, quota_exhausted: true, paused: true };
    fixture.store.accounts().set_alert_preferences(account.id, all).await.expect("preferences are stored");
    merge_count(&fixture, key, today, 8).await;
    fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    fixture.store.keys().record_pause(&pause(key, 2)).await.expect("pause is recorded");
    let kinds = [AlertKind::NearQuota, AlertKind::QuotaExhausted, AlertKind::Paused];
    for (kind, preferences) in kinds.into_iter().zip([
        AlertPreferences { near_quota: true, ..none },
        AlertPreferences { quota_exhausted: true, ..none },
        AlertPreferences { paused: true, ..none },
    ]) {
        fixture.store.accounts().set_alert_preferences(account.id, preferences).await.expect("preferences are stored");
        let alert = fixture.store.alert_queue().claim_next().await.expect("claim succeeds").expect("an alert is due");
        assert_eq!(alert.kind, kind);
        assert!(
            fixture.store.alert_queue().claim_next().await.expect("claim succeeds").is_none(),
            "the other kinds are disabled"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_is_raised_for_each_pause() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    for burst_epoch in 1..=3 {
        let mut pause = pause(key, burst_epoch);
        // 2027-01-15, 08:00. The third is a day later.
        pause.at_ms += if burst_epoch == 3 { 86_400_000 } else { burst_epoch };
        fixture.store.keys().record_pause(&pause).await.expect("pause is recorded");
        fixture.store.keys().record_pause(&pause).await.expect("duplicate is ignored");
        fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    }
    assert_eq!(alert_rows(&fixture).await, ["paused 20833", "paused 20833", "paused 20834"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_alerts_of_a_key_are_claimed_a_minute_apart() {
    let fixture = StoreFixture::open().await;
    let (key, other) = (fixture.create_key().await.id, fixture.create_key().await.id);
    for burst_epoch in 1..=2 {
        fixture.store.keys().record_pause(&pause(key, burst_epoch)).await.expect("pause is recorded");
        fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    }
    let queue = fixture.store.alert_queue();
    let claim = async || queue.claim_next().await.expect("claim succeeds").map(|alert| (alert.key, alert.burst_epoch));
    let first = queue.claim_next().await.expect("claim succeeds").expect("an alert is due");
    assert_eq!((first.key, claim().await), (key, None), "the first may be on its way");
    fixture.store.keys().record_pause(&pause(other, 1)).await.expect("pause is recorded");
    assert_eq!(claim().await, Some((other, 1)), "another key does not wait");
    queue.mark_sent(&first).await.expect("row is marked");
    assert_eq!(claim().await, None);
    fixture.sql("update alerts set mailed_at = now() - interval '1 minute' where mailed_at is not null").await;
    assert_eq!(claim().await, Some((key, 3 - first.burst_epoch)));
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_claim_is_exclusive_and_retried_until_sent() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let key = fixture.create_key_for(&account).await.id;
    merge_count(&fixture, key, today, 6).await;
    merge_count(&fixture, key, UtcDay(today.0 - 1), 6).await;
    let make_due = async || fixture.sql("update alerts set try_at = now() where mailed_at is null").await;
    fixture
        .sql("update alerts set try_at = try_at - interval '1 second' where day = (now() at time zone 'utc')::date")
        .await;

    let first = fixture.store.alert_queue().claim_next().await.expect("claim succeeds").expect("an alert is due");
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let second = other.alert_queue().claim_next().await.expect("claim succeeds").expect("an alert is due");
    assert!(other.alert_queue().claim_next().await.expect("claim succeeds").is_none(), "each alert is claimed once");
    let day = fixture.sql("select (now() at time zone 'utc')::date").await;
    assert_eq!((first.key, first.key_name.as_str(), first.kind), (key, "a key", AlertKind::NearQuota));
    assert_eq!((first.day.as_str(), first.used, first.limit), (day.as_str(), 6, 7));
    assert_eq!(first.email, account.email);

    fixture.store.alert_queue().mark_sent(&second).await.expect("row is marked");
    for _ in 0..7 {
        make_due().await;
        let retried = fixture.store.alert_queue().claim_next().await.expect("claim succeeds").expect("an alert is due");
        assert_eq!(retried.day, first.day, "the other was sent");
        assert!(fixture.store.alert_queue().claim_next().await.expect("claim succeeds").is_none(), "not due yet");
    }
    make_due().await;
    assert!(fixture.store.alert_queue().claim_next().await.expect("claim succeeds").is_none(), "no attempts are left");
    merge_count(&fixture, key, today, 6).await;
    assert_eq!(alert_rows(&fixture).await.len(), 2, "the alert is not created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn marking_an_alert_sent_affects_no_other_alert() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let (key, other) = (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let all = format!(
        "insert into alerts select key, day, kind from unnest(array['{key}', '{other}']) key,
         unnest(array['2026-11-15', '2026-11-16']::date[]) day, unnest(array['near', 'spent', 'paused']) kind"
    );
    fixture.sql(&all).await;
    let alert = fixture.store.alert_queue().claim_next().await.expect("claim succeeds").expect("an alert is due");
    fixture.store.alert_queue().mark_sent(&alert).await.expect("row is marked");
    let sent = fixture.sql("select key_id, day, kind from alerts where mailed_at is not null").await;
    assert_eq!(sent, format!("{}|{}|{}", alert.key, alert.day, alert.kind.name()));
}
