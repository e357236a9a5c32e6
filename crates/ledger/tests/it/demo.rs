//! The demo quota.

use ipseity_domain::{BURST_LIMIT, DEMO_DAILY_LIMIT, DailyUsage};
use ipseity_ledger::{DemoVerdict, Ledger, Quota};

use crate::fixture::{LedgerFixture, NOON, TODAY};

/// The counts of today and yesterday after an admitted request.
fn count_and_yesterday(verdict: DemoVerdict) -> (u64, Option<DailyUsage>) {
    let DemoVerdict::Admitted { quota, yesterday } = verdict else { panic!("not admitted: {verdict:?}") };
    (quota.used, yesterday)
}

async fn charge_demo_admitted(ledger: &Ledger) -> (u64, Option<DailyUsage>) {
    count_and_yesterday(ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"))
}

async fn charge_demo_with_stored_usage(ledger: &Ledger, stored_usage: Option<DailyUsage>) -> u64 {
    count_and_yesterday(
        ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, stored_usage).await.expect("charge succeeds"),
    )
    .0
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_quota_admits_1000_a_day_and_resets_at_midnight() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    assert_eq!(fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"), DemoVerdict::Unknown);
    assert_eq!(charge_demo_with_stored_usage(&fixture.ledger, None).await, 1);
    for count in 2..=DEMO_DAILY_LIMIT {
        assert_eq!(charge_demo_admitted(&fixture.ledger).await, (count, None));
    }
    let exhausted =
        Quota { now: NOON, limit: DEMO_DAILY_LIMIT, day: TODAY, used: DEMO_DAILY_LIMIT, burst_limit: BURST_LIMIT };
    for _ in 0..3 {
        assert_eq!(
            fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"),
            DemoVerdict::Exhausted(exhausted)
        );
    }
    assert_eq!((exhausted.remaining(), exhausted.retry_after_s()), (0, 43_200));

    clock.advance_ms(43_200_000 - 1);
    assert!(matches!(
        fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"),
        DemoVerdict::Exhausted(_)
    ));
    clock.advance_ms(1);
    let yesterday = Some(DailyUsage { day: TODAY, count: DEMO_DAILY_LIMIT });
    assert_eq!(charge_demo_admitted(&fixture.ledger).await, (1, yesterday));
    clock.advance_ms(-2);
    assert_eq!(charge_demo_admitted(&fixture.ledger).await, (2, yesterday), "a past day is not charged again");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_demo_count_resumes_from_the_larger_of_both_counts() {
    let (mut fixture, _clock) = LedgerFixture::at_noon().await;
    let stored_usage = |count| Some(DailyUsage { day: TODAY, count });
    assert_eq!(charge_demo_with_stored_usage(&fixture.ledger, stored_usage(7)).await, 8);
    assert_eq!(
        charge_demo_with_stored_usage(&fixture.ledger, stored_usage(500)).await,
        9,
        "the stored usage is ignored if Redis has the count"
    );
    fixture.redis.save_snapshot().await.expect("snapshot is saved");

    fixture.redis.flushall().await.expect("data is deleted");
    assert_eq!(fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"), DemoVerdict::Unknown);
    assert_eq!(charge_demo_with_stored_usage(&fixture.ledger, stored_usage(9)).await, 10);

    for (count, expected) in [(3, 10), (990, 991)] {
        fixture.redis.restore_snapshot().await.expect("Redis restarts");
        assert_eq!(fixture.ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds"), DemoVerdict::Unknown);
        assert_eq!(charge_demo_with_stored_usage(&fixture.ledger, stored_usage(count)).await, expected);
    }
}
