//! Batches of concurrent charges.

use futures_util::future::join_all;
use ipseity_ledger::Verdict;
use ipseity_testkit::Redis;

use crate::fixture::{LedgerFixture, admitted_count};

const KEYS: usize = 40;
const CHARGES: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_charges_are_batched_with_separate_verdicts() {
    let fixture = LedgerFixture::open().await;
    charge_all_concurrently(&fixture).await;
    let calls = script_calls(&fixture.redis).await;
    assert!(calls < KEYS as u64 * CHARGES / 2, "{calls} calls for {} charges", KEYS as u64 * CHARGES);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_batches_hold_charges_of_one_bucket() {
    charge_all_concurrently(&LedgerFixture::cluster().await).await;
}

/// Charges every key once more than its quota allows, concurrently with an unknown key, and checks all verdicts.
async fn charge_all_concurrently<S>(fixture: &LedgerFixture<S>) {
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(fixture.filled_key(CHARGES - 1).await.0);
    }
    let charges = (0..CHARGES).flat_map(|_| &keys).map(|key| fixture.charge(key));
    let unknown_key = crate::fixture::new_key(1).0;
    let (verdicts, unknown) = tokio::join!(join_all(charges), fixture.charge(&unknown_key));
    assert!(matches!(unknown, Verdict::Unknown(_)), "{unknown:?}");
    for index in 0..KEYS {
        let mut key_verdicts: Vec<_> = verdicts.iter().skip(index).step_by(KEYS).collect();
        let exhausted = key_verdicts.iter().position(|verdict| matches!(verdict, Verdict::QuotaExhausted { .. }));
        key_verdicts.remove(exhausted.expect("quota is exhausted once"));
        let mut counts: Vec<u64> = key_verdicts.into_iter().map(admitted_count).collect();
        counts.sort_unstable();
        assert!(counts.into_iter().eq(1..CHARGES), "each request is counted once");
    }
}

/// Script calls since the server started, except those that filled the records.
async fn script_calls(redis: &Redis) -> u64 {
    let mut connection = redis.connect().await.expect("Redis accepts a connection");
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("INFO succeeds");
    let calls =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok());
    // Each key took one call that returned unknown, and one fill.
    calls.map_or(0, |calls: u64| calls.saturating_sub(2 * KEYS as u64))
}
