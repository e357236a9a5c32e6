//! Usage: absolute counts that merge, refusals that add up.

use domain::{Day, KeyId, Used};
use store::{By, RefusedCount, RefusedReason, RolledUp};
use tokio::task::JoinSet;

use crate::stage::{Stage, mint};

const DAY: Day = Day(20_400);

fn count(key: KeyId, count: u64) -> RolledUp {
    RolledUp { key, used: Used { day: DAY, count } }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greater_count_stays_and_unknown_keys_are_left_out() {
    let stage = Stage::open().await;
    let (key, stranger) = (stage.key().await, mint());
    for (rolled_up, expected) in [(5, 5), (9, 9), (7, 9), (9, 9), (10, 10)] {
        let counts = [count(stranger.id, 1), count(key.id, rolled_up)];
        stage.store.roll_up(&counts).await.expect("a roll-up");
        assert_eq!(stage.standing(key.id).await.used, Some(Used { day: DAY, count: expected }));
    }
    stage.store.roll_up(&[]).await.expect("an empty roll-up");
    assert_eq!(stage.sql("select count(*) from usage").await, "1");
    assert_eq!(stage.outbox().await, [""; 0], "usage is no change of a standing");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_roll_up_the_same_keys_and_deletions_never_fail_each_other() {
    let stage = Stage::open().await;
    let mut keys = Vec::new();
    for _ in 0..30 {
        let account = stage.account().await;
        for _ in 0..5 {
            keys.push(stage.key_of(&account).await.id);
        }
    }
    let (kept, deleted) = keys.split_at(100);
    let mut nodes = JoinSet::new();
    for node in 0..6_u32 {
        let (store, mut keys) = (stage.store.clone(), keys.clone());
        nodes.spawn(async move {
            for round in 0..15 {
                fastrand::shuffle(&mut keys);
                let counts: Vec<RolledUp> = keys.iter().map(|&key| count(key, u64::from(round * 6 + node))).collect();
                store.roll_up(&counts).await.expect("a roll-up");
                let refusals: Vec<RefusedCount> = keys.iter().map(|&key| refused(key, RefusedReason::Day, 1)).collect();
                store.add_refusals(&refusals).await.expect("refusals");
            }
        });
    }
    let (store, deleted) = (stage.store.clone(), deleted.to_vec());
    nodes.spawn(async move {
        for key in deleted {
            store.delete(By::Operator, key).await.expect("a deletion");
        }
    });
    nodes.join_all().await;
    assert_eq!(stage.sql("select count(*), min(admitted), max(admitted) from usage").await, "100|89|89");
    assert_eq!(stage.sql("select count(*), min(count), max(count) from refusals").await, "100|90|90");
    assert_eq!(stage.standing(kept[0]).await.used, Some(Used { day: DAY, count: 89 }));
}

fn refused(key: KeyId, reason: RefusedReason, count: u64) -> RefusedCount {
    RefusedCount { key, day: DAY, reason, count }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_add_up_by_reason_and_large_batches_pass() {
    let stage = Stage::open().await;
    let key = stage.key().await.id;
    for _ in 0..2 {
        let batch = [
            refused(key, RefusedReason::Day, 3),
            refused(mint().id, RefusedReason::Day, 1),
            refused(key, RefusedReason::WrongSecret, 1),
        ];
        stage.store.add_refusals(&batch).await.expect("refusals");
    }
    let told = "select day, reason, count from refusals order by reason";
    assert_eq!(stage.sql(told).await, "2025-11-08|day|6\n2025-11-08|wrong_secret|2");

    let days = 0..12_000;
    let counts: Vec<RolledUp> =
        days.clone().map(|day| RolledUp { key, used: Used { day: Day(day), count: 1 } }).collect();
    stage.store.roll_up(&counts).await.expect("a roll-up");
    let refusals: Vec<RefusedCount> =
        days.map(|day| RefusedCount { day: Day(day), ..refused(key, RefusedReason::Burst, 1) }).collect();
    stage.store.add_refusals(&refusals).await.expect("refusals");
    assert_eq!(stage.sql("select count(*) from usage").await, "12000");
    assert_eq!(stage.sql("select sum(count) from refusals where reason = 'burst'").await, "12000");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_keeps_its_greatest_count_and_adds_its_refusals() {
    let stage = Stage::open().await;
    let store = &stage.store;
    assert_eq!(store.find_demo_used().await.expect("an answer"), None);
    let used = |day, count| Used { day: Day(day), count };
    for (demo, refused) in [(used(20_400, 7), 1), (used(20_400, 5), 2), (used(20_399, 1_000), 4)] {
        store.roll_up_demo(demo, refused).await.expect("a roll-up");
    }
    assert_eq!(store.find_demo_used().await.expect("an answer"), Some(used(20_400, 7)));
    let told = "select day, admitted, refused from demo_usage order by day";
    assert_eq!(stage.sql(told).await, "2025-11-07|1000|4\n2025-11-08|7|3");
}
