//! Charges that are made at the same time share calls, and each gets its own verdict.

use futures_util::future::join_all;
use ledger::Verdict;
use testkit::Redis;

use crate::stage::{Stage, used};

const KEYS: usize = 40;
const CHARGES: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn charges_of_many_keys_share_calls_and_get_their_own_verdicts() {
    let stage = Stage::open().await;
    charge_all_at_once(&stage).await;
    let calls = calls(&stage.redis).await;
    assert!(calls < KEYS as u64 * CHARGES / 2, "{calls} calls for {} charges", KEYS as u64 * CHARGES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_gets_those_of_one_bucket_in_a_call() {
    charge_all_at_once(&Stage::cluster().await).await;
}

/// Charges every key once more than its day allows, and a stranger in between, all at once, and checks what each was told.
async fn charge_all_at_once<S>(stage: &Stage<S>) {
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(stage.known(CHARGES - 1).await.0);
    }
    let charges = (0..CHARGES).flat_map(|_| &keys).map(|key| stage.charge(key));
    let stranger = crate::stage::fresh(1).0;
    let (verdicts, unknown) = tokio::join!(join_all(charges), stage.charge(&stranger));
    assert!(matches!(unknown, Verdict::Unknown(_)), "{unknown:?}");
    for place in 0..KEYS {
        let mut own: Vec<_> = verdicts.iter().skip(place).step_by(KEYS).collect();
        let spent = own.iter().position(|verdict| matches!(verdict, Verdict::DaySpent { .. }));
        own.remove(spent.expect("a spent day"));
        let mut counts: Vec<u64> = own.into_iter().map(used).collect();
        counts.sort_unstable();
        assert!(counts.into_iter().eq(1..CHARGES), "each counted once");
    }
}

/// Calls of scripts since the server was started, but for those that filled the records.
async fn calls(redis: &Redis) -> u64 {
    let mut connection = redis.connection().await.expect("a connection");
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("what was called");
    let calls =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok());
    // Each was found unknown by one call, and filled by another.
    calls.map_or(0, |calls: u64| calls.saturating_sub(2 * KEYS as u64))
}
