//! A clock that ran ahead into a later day. The days it wrote are discarded.

use ipseity_domain::{ApiKey, DEMO_DAILY_LIMIT, DailyUsage, KeyRecord, UtcDay};
use ipseity_ledger::{AppliedRestrictions, ChargeId, DemoReconcileBatch, DemoVerdict, Ledger, ReconcileBatch, Verdict};
use ipseity_testkit::TestClock;

use crate::fixture::{DAY_MS, LedgerFixture, NOON, TODAY, admitted_count, arrived_now, empty_batch};

/// Records last three days, so the second step deletes them.
const STEPS: [u32; 2] = [2, 400];

fn set_clock(clock: &TestClock, ms: u64) {
    clock.freeze_at_ms(i64::try_from(ms).expect("time fits into i64"));
}

fn usage(days: u32, count: u64) -> Option<DailyUsage> {
    Some(DailyUsage { day: UtcDay(TODAY.0 + days), count })
}

/// Charges a key, with a fill if its record has expired.
async fn charge_admitted(fixture: &LedgerFixture, key: &ApiKey, stored: &KeyRecord) -> u64 {
    let verdict = fixture.charge(key).await;
    if let Verdict::Unknown(fence) = verdict {
        assert!(fixture.ledger.fill(stored, &fence).await.expect("fill succeeds"));
        return fixture.charge_admitted(key).await;
    }
    admitted_count(&verdict)
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_is_right_after_the_clock_ran_ahead() {
    for days in STEPS {
        let (fixture, clock) = LedgerFixture::at_noon().await;
        let (key, key_record) = fixture.filled_key(10).await;
        for _ in 0..7 {
            fixture.charge_admitted(&key).await;
        }
        let stored = KeyRecord { usage: usage(0, 7), ..key_record.clone() };
        set_clock(&clock, NOON.0 + u64::from(days) * DAY_MS);
        assert_eq!(charge_admitted(&fixture, &key, &stored).await, 1, "a new day");
        set_clock(&clock, NOON.0 + 1_000);
        assert_eq!(fixture.charge_admitted(&key).await, 8, "the count of the day, {days} days");
        for _ in 0..2 {
            fixture.charge_admitted(&key).await;
        }
        assert!(matches!(fixture.charge(&key).await, Verdict::QuotaExhausted { .. }));

        fixture.redis.flushall().await.expect("data is deleted");
        let stored = KeyRecord { usage: usage(days, 1), previous_usage: usage(0, 10), ..key_record };
        fixture.fill(&key, &stored).await;
        assert!(matches!(fixture.charge(&key).await, Verdict::QuotaExhausted { .. }), "after a data loss");
        set_clock(&clock, NOON.0 + DAY_MS);
        assert_eq!(fixture.charge_admitted(&key).await, 1, "the next day");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_and_batch_discard_a_future_day() {
    for days in STEPS {
        let (fixture, clock) = LedgerFixture::at_noon().await;
        let keys = [fixture.filled_key(10).await, fixture.filled_key(10).await];
        for (key, _) in &keys {
            for _ in 0..4 {
                fixture.charge_admitted(key).await;
            }
        }
        set_clock(&clock, NOON.0 + u64::from(days) * DAY_MS);
        for (key, key_record) in &keys {
            charge_admitted(&fixture, key, &KeyRecord { usage: usage(0, 4), ..key_record.clone() }).await;
        }
        set_clock(&clock, NOON.0 + 1_000);
        let [(changed, key_record), (reconciled, _)] = keys;
        fixture.publish(&KeyRecord { generation: 2, daily_limit: 5, ..key_record }).await;
        assert_eq!(fixture.charge_admitted(&changed).await, 5);
        let days = vec![(TODAY, 2), (UtcDay(TODAY.0 + days), 3)];
        let batch = ReconcileBatch { days, ..empty_batch(&reconciled) };
        assert_eq!(fixture.reconcile(&batch).await, (9, 0), "a node with a wrong clock");
        assert_eq!(fixture.charge_admitted(&reconciled).await, 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_set_back_by_a_day_does_not_charge_the_past_day_again() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    fixture.charge_admitted(&key).await;
    clock.advance_ms(DAY_MS as i64);
    for count in 1..=5 {
        assert_eq!(fixture.charge_admitted(&key).await, count);
    }
    clock.advance_ms(-(DAY_MS as i64));
    let verdict = fixture
        .ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let Verdict::Admitted { quota, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    assert_eq!((quota.day, quota.used), (UtcDay(TODAY.0 + 1), 6));
}

async fn demo_count(ledger: &Ledger) -> u64 {
    let verdict = ledger.charge_demo(DEMO_DAILY_LIMIT).await.expect("charge succeeds");
    let DemoVerdict::Admitted { quota, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    quota.used
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_quota_is_right_after_the_clock_ran_ahead() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    for count in 2..=7 {
        assert_eq!(demo_count(&fixture.ledger).await, count);
    }
    set_clock(&clock, NOON.0 + 400 * DAY_MS);
    assert_eq!(demo_count(&fixture.ledger).await, 1);
    set_clock(&clock, NOON.0 + 1_000);
    assert_eq!(demo_count(&fixture.ledger).await, 8);

    set_clock(&clock, NOON.0 + 400 * DAY_MS);
    assert_eq!(demo_count(&fixture.ledger).await, 1);
    set_clock(&clock, NOON.0 + 2_000);
    let days = vec![DailyUsage { day: TODAY, count: 2 }, DailyUsage { day: UtcDay(TODAY.0 + 400), count: 3 }];
    let batch = DemoReconcileBatch { batch_id: 1, days };
    assert!(fixture.ledger.reconcile_demo(&batch, None).await.expect("Redis answers"));
    assert_eq!(demo_count(&fixture.ledger).await, 14);

    fixture.redis.flushall().await.expect("data is deleted");
    let stored = usage(400, 900);
    fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, stored).await.expect("charge succeeds");
    assert_eq!(demo_count(&fixture.ledger).await, 2, "a future day in PostgreSQL is ignored");
    set_clock(&clock, NOON.0 + DAY_MS);
    assert_eq!(demo_count(&fixture.ledger).await, 1, "the next day");
}
