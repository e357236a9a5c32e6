//! The time that a call may take in Redis, which serves no other request meanwhile.

use futures_util::future::join_all;
use ipseity_domain::BURST_LIMIT;
use ipseity_ledger::{ChargeId, LedgerTime, PendingCharge, ReconcileBatch, UnconfirmedCharge, Verdict};
use redis::cmd;

use crate::fixture::{LedgerFixture, NOON, TODAY, empty_batch, lost_charge};

const CALL_US_MAX: u64 = 5_000;
/// The fastest of these counts, because other processes can interrupt Redis.
const ROUNDS: usize = 5;

/// Microseconds that scripts took since the last call of this function.
async fn script_us(fixture: &LedgerFixture) -> u64 {
    let mut connection = fixture.connection().await;
    let stats: String = cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("INFO succeeds");
    cmd("CONFIG").arg("RESETSTAT").exec_async(&mut connection).await.expect("statistics are reset");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let us = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")?.parse().ok()));
    us.unwrap_or_default()
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
