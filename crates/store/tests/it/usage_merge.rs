//! Usage: absolute counts are merged, and refusals are added.

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use ipseity_store::{Actor, KeyDailyUsage, RefusalCount, RefusalReason, RetentionPolicy};
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, generate_key};
use crate::key_summaries::wait_past_midnight;

const DAY: UtcDay = UtcDay(20_400);

fn daily_usage(key: KeyId, count: u64) -> KeyDailyUsage {
    KeyDailyUsage { key, usage: DailyUsage { day: DAY, count } }
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_keeps_greater_count_and_skips_unknown_keys() {
    let fixture = StoreFixture::open().await;
    let (key, unknown_key) = (fixture.create_key().await, generate_key());
    for (merged, expected) in [(5, 5), (9, 9), (7, 9), (9, 9), (10, 10)] {
        let counts = [daily_usage(unknown_key.id, 1), daily_usage(key.id, merged)];
        fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
        assert_eq!(fixture.key_record(key.id).await.usage, Some(DailyUsage { day: DAY, count: expected }));
    }
    fixture.store.usage().merge_counts(&[]).await.expect("empty merge succeeds");
    assert_eq!(fixture.sql("select count(*) from usage").await, "1");
    assert_eq!(fixture.outbox_rows().await, [""; 0], "usage does not change the key record");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_merges_and_key_deletions_never_fail() {
    let fixture = StoreFixture::open().await;
    let mut keys = Vec::new();
    for _ in 0..30 {
        let account = fixture.create_account().await;
        for _ in 0..5 {
            keys.push(fixture.create_key_for(&account).await.id);
        }
    }
    let (kept, deleted) = keys.split_at(100);
    let mut nodes = JoinSet::new();
    for node in 0..6_u32 {
        let (store, mut keys) = (fixture.store.clone(), keys.clone());
        nodes.spawn(async move {
            for round in 0..15 {
                fastrand::shuffle(&mut keys);
                let counts: Vec<KeyDailyUsage> =
                    keys.iter().map(|&key| daily_usage(key, u64::from(round * 6 + node))).collect();
                store.usage().merge_counts(&counts).await.expect("usage is merged");
                let refusals: Vec<RefusalCount> =
                    keys.iter().map(|&key| refusal_count(key, RefusalReason::QuotaExhausted, 1)).collect();
                store.usage().add_refusals(&refusals).await.expect("refusals are added");
            }
        });
    }
    let (store, deleted) = (fixture.store.clone(), deleted.to_vec());
    nodes.spawn(async move {
        for key in deleted {
            store.keys().delete(Actor::Operator, key).await.expect("account is deleted");
        }
    });
    nodes.join_all().await;
    assert_eq!(fixture.sql("select count(*), min(admitted), max(admitted) from usage").await, "100|89|89");
    assert_eq!(fixture.sql("select count(*), min(count), max(count) from refusals").await, "100|90|90");
    assert_eq!(fixture.key_record(kept[0]).await.usage, Some(DailyUsage { day: DAY, count: 89 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_future_days_are_ignored_and_deleted() {
    let fixture = StoreFixture::open().await;
    let (store, key) = (&fixture.store, fixture.create_key().await.id);
    let today = wait_past_midnight().await;
    let usage = |offset: u32, count| DailyUsage { day: UtcDay(today.0 + offset), count };
    let counts = [0, 1, 2, 400].map(|offset| KeyDailyUsage { key, usage: usage(offset, 5) });
    assert_eq!(store.usage().merge_counts(&counts).await.expect("usage is merged"), 2);
    assert_eq!(store.usage().merge_counts(&counts[..2]).await.expect("usage is merged"), 0);
    let refusals =
        counts.map(|count| RefusalCount { key, day: count.usage.day, reason: RefusalReason::Burst, count: 1 });
    store.usage().add_refusals(&refusals).await.expect("refusals are added");
    for offset in [0, 1, 2] {
        store.usage().merge_demo_count(usage(offset, 1), 0).await.expect("usage is merged");
    }
    let row_counts =
        "select (select count(*) from usage), (select count(*) from refusals), (select count(*) from demo_usage)";
    assert_eq!(fixture.sql(row_counts).await, "2|2|2");

    // A previous version may have stored such days.
    fixture
        .sql(
            "insert into usage select id, current_date + 2, 9 from keys;
             insert into refusals select id, current_date + 2, 'day', 9 from keys;
             insert into demo_usage values (current_date + 2, 9, 9)",
        )
        .await;
    let record = fixture.key_record(key).await;
    assert_eq!((record.usage, record.previous_usage), (Some(usage(1, 5)), Some(usage(0, 5))));
    assert_eq!(store.usage().find_demo_usage().await.expect("query succeeds"), Some(usage(1, 1)));
    let policy = RetentionPolicy { usage_days: 31, hourly_usage_days: 30, history_days: 31 };
    store.apply_retention(policy).await.expect("retention run succeeds");
    assert_eq!(fixture.sql(row_counts).await, "2|2|2");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_record_has_the_two_newest_days() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    let usage = |day, count| DailyUsage { day: UtcDay(day), count };
    let (first, second, third) = (usage(20_400, 1), usage(20_300, 2), usage(20_403, 3));
    for (merged, newest, previous) in [(first, first, None), (second, first, Some(second)), (third, third, Some(first))]
    {
        let counts = [KeyDailyUsage { key, usage: merged }];
        fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
        let record = fixture.key_record(key).await;
        assert_eq!((record.usage, record.previous_usage), (Some(newest), previous), "after {merged:?}");
    }
}

fn refusal_count(key: KeyId, reason: RefusalReason, count: u64) -> RefusalCount {
    RefusalCount { key, day: DAY, reason, count }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_add_up_by_reason_and_in_large_batches() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    for _ in 0..2 {
        let batch = [
            refusal_count(key, RefusalReason::QuotaExhausted, 3),
            refusal_count(generate_key().id, RefusalReason::QuotaExhausted, 1),
            refusal_count(key, RefusalReason::WrongSecret, 1),
        ];
        fixture.store.usage().add_refusals(&batch).await.expect("refusals are added");
    }
    let refusals_query = "select day, reason, count from refusals order by reason";
    assert_eq!(fixture.sql(refusals_query).await, "2025-11-08|day|6\n2025-11-08|wrong_secret|2");

    let days = 0..12_000;
    let counts: Vec<KeyDailyUsage> =
        days.clone().map(|day| KeyDailyUsage { key, usage: DailyUsage { day: UtcDay(day), count: 1 } }).collect();
    fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
    let refusals: Vec<RefusalCount> =
        days.map(|day| RefusalCount { day: UtcDay(day), ..refusal_count(key, RefusalReason::Burst, 1) }).collect();
    fixture.store.usage().add_refusals(&refusals).await.expect("refusals are added");
    assert_eq!(fixture.sql("select count(*) from usage").await, "12000");
    assert_eq!(fixture.sql("select sum(count) from refusals where reason = 'burst'").await, "12000");
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_usage_keeps_greatest_count_and_adds_refusals() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    assert_eq!(store.usage().find_demo_usage().await.expect("query succeeds"), None);
    let usage = |day, count| DailyUsage { day: UtcDay(day), count };
    for (demo, refusals) in [(usage(20_400, 7), 1), (usage(20_400, 5), 2), (usage(20_399, 1_000), 4)] {
        store.usage().merge_demo_count(demo, refusals).await.expect("usage is merged");
    }
    assert_eq!(store.usage().find_demo_usage().await.expect("query succeeds"), Some(usage(20_400, 7)));
    let demo_query = "select day, admitted, refused from demo_usage order by day";
    assert_eq!(fixture.sql(demo_query).await, "2025-11-07|1000|4\n2025-11-08|7|3");
}
