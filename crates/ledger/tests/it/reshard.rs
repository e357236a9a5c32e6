//! Slots that move between primaries: nothing that they hold is lost or believed too long, and no call is applied twice.

use std::time::{Duration, Instant};

use domain::{Key, Marks, Standing};
use ledger::{ChargeName, Ledger, LedgerError, LedgerOptions, Verdict};
use testkit::Cluster;

use crate::pause::is_paused;
use crate::stage::{Stage, fresh, used};

/// A key that is known, its slot, its owner and another primary.
struct Moved {
    key: Key,
    standing: Standing,
    slot: u16,
    from: usize,
    to: usize,
}

async fn known(stage: &Stage<Cluster>) -> Moved {
    let (key, standing) = stage.known(10_000).await;
    let (from, record) = stage.redis.find(&format!("*:k:{}", key.id)).await.expect("a record");
    let slot = stage.redis.slot(&record).await.expect("a slot");
    Moved { key, standing, slot, from, to: (from + 1) % 3 }
}

impl Moved {
    async fn go(&self, stage: &Stage<Cluster>) {
        stage.redis.move_slots(self.slot..=self.slot, self.from, self.to).await.expect("a move");
    }

    async fn come_home(&self, stage: &Stage<Cluster>) {
        stage.redis.move_slots(self.slot..=self.slot, self.to, self.from).await.expect("a move");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_slot_takes_counts_times_and_pauses_along() {
    let stage = Stage::cluster().await;
    let moved = known(&stage).await;
    for count in 1..=200 {
        assert_eq!(stage.admitted(&moved.key).await, count);
    }
    moved.go(&stage).await;
    stage.fill(&moved.key, &moved.standing).await;
    for count in 201..=300 {
        assert_eq!(stage.admitted(&moved.key).await, count, "the durable store knows of none");
    }
    let Verdict::PausedNow(pause) = stage.charge(&moved.key).await else { panic!("200 before the move count too") };
    assert_eq!(pause.counts.iter().map(|&count| u32::from(count)).sum::<u32>(), 301);

    moved.come_home(&stage).await;
    stage.fill(&moved.key, &moved.standing).await;
    assert!(is_paused(&stage.charge(&moved.key).await), "a pause that the durable store does not know yet");
    assert_eq!(stage.ledger.sweep(Duration::from_secs(2)).await.expect("a sweep"), [pause]);

    stage.ledger.charge_demo_knowing(None).await.expect("a verdict");
    let (from, demo) = stage.redis.find("*{demo}*").await.expect("the demo's record");
    let slot = stage.redis.slot(&demo).await.expect("a slot");
    stage.redis.move_slots(slot..=slot, from, (from + 1) % 3).await.expect("a move");
    let verdict = stage.ledger.charge_demo_knowing(None).await.expect("a verdict");
    assert!(matches!(verdict, ledger::DemoVerdict::Admitted { charged, .. } if charged.used == 2), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_made_while_its_slot_was_away_is_in_force_when_it_comes_home() {
    let stage = Stage::cluster().await;
    let moved = known(&stage).await;
    assert_eq!(stage.admitted(&moved.key).await, 1);
    moved.go(&stage).await;
    let marks = Marks { deactivated: true, paused: false };
    let inactive = Standing { marks, generation: 2, ..moved.standing.clone() };
    stage.ledger.publish(&inactive).await.expect("a publish");
    moved.come_home(&stage).await;
    stage.fill(&moved.key, &inactive).await;
    assert!(matches!(stage.charge(&moved.key).await, Verdict::Inactive(_)));

    let active = Standing { marks: Marks::default(), generation: 3, ..inactive };
    stage.ledger.publish(&active).await.expect("a publish");
    assert_eq!(stage.admitted(&moved.key).await, 2, "and no count was lost on the way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_shown_to_another_owner_lets_no_fill_through() {
    let stage = Stage::cluster().await;
    let moved = known(&stage).await;
    stage.ledger.forget(moved.key.id).await.expect("a loss");
    let fence = stage.unknown(&moved.key).await;
    moved.go(&stage).await;
    assert!(!stage.ledger.fill(&moved.standing, &fence).await.expect("an answer"));
    stage.fill(&moved.key, &moved.standing).await;
    assert_eq!(stage.admitted(&moved.key).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_slot_on_its_way_wait_for_it_and_are_applied_once() {
    let stage = Stage::cluster().await;
    let moved = known(&stage).await;
    assert_eq!(stage.admitted(&moved.key).await, 1);
    let mut moving = stage.redis.moving(moved.from, moved.to).await.expect("a move");
    moving.begin(moved.slot).await.expect("an open slot");

    let hasty = LedgerOptions { url: stage.redis.url(), timeout: Duration::from_millis(100) };
    let hasty = Ledger::new(&hasty).expect("a ledger");
    let start = Instant::now();
    let refused = hasty.charge(&moved.key, ChargeName::next()).await.expect_err("a slot that is nowhere");
    assert!(matches!(&refused, LedgerError::NotApplied(cause) if cause.code() == Some("TRYAGAIN")), "{refused:?}");
    assert!(start.elapsed() < Duration::from_millis(1_000), "{:?}", start.elapsed());

    let carry = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        while moving.carry(moved.slot, 1).await.expect("a step") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        moving.finish(moved.slot).await.expect("a new owner");
    };
    let (verdict, ()) = tokio::join!(stage.charge(&moved.key), carry);
    let Verdict::Unknown(fence) = verdict else { panic!("known: {verdict:?}") };
    assert!(stage.ledger.fill(&moved.standing, &fence).await.expect("a fill"));
    assert_eq!(stage.admitted(&moved.key).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_whole_on_one_side_of_a_move_is_served_there() {
    let stage = Stage::cluster().await;
    let moved = known(&stage).await;
    // With a pause that waits in its bucket, all four names of the key are there.
    let pause = stage.pause(&moved.key).await;
    let resumed = Standing { generation: 2, window: 2, ..moved.standing.clone() };
    stage.ledger.publish(&resumed).await.expect("a publish");
    assert_eq!(stage.admitted(&moved.key).await, 301);
    let names = ["k", "log"].map(|kind| format!("*:{kind}:{}", moved.key.id));
    let (_, record) = stage.redis.find(&names[0]).await.expect("a record");
    let bucket = record.split(":k:").next().expect("a bucket").to_owned();
    let mut moving = stage.redis.moving(moved.from, moved.to).await.expect("a move");
    moving.begin(moved.slot).await.expect("an open slot");

    assert_eq!(stage.admitted(&moved.key).await, 302, "none has left");
    let changed = Standing { generation: 3, daily_limit: 20_000, ..resumed };
    stage.ledger.publish(&changed).await.expect("a publish");
    assert_eq!(stage.admitted(&moved.key).await, 303, "a record is changed in its place");

    let (_, log) = stage.redis.find(&names[1]).await.expect("a log");
    for name in [record, log, format!("{bucket}:fence"), format!("{bucket}:pending")] {
        moving.carry_name(&name).await.expect("a step");
    }
    let Verdict::Unknown(fence) = stage.charge(&moved.key).await else { panic!("another owner believes the record") };
    assert!(stage.ledger.fill(&changed, &fence).await.expect("a fill"), "all have arrived");
    let verdict = stage.charge(&moved.key).await;
    assert_eq!(used(&verdict), 304);
    assert_eq!(stage.ledger.pending(moved.key.id).await.expect("a look"), std::slice::from_ref(&pause));
    stage.ledger.confirm(&pause).await.expect("a confirmation");
    while moving.carry(moved.slot, 10).await.expect("a step") > 0 {}
    moving.finish(moved.slot).await.expect("a new owner");
    assert_eq!(stage.admitted(&moved.key).await, 305);

    let (stranger, _) = fresh(1);
    stage.unknown(&stranger).await;
}
