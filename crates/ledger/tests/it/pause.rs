//! Pauses: made exactly once, and lost to nothing but a resume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::{Key, Marks, Standing};
use ledger::{ChargeName, Ledger, Verdict};
use redis::cmd;
use tokio::task::JoinSet;

use crate::stage::{Stage, node};

pub fn is_paused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Paused(_))
}

/// What becomes of 400 charges of one key that race over these nodes.
pub async fn race(nodes: &[Arc<Ledger>], key: Key) -> BTreeMap<&'static str, usize> {
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let node = Arc::clone(&nodes[task % nodes.len()]);
        // 400 in all: sixteen tasks make seven, the others six.
        let charges = if task < 16 { 7 } else { 6 };
        tasks.spawn(async move {
            let mut verdicts = Vec::new();
            for _ in 0..charges {
                verdicts.push(node.charge(&key, ChargeName::next()).await.expect("a verdict"));
            }
            verdicts
        });
    }
    let mut seen = BTreeMap::new();
    for verdict in tasks.join_all().await.into_iter().flatten() {
        let name = match verdict {
            Verdict::Admitted { .. } => "admitted",
            Verdict::PausedNow(_) => "paused now",
            Verdict::Paused(_) => "paused",
            Verdict::Unknown(_) | Verdict::WrongSecret(_) | Verdict::Inactive(_) | Verdict::DaySpent { .. } => "odd",
        };
        *seen.entry(name).or_insert(0) += 1;
    }
    seen
}

/// The only right outcome of a race.
pub fn exact() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([("admitted", 300), ("paused now", 1), ("paused", 99)])
}

#[tokio::test(flavor = "multi_thread")]
async fn of_400_racing_charges_300_are_admitted_and_one_pauses_the_key() {
    let stage = Stage::open().await;
    let (key, _) = stage.known(10_000).await;
    let nodes: Vec<_> = (0..8).map(|_| Arc::new(node(&stage.redis))).collect();
    assert_eq!(race(&nodes, key).await, exact());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_the_durable_store_does_not_know_yet_ends_by_a_resume_alone() {
    let mut stage = Stage::open().await;
    let (key, standing) = stage.known(10_000).await;
    let pause = stage.pause(&key).await;
    assert_eq!((pause.key, pause.window), (key.id, standing.window));
    assert_eq!(pause.counts.iter().map(|&count| u32::from(count)).sum::<u32>(), 301);

    let plan = Standing { daily_limit: 20_000, generation: 2, ..standing.clone() };
    stage.ledger.publish(&plan).await.expect("a publish");
    assert!(is_paused(&stage.charge(&key).await), "after a plan change");

    stage.redis.save_snapshot().await.expect("a snapshot");
    stage.redis.restore_snapshot().await.expect("a server that comes back");
    stage.fill(&key, &plan).await;
    assert!(is_paused(&stage.charge(&key).await), "after a refill");

    let names: Vec<String> =
        cmd("KEYS").arg(format!("*:{}", key.id)).query_async(&mut stage.connection().await).await.expect("names");
    cmd("DEL").arg(names).exec_async(&mut stage.connection().await).await.expect("a loss");
    stage.fill(&key, &plan).await;
    assert!(is_paused(&stage.charge(&key).await), "after the record alone was lost");

    let resumed = Standing { marks: Marks::default(), generation: 4, window: 2, ..plan };
    stage.ledger.publish(&resumed).await.expect("a publish");
    for _ in 0..300 {
        stage.admitted(&key).await;
    }
    assert!(matches!(stage.charge(&key).await, Verdict::PausedNow(pause) if pause.window == 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_key_starts_a_new_window_and_keeps_its_days_count() {
    let stage = Stage::open().await;
    let (key, standing) = stage.known(10_000).await;
    let resumed = |window| Standing { generation: window, window, ..standing.clone() };
    stage.pause(&key).await;
    stage.ledger.publish(&resumed(2)).await.expect("a publish");
    for used in 301..=500 {
        assert_eq!(stage.admitted(&key).await, used);
    }
    // This pause only the durable store knew of.
    stage.ledger.publish(&resumed(3)).await.expect("a publish");
    for used in 501..=800 {
        assert_eq!(stage.admitted(&key).await, used);
    }
    assert!(matches!(stage.charge(&key).await, Verdict::PausedNow(pause) if pause.window == 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_pause_survives_a_change_that_was_made_before_it() {
    let stage = Stage::open().await;
    let (key, standing) = stage.known(10_000).await;
    let pause = stage.pause(&key).await;
    stage.ledger.confirm(&pause).await.expect("a confirmation");
    let late = Standing { daily_limit: 20_000, generation: 2, ..standing };
    stage.ledger.publish(&late).await.expect("a publish");
    assert!(is_paused(&stage.charge(&key).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_finds_pauses_until_they_are_confirmed_and_one_node_sweeps_at_a_time() {
    let (stage, clock) = Stage::at_noon().await;
    let other = node(&stage.redis);
    let interval = Duration::from_secs(2);
    let (first, _) = stage.known(10_000).await;
    let (second, _) = stage.known(10_000).await;
    let mut made = [stage.pause(&first).await, stage.pause(&second).await];
    made.sort_by_key(|pause| pause.key);

    let mut swept = stage.ledger.sweep(interval).await.expect("a sweep");
    swept.sort_by_key(|pause| pause.key);
    assert_eq!(swept, made);
    assert_eq!(other.sweep(interval).await.expect("a sweep"), [], "another node's turn comes later");

    stage.ledger.confirm(&made[0]).await.expect("a confirmation");
    clock.advance_ms(2_000);
    assert_eq!(other.sweep(interval).await.expect("a sweep"), made[1..]);
    other.confirm(&made[1]).await.expect("a confirmation");
    clock.advance_ms(2_000);
    assert_eq!(stage.ledger.sweep(interval).await.expect("a sweep"), []);
    assert!(is_paused(&stage.charge(&first).await));
}
