//! Settling: what a node admitted on its own is in the books once, whatever was lost on the way.

use domain::{BURST_MAX, Day, Key, Pause, Used};
use ledger::{Batch, ChargeName, DemoBatch, DemoVerdict, Moment, NamedCharge, Settled, Verdict};

use crate::stage::{MIDNIGHT_MS, Stage, fresh};

const TODAY: Day = Day((MIDNIGHT_MS / 86_400_000) as u32);
const NOON: Moment = Moment(MIDNIGHT_MS + 43_200_000);

fn batch(key: &Key) -> Batch {
    Batch {
        key: key.id,
        number: fastrand::u64(..),
        window: 1,
        days: Vec::new(),
        recent: Vec::new(),
        unanswered: Vec::new(),
        pause: None,
    }
}

/// Requests that were surely not charged, so long before noon.
fn admitted(key: &Key, count: u64, ago_ms: u64) -> Batch {
    let charge = || NamedCharge { at: Moment(NOON.0 - ago_ms), name: ChargeName::next() };
    let recent = (0..count.min(300)).map(|_| charge()).collect();
    Batch { days: vec![Used { day: TODAY, count }], recent, ..batch(key) }
}

/// The day's count after a batch, and how many of its requests nobody can tell of.
async fn settle(stage: &Stage, batch: &Batch) -> (u64, u64) {
    match stage.ledger.settle(batch).await.expect("an answer") {
        Settled::Done { charged, untold, .. } => (charged.used, untold),
        Settled::Unknown(_) => panic!("the record is unknown"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_sent_twice_is_settled_once() {
    let (stage, _clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10_000).await;
    assert_eq!(stage.admitted(&key).await, 1);
    let batch = admitted(&key, 7, 1_000);
    assert_eq!(settle(&stage, &batch).await, (8, 0));
    assert_eq!(settle(&stage, &batch).await, (8, 0));
    assert_eq!(stage.admitted(&key).await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_reply_was_lost_is_found_by_its_name() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10_000).await;
    clock.advance_ms(1);
    let [applied, lost] = [ChargeName::next(), ChargeName::next()];
    stage.ledger.charge(&key, applied).await.expect("a verdict that nobody hears of");
    let at = |name| NamedCharge { at: Moment(NOON.0 + 1), name };
    let unanswered = vec![at(applied), at(lost)];
    assert_eq!(settle(&stage, &Batch { unanswered, ..batch(&key) }).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_the_log_no_longer_reaches_back_to_is_not_charged_again() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10_000).await;
    let name = ChargeName::next();
    stage.ledger.charge(&key, name).await.expect("a verdict that nobody hears of");
    clock.advance_ms(61_000);
    redis::cmd("DEL")
        .arg(log_name(&stage, &key).await)
        .exec_async(&mut stage.connection().await)
        .await
        .expect("a log that expired");
    let unanswered = vec![NamedCharge { at: NOON, name }];
    assert_eq!(settle(&stage, &Batch { unanswered, ..batch(&key) }).await, (1, 1));
}

async fn log_name(stage: &Stage, key: &Key) -> String {
    let pattern = format!("i2:*:log:{}", key.id);
    let names: Vec<String> =
        redis::cmd("KEYS").arg(pattern).query_async(&mut stage.connection().await).await.expect("names");
    names.into_iter().next().expect("a log")
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_requests_count_for_the_burst_limit() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10_000).await;
    for _ in 0..100 {
        stage.admitted(&key).await;
    }
    assert_eq!(settle(&stage, &admitted(&key, 150, 30_000)).await, (250, 0));
    for _ in 0..50 {
        stage.admitted(&key).await;
    }
    clock.advance_ms(29_999);
    let Verdict::PausedNow(pause) = stage.charge(&key).await else { panic!("not paused") };
    assert_eq!(pause.counts.iter().map(|count| usize::from(*count)).sum::<usize>(), BURST_MAX + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_requests_leave_the_window_with_their_own_time() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10_000).await;
    settle(&stage, &admitted(&key, 300, 30_000)).await;
    clock.advance_ms(30_000);
    assert_eq!(stage.admitted(&key).await, 301);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_the_day_that_nobody_heard_of_is_not_taken_for_a_charge() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(1).await;
    assert_eq!(stage.admitted(&key).await, 1);
    clock.advance_ms(1);
    let name = ChargeName::next();
    let verdict = stage.ledger.charge(&key, name).await.expect("a verdict that comes too late");
    assert!(matches!(verdict, Verdict::DaySpent { .. }), "{verdict:?}");
    let unanswered = vec![NamedCharge { at: Moment(NOON.0 + 1), name }];
    assert_eq!(settle(&stage, &Batch { unanswered, ..batch(&key) }).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_settled_to_its_own_day_and_may_pass_the_limit() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10).await;
    for _ in 0..10 {
        stage.admitted(&key).await;
    }
    clock.advance_ms(86_400_000);
    let days = vec![Used { day: TODAY, count: 3 }, Used { day: Day(TODAY.0 + 1), count: 4 }];
    let settled = stage.ledger.settle(&Batch { days, ..batch(&key) }).await.expect("an answer");
    let Settled::Done { charged, yesterday, .. } = settled else { panic!("unknown") };
    assert_eq!((charged.day, charged.used), (Day(TODAY.0 + 1), 4));
    assert_eq!(yesterday, Some(Used { day: TODAY, count: 13 }));
    assert_eq!(stage.admitted(&key).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_on_a_nodes_own_evidence_is_swept_like_any_other_unless_its_window_is_over() {
    let (stage, _clock) = Stage::at_noon().await;
    for (window, is_paused) in [(1, true), (2, false)] {
        let (key, _) = stage.known(10_000).await;
        let pause = Pause { key: key.id, window, at_ms: NOON.0, counts: [5; 60] };
        settle(&stage, &Batch { window, pause: Some(pause.clone()), ..batch(&key) }).await;
        assert_eq!(matches!(stage.charge(&key).await, Verdict::Paused(_)), is_paused);
        let waiting = stage.ledger.pending(key.id).await.expect("an answer");
        assert_eq!(waiting.contains(&pause), is_paused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_a_key_that_was_lost_waits_for_its_record() {
    let (stage, _clock) = Stage::at_noon().await;
    let (key, standing) = fresh(10_000);
    let batch = admitted(&key, 5, 1_000);
    let Settled::Unknown(fence) = stage.ledger.settle(&batch).await.expect("an answer") else { panic!("known") };
    let rolled_up = domain::Standing { used: Some(Used { day: TODAY, count: 20 }), ..standing };
    assert!(stage.ledger.fill(&rolled_up, &fence).await.expect("a fill"));
    assert_eq!(settle(&stage, &batch).await, (25, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demos_requests_are_settled_once_too() {
    let (stage, _clock) = Stage::at_noon().await;
    let batch = DemoBatch { number: 1, days: vec![Used { day: TODAY, count: 6 }] };
    assert!(!stage.ledger.settle_demo(&batch, None).await.expect("an answer"), "the count is lost");
    let rolled_up = Some(Some(Used { day: TODAY, count: 30 }));
    for _ in 0..2 {
        assert!(stage.ledger.settle_demo(&batch, rolled_up).await.expect("an answer"));
    }
    let DemoVerdict::Admitted { charged, .. } = stage.ledger.charge_demo().await.expect("a verdict") else {
        panic!("not admitted")
    };
    assert_eq!(charged.used, 37);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_from_before_the_store_was_lost_is_not_charged_again() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, standing) = stage.known(10_000).await;
    let name = ChargeName::next();
    stage.ledger.charge(&key, name).await.expect("a verdict that nobody hears of");
    assert_eq!(stage.admitted(&key).await, 2, "the next verdict tells of it, and is rolled up");
    stage.redis.flushall().await.expect("a lost store");
    clock.advance_ms(10);
    let rolled_up = domain::Standing { used: Some(Used { day: TODAY, count: 2 }), ..standing };
    stage.fill(&key, &rolled_up).await;
    let batch = Batch { unanswered: vec![NamedCharge { at: NOON, name }], ..batch(&key) };
    assert_eq!(settle(&stage, &batch).await, (2, 1));
    assert_eq!(settle(&stage, &batch).await, (2, 1), "whoever asks again is told the same");
}
