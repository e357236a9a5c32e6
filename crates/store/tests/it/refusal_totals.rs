//! Refusals of all keys per day.

use ipseity_domain::DailyUsage;
use ipseity_domain::UtcDay;
use ipseity_store::{KeyDailyUsage, RefusalCount, RefusalReason, RetentionPolicy};
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, generate_key};

async fn today(fixture: &StoreFixture) -> UtcDay {
    let day = fixture.sql("select (now() at time zone 'UTC')::date - date '1970-01-01'").await;
    UtcDay(day.parse().expect("day is a number"))
}

/// The sums of both tables must agree.
const SUMS: &str = "select coalesce(sum(count), 0) from";

#[tokio::test(flavor = "multi_thread")]
async fn totals_of_concurrent_flushes_are_exact() {
    let fixture = StoreFixture::open().await;
    let store = fixture.node_store().await;
    let mut keys = Vec::new();
    for _ in 0..20 {
        keys.push(fixture.create_key().await.id);
    }
    // A key that was deleted meanwhile counts in neither table.
    keys.push(generate_key().id);
    let today = today(&fixture).await;
    let reasons = [RefusalReason::Burst, RefusalReason::Paused, RefusalReason::Restricted];
    let mut flushes = JoinSet::new();
    for number in 0..8 {
        let (store, keys) = (store.clone(), keys.clone());
        flushes.spawn(async move {
            for round in 0..20 {
                let refusal = |(index, key): (usize, &_)| RefusalCount {
                    key: *key,
                    day: UtcDay(today.0 - u32::from(round % 2 == 0)),
                    reason: reasons[(index + round + number) % reasons.len()],
                    count: 1 + index as u64,
                };
                let refusals: Vec<_> = keys.iter().enumerate().map(refusal).collect();
                store.usage().add_refusals(&refusals).await.expect("refusals are added");
            }
        });
    }
    while let Some(flush) = flushes.join_next().await {
        flush.expect("flush succeeds");
    }
    let expected = 8 * 20 * (1..=20).sum::<i64>();
    let listed = store.console().refusals(2).await.expect("refusals are listed");
    assert_eq!(listed.len(), 2 * reasons.len());
    assert_eq!(listed.iter().map(|row| row.count).sum::<i64>(), expected);
    for row in &listed {
        let condition = format!("where day = '{}' and reason = '{}'", row.day, row.reason);
        assert_eq!(fixture.sql(&format!("{SUMS} refusals {condition}")).await, row.count.to_string());
    }
    let today_only = store.console().refusals(1).await.expect("refusals are listed");
    assert_eq!(today_only, listed[..reasons.len()]);
    assert_eq!(listed[0].reason, "burst");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_flush_adds_nothing_and_future_days_are_ignored() {
    let fixture = StoreFixture::open().await;
    let (key, today) = (fixture.create_key().await.id, today(&fixture).await);
    let refusal = |day, count| RefusalCount { key, day, reason: RefusalReason::Burst, count };
    fixture.sql("alter table refusal_totals add constraint broken check (count < 100)").await;
    let usage = fixture.store.usage();
    usage.add_refusals(&[refusal(today, 100)]).await.expect_err("flush fails");
    usage.add_refusals(&[refusal(today, 7), refusal(UtcDay(today.0 + 2), 5)]).await.expect("refusals are added");
    for table in ["refusals", "refusal_totals"] {
        assert_eq!(fixture.sql(&format!("{SUMS} {table}")).await, "7", "{table}");
    }
    usage
        .merge_counts(&[KeyDailyUsage { key, usage: DailyUsage { day: today, count: 1 } }])
        .await
        .expect("usage is merged");
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_deleted_after_their_retention() {
    let fixture = StoreFixture::open().await;
    fixture
        .sql(
            "insert into refusal_totals
             select (now() at time zone 'UTC')::date + ago, 'burst', 0, 1 from unnest(array[-41, -40, -1, 0, 1, 2]) ago",
        )
        .await;
    fixture
        .store
        .apply_retention(RetentionPolicy { usage_days: 40, hourly_usage_days: 30, history_days: 400 })
        .await
        .expect("retention is applied");
    assert_eq!(fixture.sql("select count(*), max(day) - min(day) from refusal_totals").await, "4|41");
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_sums_the_refusals_of_the_last_30_days() {
    let fixture = StoreFixture::open().await;
    let (one, two) = (fixture.create_key().await.id, fixture.create_key().await.id);
    fixture
        .sql(&format!(
            "drop table refusal_totals, limit_requests, nodes;
             drop index accounts_domain, accounts_created, keys_name, keys_paused, keys_deactivated, tickets_invites,
                 audit_events_operator, audit_events_action;
             drop function audit_limit_request, audit_email, end_invitations cascade;
             delete from _sqlx_migrations where version = 20;
             insert into refusals select key, (now() at time zone 'UTC')::date - ago, 'burst', 5
             from unnest(array['{one}', '{two}']) key, unnest(array[0, 30, 31]) ago"
        ))
        .await;
    fixture.store.migrate().await.expect("migration succeeds");
    let refusals = fixture.store.console().refusals(60).await.expect("refusals are listed");
    assert_eq!(refusals.iter().map(|row| row.count).collect::<Vec<_>>(), [10, 10]);
}
