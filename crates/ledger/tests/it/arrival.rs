//! Requests count from their arrival at a node, however long their charges are on their way.

use ipseity_domain::{ApiKey, BURST_LIMIT};
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, LedgerTime, ReconcileBatch, UnconfirmedCharge, Verdict};

use crate::fixture::{
    DAY_MS, LedgerFixture, MIDNIGHT_MS, NOON, TODAY, admitted_count, empty_batch, lost_charge, swept_usage,
};

const BURST_WINDOW_MS: u64 = 60_000;

async fn charge_arrived(fixture: &LedgerFixture, key: &ApiKey, arrival_ms: u64) -> Verdict {
    let arrival = Arrival::AtOwner(LedgerTime(arrival_ms));
    fixture
        .ledger
        .charge(key, ChargeId::next(), arrival, AppliedRestrictions::default())
        .await
        .expect("charge succeeds")
}

#[tokio::test(flavor = "multi_thread")]
async fn key_just_below_its_burst_limit_is_never_paused_from_distant_nodes() {
    const REQUESTS: u64 = 900;
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    // 300 requests in 60.05 s, and what the way from each of five nodes takes.
    let mut requests: Vec<(u64, u64)> = (0..REQUESTS)
        .map(|request| {
            let arrival_ms = NOON.0 + request * (BURST_WINDOW_MS + 50) / BURST_LIMIT as u64;
            (arrival_ms + [1, 10, 45, 75, 150][rng.usize(..5)] + rng.u64(..3), arrival_ms)
        })
        .collect();
    requests.sort_unstable();
    for (index, (charged_ms, arrival_ms)) in requests.into_iter().enumerate() {
        clock.freeze_at_ms(i64::try_from(charged_ms).expect("time fits into i64"));
        let verdict = charge_arrived(&fixture, &key, arrival_ms).await;
        assert!(matches!(verdict, Verdict::Admitted { .. }), "request {index}, seed {seed}: {verdict:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_301_in_60_seconds_pauses_the_key_in_any_order() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    // The charge of the first request takes longer than those after it.
    for arrival_ms in (1..BURST_LIMIT as u64).chain([0]) {
        admitted_count(&charge_arrived(&fixture, &key, NOON.0 + arrival_ms).await);
    }
    // It is the first to leave the window. The next one follows a millisecond later.
    clock.freeze_at_ms(i64::try_from(NOON.0 + BURST_WINDOW_MS).expect("time fits into i64"));
    admitted_count(&charge_arrived(&fixture, &key, NOON.0 + BURST_WINDOW_MS).await);
    let verdict = charge_arrived(&fixture, &key, NOON.0 + BURST_WINDOW_MS).await;
    assert!(matches!(verdict, Verdict::PausedNow { .. }), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_over_midnight_is_taken_back_from_the_day_it_was_charged_to() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let midnight = LedgerTime(MIDNIGHT_MS + DAY_MS);
    let (key, _) = fixture.filled_key(2).await;
    let sent = lost_charge(&fixture.redis, LedgerTime(midnight.0 - 50)).await;
    clock.freeze_at_ms(i64::try_from(midnight.0 - 20).expect("time fits into i64"));
    admitted_count(&charge_arrived(&fixture, &key, sent.arrival.0).await);
    clock.advance_ms(40);
    let [charged, rejected] = [ChargeId::next(), ChargeId::next()];
    let arrival = Arrival::AtOwner(sent.arrival);
    let verdict =
        fixture.ledger.charge(&key, charged, arrival, AppliedRestrictions::default()).await.expect("charge succeeds");
    assert_eq!(admitted_count(&verdict), 1, "the charge is of the new day");
    admitted_count(&fixture.charge(&key).await);
    let verdict =
        fixture.ledger.charge(&key, rejected, arrival, AppliedRestrictions::default()).await.expect("charge succeeds");
    assert!(matches!(verdict, Verdict::QuotaExhausted { .. }), "{verdict:?}");
    clock.advance_ms(1_101);
    let reconcile = async |id, is_admitted| {
        let unconfirmed = vec![UnconfirmedCharge { sent, id, is_admitted }];
        fixture.reconcile(&ReconcileBatch { unconfirmed, ..empty_batch(&key) }).await
    };
    assert_eq!(reconcile(charged, false).await, (1, 0), "taken back");
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0, 1), (key.id, TODAY.0 + 1, 1)]);
    assert_eq!(reconcile(rejected, true).await, (2, 0), "charged, although the quota had rejected it");
}
