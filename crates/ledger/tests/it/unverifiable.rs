//! Charges without a reply that the log cannot prove. They are reported, and never charged twice.

use ipseity_domain::{ApiKey, BURST_LIMIT, DailyUsage, KeyRecord};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, LedgerTime, PendingCharge, ReconcileBatch, Reconciled, SentCharge,
};
use ipseity_testkit::TestClock;
use redis::cmd;

use crate::fixture::{LedgerFixture, NOON, TODAY, empty_batch, lost_charge};

/// When the reply is lost: a second after noon.
const SENT_AT: LedgerTime = LedgerTime(NOON.0 + 1_000);

/// A key with one charge at `SENT_AT`, whose reply was lost.
async fn key_with_a_lost_reply() -> (LedgerFixture, TestClock, ApiKey, KeyRecord, SentCharge, ChargeId) {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    let id = ChargeId::next();
    fixture
        .ledger
        .charge(&key, id, Arrival::AtOwner(SENT_AT), AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let sent = lost_charge(&fixture.redis, SENT_AT).await;
    (fixture, clock, key, key_record, sent, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_is_not_reconciled_while_it_may_still_be_applied() {
    let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
    let batch = fixture.unconfirmed_batch(&key, sent, id);
    for _ in 0..2 {
        assert_eq!(fixture.ledger.reconcile(&batch).await.expect("Redis answers"), Reconciled::TooEarly);
        clock.advance_ms(500);
    }
    assert_eq!(fixture.ledger.reconcile(&batch).await.expect("Redis answers"), Reconciled::TooEarly);
    clock.advance_ms(1);
    assert_eq!(fixture.reconcile(&batch).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_before_a_resume_is_unverifiable() {
    let (fixture, clock, key, key_record, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(10);
    fixture.publish(&KeyRecord { generation: 2, burst_epoch: 2, ..key_record }).await;
    clock.advance_ms(1_101);
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_before_the_clock_was_set_back_is_unverifiable() {
    for (back_ms, later_ms) in [(2_000, 1_101), (30_000, 31_101), (30_000, 45_000)] {
        let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
        clock.advance_ms(-back_ms);
        fixture.charge_admitted(&key).await;
        // The clock may reach the time of the charge again.
        clock.advance_ms(later_ms);
        let batch = fixture.unconfirmed_batch(&key, sent, id);
        assert_eq!(fixture.reconcile(&batch).await, (2, 1), "{back_ms} ms back, {later_ms} ms later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_is_unverifiable_if_a_clock_that_was_days_ahead_hides_that_it_was_set_back() {
    const TWO_DAYS_MS: i64 = 2 * 86_400_000;
    let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(TWO_DAYS_MS);
    fixture.charge_admitted(&key).await;
    clock.advance_ms(-TWO_DAYS_MS - 30_000);
    fixture.charge_admitted(&key).await;
    clock.advance_ms(31_101);
    // The count of the wrong day is discarded.
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_before_the_clock_was_set_back_and_a_resume_is_unverifiable() {
    let (fixture, clock, key, key_record, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(-30_000);
    fixture.publish(&KeyRecord { generation: 2, burst_epoch: 2, ..key_record }).await;
    clock.advance_ms(31_101);
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_is_unverifiable_if_the_log_expired_while_the_clock_was_ahead() {
    const LOG_TTL_MS: i64 = 130_000;
    for is_reconciled in [false, true] {
        let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
        let log_key = fixture.redis_key("log", &key).await;
        clock.advance_ms(LOG_TTL_MS + 1);
        let has_log: bool =
            cmd("EXISTS").arg(log_key).query_async(&mut fixture.connection().await).await.expect("reply");
        assert!(!has_log, "the log did not expire");
        clock.advance_ms(10_000 - LOG_TTL_MS);
        // Either starts a new log in the burst window of the lost one.
        if is_reconciled {
            let recent = vec![PendingCharge { at: LedgerTime(SENT_AT.0 + 5_000), id: ChargeId::next() }];
            fixture.reconcile(&ReconcileBatch { days: vec![(TODAY, 1)], recent, ..empty_batch(&key) }).await;
        } else {
            fixture.charge_admitted(&key).await;
        }
        let batch = fixture.unconfirmed_batch(&key, sent, id);
        assert_eq!(fixture.reconcile(&batch).await, (2, 1), "reconciled: {is_reconciled}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_that_left_a_full_log_is_unverifiable() {
    let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(30);
    let at = LedgerTime(SENT_AT.0 + 30);
    let recent = (0..BURST_LIMIT).map(|_| PendingCharge { at, id: ChargeId::next() }).collect();
    fixture.reconcile(&ReconcileBatch { days: vec![(TODAY, 300)], recent, ..empty_batch(&key) }).await;
    clock.advance_ms(1_101);
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (301, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_is_taken_back_only_if_it_was_charged() {
    let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
    fixture.charge_admitted(&key).await;
    clock.advance_ms(1_101);
    let mut batch = fixture.unconfirmed_batch(&key, sent, ChargeId::next());
    batch.unconfirmed[0].is_admitted = false;
    assert_eq!(fixture.reconcile(&batch).await, (2, 0), "it was not charged");
    let mut batch = fixture.unconfirmed_batch(&key, sent, id);
    batch.unconfirmed[0].is_admitted = false;
    assert_eq!(fixture.reconcile(&batch).await, (1, 0));
    let batch = ReconcileBatch { days: vec![(TODAY, -1)], ..empty_batch(&key) };
    assert_eq!(fixture.reconcile(&batch).await, (0, 0), "a charge with a reply");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_a_lost_reply_is_not_counted_twice_after_a_data_loss() {
    let (fixture, clock, key, key_record, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(1_101);
    let batch = ReconcileBatch { days: vec![(TODAY, 7)], ..fixture.unconfirmed_batch(&key, sent, id) };
    assert_eq!(fixture.reconcile(&batch).await, (8, 0));
    fixture.redis.flushall().await.expect("data is deleted");
    let usage = Some(DailyUsage { day: TODAY, count: 8 });
    fixture.fill(&key, &KeyRecord { usage, ..key_record }).await;
    // The node did not get the reply.
    let first_attempt = Some(lost_charge(&fixture.redis, LedgerTime(SENT_AT.0 + 1_101)).await);
    let again = ReconcileBatch { first_attempt, ..batch.clone() };
    for _ in 0..2 {
        assert_eq!(fixture.reconcile(&again).await, (8, 8), "a second attempt returns the same");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_a_lost_reply_is_counted_if_redis_kept_its_memory() {
    let (fixture, clock, key, _, sent, id) = key_with_a_lost_reply().await;
    clock.advance_ms(1_101);
    let first_attempt = Some(lost_charge(&fixture.redis, LedgerTime(SENT_AT.0 + 1_101)).await);
    let batch = ReconcileBatch { days: vec![(TODAY, 7)], first_attempt, ..fixture.unconfirmed_batch(&key, sent, id) };
    assert_eq!(fixture.reconcile(&batch).await, (8, 0));
    assert_eq!(fixture.reconcile(&batch).await, (8, 0));
}
