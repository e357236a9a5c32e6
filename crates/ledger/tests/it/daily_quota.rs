//! The daily quota of a key.

use ipseity_domain::{DailyUsage, KeyRecord, PlaintextKey, PreviousDigest, UtcDay};
use ipseity_ledger::Verdict;

use crate::fixture::{LedgerFixture, NOON, TODAY};

#[tokio::test(flavor = "multi_thread")]
async fn lowered_limit_never_makes_remaining_negative() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10).await;
    for _ in 0..5 {
        fixture.charge_admitted(&key).await;
    }
    fixture.publish(&KeyRecord { daily_limit: 3, generation: 2, ..key_record.clone() }).await;
    let Verdict::QuotaExhausted { quota } = fixture.charge(&key).await else { panic!("admitted") };
    assert_eq!((quota.limit, quota.remaining(), quota.retry_after_s()), (3, 0, 43_200));
    fixture.publish(&KeyRecord { daily_limit: 7, generation: 3, ..key_record }).await;
    assert_eq!(fixture.charge_admitted(&key).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_counts_both_secrets_of_a_rotated_key_together() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (old, key_record) = fixture.filled_key(10).await;
    let new = PlaintextKey::rotate(old.id, || fastrand::u8(..)).to_api_key();
    let until_s = NOON.0 / 1000 + 60;
    let previous = Some(PreviousDigest { digest: old.digest, expires_at_s: until_s });
    let rotated = KeyRecord { digest: new.digest, previous, generation: 2, ..key_record };
    fixture.publish(&rotated).await;
    assert_eq!((fixture.charge_admitted(&old).await, fixture.charge_admitted(&new).await), (1, 2));
    clock.advance_ms(59_999);
    assert_eq!(fixture.charge_admitted(&old).await, 3);
    clock.advance_ms(1);
    assert!(matches!(fixture.charge(&old).await, Verdict::WrongSecret(_)));
    assert_eq!(fixture.charge_admitted(&new).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_with_exhausted_quota_can_still_be_paused() {
    let fixture = LedgerFixture::open().await;
    let (key, _) = fixture.filled_key(1).await;
    fixture.charge_admitted(&key).await;
    for _ in 1..300 {
        assert!(matches!(fixture.charge(&key).await, Verdict::QuotaExhausted { .. }));
    }
    assert!(matches!(fixture.charge(&key).await, Verdict::PausedNow { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_returned_in_the_order_of_the_requested_keys() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let ((busy, _), (idle, _)) = (fixture.filled_key(10).await, fixture.filled_key(10).await);
    let unknown_key = crate::fixture::generate_key();
    for _ in 0..3 {
        fixture.charge_admitted(&busy).await;
    }
    let usage = fixture.ledger.usage_of(&[idle.id, unknown_key.id, busy.id]).await.expect("read succeeds");
    assert_eq!(usage, [Some(DailyUsage { day: UtcDay(0), count: 0 }), None, Some(DailyUsage { day: TODAY, count: 3 })]);
    assert_eq!(fixture.ledger.usage_of(&[]).await.expect("read succeeds"), []);
}
