//! Usage, as pages show it.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use ipseity_store::{KeyDailyUsage, RefusalCount, RefusalReason, UsageRow};
use ipseity_testkit::eventually;

use crate::fixture::{StoreFixture, TEST_TIMEOUT};

const DAY: UtcDay = UtcDay(20_400);

/// All days from this one.
fn since(day: UtcDay) -> RangeInclusive<UtcDay> {
    day..=UtcDay(40_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_and_day_with_requests_has_a_usage_row() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let mut keys = [fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id];
    keys.sort_unstable();
    let (before, next, other_key) = (UtcDay(DAY.0 - 1), UtcDay(DAY.0 + 1), fixture.create_key().await.id);
    let usage = |key, day, count| KeyDailyUsage { key, usage: DailyUsage { day, count } };
    let counts = [usage(keys[0], DAY, 5), usage(keys[0], before, 9), usage(keys[1], next, 7), usage(other_key, DAY, 3)];
    store.usage().merge_counts(&counts).await.expect("usage is merged");
    let refusal = |key, day, reason, count| RefusalCount { key, day, reason, count };
    let refusals = [
        refusal(keys[0], DAY, RefusalReason::Burst, 1),
        refusal(keys[0], DAY, RefusalReason::Paused, 20),
        refusal(keys[0], DAY, RefusalReason::Inactive, 300),
        refusal(keys[0], DAY, RefusalReason::QuotaExhausted, 4_000),
        refusal(keys[0], DAY, RefusalReason::WrongSecret, 50_000),
        refusal(keys[0], DAY, RefusalReason::Restricted, 600_000),
        refusal(keys[1], DAY, RefusalReason::QuotaExhausted, 2),
        refusal(keys[1], before, RefusalReason::QuotaExhausted, 2),
        refusal(other_key, DAY, RefusalReason::QuotaExhausted, 2),
    ];
    store.usage().add_refusals(&refusals).await.expect("refusals are added");

    let row = |key: KeyId, day, admitted, refusal| UsageRow { key, day, admitted, refused: refusal };
    let expected = [
        row(keys[0], DAY, 5, [1, 20, 300, 4_000, 50_000, 600_000]),
        row(keys[1], DAY, 0, [0, 0, 0, 2, 0, 0]),
        row(keys[1], next, 7, [0; 6]),
    ];
    assert_eq!(store.usage().list(account.id, None, since(DAY)).await.expect("usage is listed"), expected);
    assert_eq!(
        store.usage().list(account.id, Some(keys[1]), since(DAY)).await.expect("usage is listed"),
        expected[1..]
    );
    assert_eq!(store.usage().list(account.id, Some(other_key), since(DAY)).await.expect("usage is listed"), []);
    let before_next = store.usage().list(account.id, None, DAY..=DAY).await.expect("usage is listed");
    assert_eq!(before_next, expected[..2]);
    assert_eq!(store.usage().list(0, None, since(DAY)).await.expect("usage is listed"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_usage_history_is_read_by_index_only() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    for _ in 0..10 {
        fixture.create_key_for(&account).await;
    }
    fixture
        .sql(
            "with others as (insert into accounts (email) select n::text from generate_series(1, 500) n returning id)
             insert into keys (id, account_id, seat, name, scope, digest)
             select 'z' || lpad(id::text, 9, '0'), id, 1, 'x', 'ip', sha256('x') from others",
        )
        .await;
    let days = "case when id like 'z000%' then 20 else 400 end";
    for insert in [
        format!("insert into usage select id, current_date - d, d from keys, generate_series(1, {days}) d"),
        format!(
            "insert into refusals select id, current_date - d, reason, d from keys, generate_series(1, {days}) d,
             unnest(array['burst', 'paused', 'inactive', 'day', 'wrong_secret']) reason"
        ),
        format!(
            "insert into usage_hours select id, current_date - d, outcome, array_fill(0, array[24], array[0])
             from keys, generate_series(1, least({days}, 30)) d, unnest(array['admitted', 'burst', 'paused']) outcome"
        ),
    ] {
        fixture.sql(&insert).await;
    }
    fixture.sql("analyze").await;

    let scans = "select bool_and(seq_scan = 0), bool_and(idx_scan > 0) from pg_stat_user_tables
                 where relname in ('keys', 'usage_before', 'refusals_before', 'usage_hours')";
    fixture.sql("select pg_stat_reset()").await;
    let mut shortest = Duration::MAX;
    let read_usage = async || {
        let start = Instant::now();
        assert_eq!(
            fixture.store.usage().list(account.id, None, since(UtcDay(0))).await.expect("usage is listed").len(),
            4_000
        );
        let hours = fixture.store.usage().list_hours(account.id, None, since(UtcDay(0))).await;
        assert_eq!(hours.expect("hours are listed").len(), 3 * 300, "all requests are in the last hour");
        shortest = shortest.min(start.elapsed());
        fixture.sql(scans).await.ends_with("|t")
    };
    eventually("the statistics show the scans", TEST_TIMEOUT, read_usage).await.expect("statistics are updated");
    assert_eq!(fixture.sql(scans).await, "t|t", "no sequential scan");
    assert!(shortest < Duration::from_millis(500), "{shortest:?}");
}
