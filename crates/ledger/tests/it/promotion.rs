//! A primary and a replica that is promoted by hand: found without a restart, whatever became of the primary.

use std::time::{Duration, Instant};

use domain::{Key, Standing};
use ledger::{ChargeName, Ledger, LedgerError, LedgerOptions, Verdict};
use testkit::{Redis, RedisOptions, eventually};

use crate::stage::{Stage, fresh, used};

const HEAL_MAX: Duration = Duration::from_secs(5);
const HASTY: Duration = Duration::from_millis(200);

/// The stage's server with a replica in step, and a ledger that knows of both; the replica is named first.
async fn pair() -> (Stage, Redis, Ledger) {
    let stage = Stage::open().await;
    let replica = Redis::start(RedisOptions::default()).await.expect("a server");
    replica.follow(&stage.redis).await.expect("a replica in step");
    let url = format!("{}, {}", replica.url(), stage.redis.url());
    let ledger = Ledger::new(&LedgerOptions { url, timeout: HASTY }).expect("a ledger");
    (stage, replica, ledger)
}

/// A key that was charged once, by way of the primary.
async fn charged_once(ledger: &Ledger) -> (Key, Standing) {
    let (key, standing) = fresh(10);
    assert_eq!(healed(ledger, &key, &standing).await.0, 1);
    (key, standing)
}

/// Charges until it succeeds, filling if need be; returns the count and how long it took.
async fn healed(ledger: &Ledger, key: &Key, standing: &Standing) -> (u64, Duration) {
    let (start, mut count) = (Instant::now(), 0);
    eventually("a verdict", Duration::from_secs(30), async || {
        match ledger.charge(key, ChargeName::next()).await {
            Ok(Verdict::Unknown(fence)) => drop(ledger.fill(standing, &fence).await),
            Ok(verdict) => count = used(&verdict),
            Err(_) => {}
        }
        count > 0
    })
    .await
    .expect("a heal");
    (count, start.elapsed())
}

/// Waits until the replica has what the primary has, so that a promotion loses nothing.
async fn in_step(primary: &Redis) {
    let mut connection = primary.connection().await.expect("a connection");
    // WAIT speaks of its own connection's writes; this one comes after all others.
    let (acknowledged,): (u32,) = redis::pipe()
        .cmd("SET")
        .arg("in step")
        .arg(1)
        .ignore()
        .cmd("WAIT")
        .arg(1)
        .arg(10_000)
        .query_async(&mut connection)
        .await
        .expect("an answer");
    assert_eq!(acknowledged, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_promoted_after_its_primary_was_killed_is_found() {
    let (mut stage, replica, ledger) = pair().await;
    let (key, standing) = charged_once(&ledger).await;
    in_step(&stage.redis).await;
    stage.redis.kill9();
    for _ in 0..5 {
        // At the most it says that it does not know the key, and takes no fill.
        let verdict = ledger.charge(&key, ChargeName::next()).await;
        assert!(matches!(verdict, Err(_) | Ok(Verdict::Unknown(_))), "a replica admits nobody: {verdict:?}");
    }
    replica.promote().await.expect("a promotion");
    let (count, took) = healed(&ledger, &key, &standing).await;
    assert_eq!(count, 2);
    assert!(took < HEAL_MAX, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_promoted_while_its_primary_is_frozen_is_found() {
    let (mut stage, replica, ledger) = pair().await;
    let (key, standing) = charged_once(&ledger).await;
    in_step(&stage.redis).await;
    stage.redis.freeze();
    assert!(matches!(ledger.charge(&key, ChargeName::next()).await, Err(LedgerError::Unanswered)));
    replica.promote().await.expect("a promotion");
    let (count, took) = healed(&ledger, &key, &standing).await;
    assert_eq!(count, 2);
    assert!(took < HEAL_MAX, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_that_are_exchanged_are_followed_there_and_back() {
    let (stage, replica, ledger) = pair().await;
    let (key, standing) = charged_once(&ledger).await;
    let servers = [&stage.redis, &replica];
    for (round, expected) in [(0, 2), (1, 3), (0, 4)] {
        let (old, new) = (servers[round], servers[1 - round]);
        in_step(old).await;
        new.promote().await.expect("a promotion");
        old.follow(new).await.expect("a replica in step");
        let (count, took) = healed(&ledger, &key, &standing).await;
        assert_eq!(count, expected);
        assert!(took < HEAL_MAX, "{took:?}");
    }
}
