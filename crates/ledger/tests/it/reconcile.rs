//! Pending charges are counted once, even if replies are lost.

use ipseity_domain::{ApiKey, BURST_LIMIT, DEMO_DAILY_LIMIT, DailyUsage, KeyPause, UtcDay};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, DemoReconcileBatch, DemoVerdict, LedgerTime, PendingCharge, ReconcileBatch,
    Reconciled, UnconfirmedCharge, Verdict,
};

use crate::fixture::{LedgerFixture, NOON, TODAY, arrived_now, empty_batch, lost_charge, new_key, swept_usage};

/// Requests that were certainly not charged, `ago_ms` before noon.
fn batch_with_requests(key: &ApiKey, count: i64, ago_ms: u64) -> ReconcileBatch {
    let charge = || PendingCharge { at: LedgerTime(NOON.0 - ago_ms), id: ChargeId::next() };
    let recent = (0..count.min(300)).map(|_| charge()).collect();
    ReconcileBatch { days: vec![(TODAY, count)], recent, ..empty_batch(key) }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_sent_twice_is_reconciled_once() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    let batch = batch_with_requests(&key, 7, 1_000);
    assert_eq!(fixture.reconcile(&batch).await, (8, 0));
    assert_eq!(fixture.reconcile(&batch).await, (8, 0));
    assert_eq!(fixture.charge_admitted(&key).await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_with_a_lost_reply_is_found_by_its_id() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    let [applied, lost] = [ChargeId::next(), ChargeId::next()];
    fixture
        .ledger
        .charge(&key, applied, Arrival::AtOwner(LedgerTime(NOON.0 + 1_000)), AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let sent = lost_charge(&fixture.redis, LedgerTime(NOON.0 + 1_000)).await;
    clock.advance_ms(1_001);
    let unconfirmed = [applied, lost].map(|id| UnconfirmedCharge { sent, id, is_admitted: true }).to_vec();
    assert_eq!(fixture.reconcile(&ReconcileBatch { unconfirmed, ..empty_batch(&key) }).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_older_than_the_log_is_not_charged_again() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    let id = ChargeId::next();
    fixture.ledger.charge(&key, id, arrived_now(), AppliedRestrictions::default()).await.expect("charge succeeds");
    clock.advance_ms(60_001);
    redis::cmd("DEL")
        .arg(fixture.redis_key("log", &key).await)
        .exec_async(&mut fixture.connection().await)
        .await
        .expect("log is deleted");
    let sent = lost_charge(&fixture.redis, LedgerTime(NOON.0 + 1_000)).await;
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciled_requests_count_toward_the_burst_limit() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    for _ in 0..100 {
        fixture.charge_admitted(&key).await;
    }
    assert_eq!(fixture.reconcile(&batch_with_requests(&key, 150, 30_000)).await, (250, 0));
    for _ in 0..50 {
        fixture.charge_admitted(&key).await;
    }
    clock.advance_ms(29_999);
    let pause = fixture.charge_pausing(&key).await;
    assert_eq!(pause.counts.iter().map(|count| usize::from(*count)).sum::<usize>(), BURST_LIMIT + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciled_requests_leave_the_window_at_their_real_time() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10_000).await;
    fixture.reconcile(&batch_with_requests(&key, 300, 30_000)).await;
    clock.advance_ms(30_000);
    assert_eq!(fixture.charge_admitted(&key).await, 301);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_quota_refusal_is_not_mistaken_for_a_charge() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(1).await;
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    clock.advance_ms(1);
    let id = ChargeId::next();
    let sent = lost_charge(&fixture.redis, LedgerTime(NOON.0 + 1)).await;
    let charge = fixture.ledger.charge(&key, id, Arrival::AtOwner(sent.arrival), AppliedRestrictions::default());
    let verdict = charge.await.expect("charge succeeds");
    assert!(matches!(verdict, Verdict::QuotaExhausted { .. }), "{verdict:?}");
    clock.advance_ms(1_001);
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_reconciled_to_their_day_even_over_the_limit() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    for _ in 0..10 {
        fixture.charge_admitted(&key).await;
    }
    clock.advance_ms(86_400_000);
    let days = vec![(TODAY, 3), (UtcDay(TODAY.0 + 1), 4)];
    let reconciled =
        fixture.ledger.reconcile(&ReconcileBatch { days, ..empty_batch(&key) }).await.expect("Redis answers");
    let Reconciled::Done { quota, .. } = reconciled else { panic!("no record") };
    assert_eq!((quota.day, quota.used), (UtcDay(TODAY.0 + 1), 4));
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0, 13), (key.id, TODAY.0 + 1, 4)]);
    assert_eq!(fixture.charge_admitted(&key).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_pause_is_reconciled_unless_its_burst_epoch_is_over_or_the_limit_was_raised() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    for (burst_epoch, per_second, is_paused) in [(1, 6, true), (2, 6, false), (1, 5, false)] {
        let (key, _) = fixture.filled_key(10_000).await;
        let pause = KeyPause { key: key.id, burst_epoch, at_ms: NOON.0, counts: [per_second; 60] };
        fixture.reconcile(&ReconcileBatch { burst_epoch, pause: Some(pause.clone()), ..empty_batch(&key) }).await;
        assert_eq!(matches!(fixture.charge(&key).await, Verdict::Paused { .. }), is_paused);
        let unrecorded = fixture.ledger.unrecorded_pauses_of(key.id).await.expect("Redis answers");
        assert_eq!(unrecorded.contains(&pause), is_paused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_of_a_lost_key_waits_for_its_record() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = new_key(10_000);
    let batch = batch_with_requests(&key, 5, 1_000);
    let Reconciled::Unknown(fence) = fixture.ledger.reconcile(&batch).await.expect("Redis answers") else {
        panic!("record exists")
    };
    let record_with_usage =
        ipseity_domain::KeyRecord { usage: Some(DailyUsage { day: TODAY, count: 20 }), ..key_record };
    assert!(fixture.ledger.fill(&record_with_usage, &fence).await.expect("fill succeeds"));
    assert_eq!(fixture.reconcile(&batch).await, (25, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_batch_is_reconciled_once() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let batch = DemoReconcileBatch { batch_id: 1, days: vec![DailyUsage { day: TODAY, count: 6 }] };
    assert!(!fixture.ledger.reconcile_demo(&batch, None).await.expect("Redis answers"), "Redis has no count");
    let stored_usage = Some(Some(DailyUsage { day: TODAY, count: 30 }));
    for _ in 0..2 {
        assert!(fixture.ledger.reconcile_demo(&batch, stored_usage).await.expect("Redis answers"));
    }
    let DemoVerdict::Admitted { quota, .. } =
        fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds")
    else {
        panic!("not admitted")
    };
    assert_eq!(quota.used, 37);
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_made_before_a_data_loss_is_not_charged_again() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    let id = ChargeId::next();
    fixture.ledger.charge(&key, id, arrived_now(), AppliedRestrictions::default()).await.expect("charge succeeds");
    assert_eq!(fixture.charge_admitted(&key).await, 2, "the next verdict includes it, and is flushed to PostgreSQL");
    fixture.redis.flushall().await.expect("data is deleted");
    clock.advance_ms(10);
    let record_with_usage =
        ipseity_domain::KeyRecord { usage: Some(DailyUsage { day: TODAY, count: 2 }), ..key_record };
    fixture.fill(&key, &record_with_usage).await;
    let sent = lost_charge(&fixture.redis, NOON).await;
    clock.advance_ms(1_001);
    let batch =
        ReconcileBatch { unconfirmed: vec![UnconfirmedCharge { sent, id, is_admitted: true }], ..empty_batch(&key) };
    assert_eq!(fixture.reconcile(&batch).await, (2, 1));
    assert_eq!(fixture.reconcile(&batch).await, (2, 1), "a second attempt returns the same");
}
