//! A counter store that is away, slow or not in charge: told in time, and healed without a restart.

use std::time::{Duration, Instant};

use domain::Pause;
use ledger::{ChargeName, Ledger, LedgerError, LedgerOptions, Verdict};
use redis::cmd;
use testkit::eventually;

use crate::stage::{Stage, node};

const TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout, and what a busy machine may take besides.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);

fn hasty(stage: &Stage) -> Ledger {
    within(stage, TIMEOUT)
}

fn within(stage: &Stage, timeout: Duration) -> Ledger {
    Ledger::new(&LedgerOptions { url: stage.redis.url(), timeout }).expect("a ledger")
}

/// The failure of a charge, which has to come in time.
async fn failure(ledger: &Ledger, key: &domain::Key) -> LedgerError {
    let start = Instant::now();
    let error = ledger.charge(key, ChargeName::next()).await.expect_err("a failure");
    assert!(start.elapsed() < ANSWER_MAX, "{error} after {:?}", start.elapsed());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_were_flushed_are_sent_again_in_line() {
    let stage = Stage::open().await;
    let (key, mut standing) = stage.known(10).await;
    for generation in 2..5 {
        cmd("SCRIPT").arg("FLUSH").exec_async(&mut stage.connection().await).await.expect("no scripts");
        stage.admitted(&key).await;
        cmd("SCRIPT").arg("FLUSH").exec_async(&mut stage.connection().await).await.expect("no scripts");
        standing.generation = generation;
        stage.ledger.publish(&standing).await.expect("a publish");
        stage.ledger.charge_demo().await.expect("a verdict");
    }
    assert_eq!(stage.admitted(&key).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_became_a_replica_takes_nothing_until_it_is_promoted() {
    let stage = Stage::open().await;
    let (key, standing) = stage.known(10).await;
    assert_eq!(stage.admitted(&key).await, 1);
    let mut connection = stage.connection().await;
    // Nobody listens there: it keeps what it has, read-only.
    cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec_async(&mut connection).await.expect("a replica");
    for _ in 0..3 {
        let error = failure(&stage.ledger, &key).await;
        assert!(matches!(&error, LedgerError::NotApplied(cause) if cause.code() == Some("READONLY")), "{error:?}");
    }
    let pause = Pause { key: key.id, window: 1, at_ms: 0, counts: [0; 60] };
    for outcome in [
        stage.ledger.publish(&standing).await,
        stage.ledger.forget(key.id).await,
        stage.ledger.forget_yesterday(key.id).await,
        stage.ledger.confirm(&pause).await,
        stage.ledger.sweep(TIMEOUT).await.map(drop),
        stage.ledger.charge_demo_knowing(None).await.map(drop),
    ] {
        assert!(matches!(outcome, Err(LedgerError::NotApplied(_))), "{outcome:?}");
    }

    cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut connection).await.expect("a primary");
    stage.fill(&key, &standing).await;
    assert_eq!(stage.admitted(&key).await, 2, "nothing was applied in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_takes_nothing_and_says_so() {
    let stage = Stage::open().await;
    let (key, _) = stage.known(10).await;
    let mut connection = stage.connection().await;
    for (memory, is_full) in [(1, true), (0, false)] {
        cmd("CONFIG").arg("SET").arg("maxmemory").arg(memory).exec_async(&mut connection).await.expect("a setting");
        for outcome in
            [stage.ledger.charge(&key, ChargeName::next()).await.map(drop), stage.ledger.forget(key.id).await]
        {
            assert_eq!(matches!(outcome, Err(LedgerError::NotApplied(_))), is_full, "{outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_is_told_in_time_and_its_return_goes_unnoticed() {
    let mut stage = Stage::open().await;
    let ledger = within(&stage, Duration::from_secs(1));
    let (key, standing) = stage.known(10).await;
    ledger.check().await.expect("an answer");
    for round in 0..3 {
        stage.redis.kill9();
        for _ in 0..3 {
            let error = failure(&ledger, &key).await;
            // A call that is written while the other end dies is at times not told of it, and waits for as long as it may.
            let told =
                matches!(error, LedgerError::NotApplied(_) | LedgerError::Ambiguous(_) | LedgerError::Unanswered);
            assert!(told, "round {round}: {error:?}");
        }
        stage.redis.restart().await.expect("a server that comes back");
        let verdict = ledger.charge(&key, ChargeName::next()).await;
        assert!(matches!(verdict, Ok(Verdict::Unknown(_))), "round {round}: {verdict:?}");
    }
    stage.fill(&key, &standing).await;
    assert_eq!(stage.admitted(&key).await, 1);
    stage.redis.restart().await.expect("a server that comes back");
    let verdict = ledger.charge(&key, ChargeName::next()).await;
    assert!(matches!(verdict, Ok(Verdict::Unknown(_))), "restarted with no call in between: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_store_is_given_up_in_time_and_used_again_once_it_is_thawed() {
    let mut stage = Stage::open().await;
    let (connected, newcomer) = (hasty(&stage), hasty(&stage));
    let (key, _) = stage.known(10).await;
    connected.check().await.expect("an answer");
    stage.redis.freeze();
    for _ in 0..2 {
        assert!(matches!(failure(&connected, &key).await, LedgerError::Unanswered), "it may have been applied");
        assert!(matches!(failure(&newcomer, &key).await, LedgerError::Unreachable), "nothing was sent");
    }
    stage.redis.thaw();
    for ledger in [&connected, &newcomer] {
        let answers = async || ledger.check().await.is_ok();
        eventually("the ledger heals", Duration::from_secs(10), answers).await.expect("an answer");
    }
    assert_eq!(stage.admitted(&key).await, 3, "and two of four were");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_can_be_made_while_its_store_is_away() {
    let mut stage = Stage::open().await;
    stage.redis.kill9();
    let ledger = node(&stage.redis);
    assert!(ledger.check().await.is_err());
    stage.redis.restart().await.expect("a server");
    ledger.check().await.expect("an answer");
    assert!(Ledger::new(&LedgerOptions { url: "nonsense".to_owned(), timeout: TIMEOUT }).is_err());
}
