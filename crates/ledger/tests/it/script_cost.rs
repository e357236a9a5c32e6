//! The time that a call may take in Redis, which serves no other request meanwhile.

use std::time::Duration;

use futures_util::future::join_all;
use ipseity_domain::BURST_LIMIT;
use ipseity_ledger::{ChargeId, LedgerTime, PendingCharge, ReconcileBatch, UnconfirmedCharge, Verdict};
use redis::cmd;

use crate::fixture::{LedgerFixture, NOON, TODAY, empty_batch, lost_charge, sweep};

const CALL_US_MAX: u64 = 5_000;
/// The fastest of these counts, because other processes can interrupt Redis.
const ROUNDS: usize = 5;

/// Microseconds that scripts took since the last call of this function.
async fn script_us(fixture: &LedgerFixture) -> u64 {
    script_stats(fixture).await[1]
}

/// Number and microseconds of the script calls since the last call of this function.
async fn script_stats(fixture: &LedgerFixture) -> [u64; 2] {
    let mut connection = fixture.connection().await;
    let stats: String = cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("INFO succeeds");
    cmd("CONFIG").arg("RESETSTAT").exec_async(&mut connection).await.expect("statistics are reset");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    ["calls=", "usec="].map(|name| {
        let value = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok()));
        value.unwrap_or_default()
    })
}

fn requests_at(at: LedgerTime) -> Vec<PendingCharge> {
    (0..BURST_LIMIT).map(|_| PendingCharge { at, id: ChargeId::next() }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_of_64_keys_take_less_than_5_ms() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let mut fastest = u64::MAX;
    for _ in 0..ROUNDS {
        let mut keys = Vec::new();
        for _ in 0..64 {
            let (key, _) = fixture.filled_key(10_000).await;
            fixture.reconcile(&ReconcileBatch { recent: requests_at(NOON), ..empty_batch(&key) }).await;
            keys.push(key);
        }
        clock.advance_ms(1);
        fixture.charge(&keys[0]).await;
        script_us(&fixture).await;
        let verdicts = join_all(keys.iter().map(|key| fixture.charge(key))).await;
        let paused = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::PausedNow { .. })).count();
        assert_eq!(paused, 63, "the first was paused before");
        fastest = fastest.min(script_us(&fixture).await);
    }
    assert!(fastest < CALL_US_MAX, "{fastest} µs");
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciling_300_unconfirmed_charges_takes_less_than_5_ms() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let mut fastest = u64::MAX;
    for _ in 0..ROUNDS {
        let (key, _) = fixture.filled_key(10_000).await;
        clock.advance_ms(1_000);
        let at = fixture.ledger.owner_of(key.id).now();
        let logged = requests_at(at);
        let mut batch = ReconcileBatch { days: vec![(TODAY, 300)], recent: logged.clone(), ..empty_batch(&key) };
        fixture.reconcile(&batch).await;
        let sent = lost_charge(&fixture.redis, at).await;
        clock.advance_ms(5_000);
        fixture.reconcile(&empty_batch(&key)).await;
        // Every second one is in the log.
        let unconfirmed = logged.iter().skip(BURST_LIMIT / 2).map(|charge| charge.id);
        let unconfirmed = unconfirmed.chain((0..BURST_LIMIT / 2).map(|_| ChargeId::next()));
        batch = empty_batch(&key);
        batch.unconfirmed = unconfirmed.map(|id| UnconfirmedCharge { sent, id, is_admitted: true }).collect();
        script_us(&fixture).await;
        let (used, unverifiable) = fixture.reconcile(&batch).await;
        assert_eq!((used, unverifiable), (300, 150), "a full log cannot prove that a charge is missing");
        fastest = fastest.min(script_us(&fixture).await);
    }
    assert!(fastest < CALL_US_MAX, "{fastest} µs");
}

#[tokio::test(flavor = "multi_thread")]
async fn flush_of_500_keys_is_confirmed_by_two_calls() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (mut fewest, mut fastest) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        for _ in 0..500 {
            let (key, _) = fixture.filled_key(10).await;
            fixture.charge_admitted(&key).await;
        }
        let swept = sweep(&fixture.ledger, Duration::from_millis(1)).await.expect("first sweep").usage;
        assert_eq!(swept.len(), 500);
        script_us(&fixture).await;
        fixture.ledger.confirm_flush(&swept).await.expect("Redis answers");
        let [calls, us] = script_stats(&fixture).await;
        // The first round loads the script.
        (fewest, fastest) = (fewest.min(calls), fastest.min(us / 2));
        fixture.redis.flushall().await.expect("Redis is emptied");
    }
    assert_eq!(fewest, 2);
    assert!(fastest < CALL_US_MAX, "{fastest} µs");
}
