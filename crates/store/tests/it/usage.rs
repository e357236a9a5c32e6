//! Usage as pages show it.

use std::time::{Duration, Instant};

use domain::{Day, KeyId, Used};
use store::{RefusedCount, RefusedReason, RolledUp, UsageRow};
use testkit::eventually;

use crate::stage::{PATIENCE, Stage};

const DAY: Day = Day(20_400);

#[tokio::test(flavor = "multi_thread")]
async fn each_key_and_day_with_answers_or_refusals_has_a_row() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let mut keys = [stage.key_of(&account).await.id, stage.key_of(&account).await.id];
    keys.sort_unstable();
    let (before, next, strangers) = (Day(DAY.0 - 1), Day(DAY.0 + 1), stage.key().await.id);
    let used = |key, day, count| RolledUp { key, used: Used { day, count } };
    let counts = [used(keys[0], DAY, 5), used(keys[0], before, 9), used(keys[1], next, 7), used(strangers, DAY, 3)];
    store.roll_up(&counts).await.expect("a roll-up");
    let refused = |key, day, reason, count| RefusedCount { key, day, reason, count };
    let refusals = [
        refused(keys[0], DAY, RefusedReason::Burst, 1),
        refused(keys[0], DAY, RefusedReason::Paused, 20),
        refused(keys[0], DAY, RefusedReason::Inactive, 300),
        refused(keys[0], DAY, RefusedReason::Day, 4_000),
        refused(keys[0], DAY, RefusedReason::WrongSecret, 50_000),
        refused(keys[1], DAY, RefusedReason::Day, 2),
        refused(keys[1], before, RefusedReason::Day, 2),
        refused(strangers, DAY, RefusedReason::Day, 2),
    ];
    store.add_refusals(&refusals).await.expect("refusals");

    let row = |key: KeyId, day, admitted, refused| UsageRow { key, day, admitted, refused };
    let expected = [
        row(keys[0], DAY, 5, [1, 20, 300, 4_000, 50_000]),
        row(keys[1], DAY, 0, [0, 0, 0, 2, 0]),
        row(keys[1], next, 7, [0; 5]),
    ];
    assert_eq!(store.usage(account.id, None, DAY).await.expect("usage"), expected);
    assert_eq!(store.usage(account.id, Some(keys[1]), DAY).await.expect("usage"), expected[1..]);
    assert_eq!(store.usage(account.id, Some(strangers), DAY).await.expect("usage"), []);
    assert_eq!(store.usage(0, None, DAY).await.expect("usage"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_among_many_keys_is_read_by_its_index_alone() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    for _ in 0..10 {
        stage.key_of(&account).await;
    }
    stage
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
    ] {
        stage.sql(&insert).await;
    }
    stage.sql("analyze").await;

    let scans = "select bool_and(seq_scan = 0), bool_and(idx_scan > 0) from pg_stat_user_tables
                 where relname in ('keys', 'usage_before', 'refusals_before')";
    stage.sql("select pg_stat_reset()").await;
    let mut quickest = Duration::MAX;
    let counted = async || {
        let start = Instant::now();
        assert_eq!(stage.store.usage(account.id, None, Day(0)).await.expect("usage").len(), 4_000);
        quickest = quickest.min(start.elapsed());
        stage.sql(scans).await.ends_with("|t")
    };
    eventually("PostgreSQL tells how it read", PATIENCE, counted).await.expect("statistics");
    assert_eq!(stage.sql(scans).await, "t|t", "no table is read whole");
    assert!(quickest < Duration::from_millis(500), "{quickest:?}");
}
