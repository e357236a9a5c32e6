//! The sweep: counts reach PostgreSQL from whichever node looks first.

use std::time::Duration;

use ipseity_domain::{DailyUsage, KeyRecord, UtcDay};
use ipseity_ledger::{AppliedRestrictions, ChargeId, ReconcileBatch};

use crate::fixture::{DAY_MS, LedgerFixture, TODAY, arrived_now, empty_batch, ledger_on, sweep, swept_usage};

const INTERVAL: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_both_days_are_swept_until_they_are_confirmed() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    for count in 1..=3 {
        assert_eq!(fixture.charge_admitted(&key).await, count);
    }
    clock.advance_ms(86_400_000);
    assert_eq!(fixture.charge_admitted(&key).await, 1);
    let expected = [(key.id, TODAY.0, 3), (key.id, TODAY.0 + 1, 1)];
    let swept = sweep(&fixture.ledger, INTERVAL).await.expect("first sweep").usage;
    assert_eq!(swept_usage(&fixture).await, expected);
    assert_eq!(fixture.charge_admitted(&key).await, 2);
    fixture.ledger.confirm_flush(&swept).await.expect("Redis answers");
    let expected = [(key.id, TODAY.0, 3), (key.id, TODAY.0 + 1, 2)];
    assert_eq!(swept_usage(&fixture).await, expected, "the count has changed since the sweep");
    clock.advance_ms(1_000);
    let swept = sweep(&fixture.ledger, INTERVAL).await.expect("interval is over").usage;
    fixture.ledger.confirm_flush(&swept).await.expect("Redis answers");
    assert_eq!(swept_usage(&fixture).await, []);
    assert_eq!(fixture.charge_admitted(&key).await, 3, "the next request is swept again");
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0, 3), (key.id, TODAY.0 + 1, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_a_killed_node_are_found_by_another() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    let killed = ledger_on(&fixture.redis);
    for _ in 0..4 {
        killed
            .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .expect("charge succeeds");
    }
    drop(killed);
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0, 4)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_finds_keys_near_their_burst_limit_whichever_node_received_the_requests() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let ((key, _), (paused, _)) = (fixture.filled_key(1_000).await, fixture.filled_key(1_000).await);
    let other_node = ledger_on(&fixture.redis);
    let sweep_near = async || {
        clock.advance_ms(100);
        let swept = sweep(&fixture.ledger, INTERVAL).await.expect("interval is over");
        fixture.ledger.confirm_flush(&swept.usage).await.expect("Redis answers");
        swept.near_burst_limit
    };
    for _ in 0..120 {
        let charged = other_node.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await;
        charged.expect("charge succeeds");
    }
    for _ in 120..239 {
        fixture.charge_admitted(&key).await;
    }
    assert_eq!(sweep_near().await, []);
    assert_eq!(fixture.charge_admitted(&key).await, 240);
    assert_eq!(sweep_near().await, [key.id]);
    assert_eq!(sweep_near().await, [], "the key made no request since the last sweep");
    clock.advance_ms(61_000);
    fixture.charge_admitted(&key).await;
    fixture.charge_until_paused(&paused).await;
    assert_eq!(sweep_near().await, [paused.id], "the requests of the first are over");
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_finds_keys_near_their_burst_limit_by_requests_above_their_daily_limit() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(100).await;
    let mut requests = 0;
    let mut sweep_after = async |count| {
        while requests < count {
            let charged = fixture.ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default());
            charged.await.expect("charge succeeds");
            requests += 1;
        }
        clock.advance_ms(100);
        let swept = sweep(&fixture.ledger, INTERVAL).await.expect("interval is over");
        fixture.ledger.confirm_flush(&swept.usage).await.expect("Redis answers");
        swept.near_burst_limit
    };
    assert_eq!(sweep_after(239).await, []);
    assert_eq!(sweep_after(240).await, [key.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_clock_that_was_ahead_does_not_stop_later_sweeps() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (interval, step_ms) = (Duration::from_secs(2), 400 * DAY_MS as i64);
    fixture.filled_key(10).await;
    clock.advance_ms(step_ms);
    assert!(sweep(&fixture.ledger, interval).await.is_some());
    clock.advance_ms(-step_ms);
    let other = ledger_on(&fixture.redis);
    assert!(sweep(&other, interval).await.is_some(), "the lease lasts for 400 days");
    assert!(sweep(&fixture.ledger, interval).await.is_none(), "the interval is not over");
}

#[tokio::test(flavor = "multi_thread")]
async fn yesterdays_count_is_complete_if_it_is_reconciled_after_its_flush() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    for _ in 0..3 {
        fixture.charge_admitted(&key).await;
    }
    clock.advance_ms(DAY_MS as i64);
    fixture.charge_admitted(&key).await;
    flush(&fixture).await;
    assert_eq!(swept_usage(&fixture).await, []);
    fixture.reconcile(&ReconcileBatch { days: vec![(TODAY, 5)], ..empty_batch(&key) }).await;
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0, 8), (key.id, TODAY.0 + 1, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unflushed_count_is_kept_when_its_column_is_needed() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(10).await;
    let mut expected = Vec::new();
    for day in 0..4 {
        for _ in 0..=day {
            fixture.charge_admitted(&key).await;
        }
        expected.push((key.id, TODAY.0 + day, u64::from(day) + 1));
        clock.advance_ms(DAY_MS as i64);
    }
    assert_eq!(swept_usage(&fixture).await, expected);
    flush(&fixture).await;
    assert_eq!(swept_usage(&fixture).await, []);
    fixture.charge_admitted(&key).await;
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0 + 3, 4), (key.id, TODAY.0 + 4, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciled_and_filled_days_never_replace_an_unflushed_count() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10).await;
    fixture.charge_admitted(&key).await;
    clock.advance_ms(3 * DAY_MS as i64);
    fixture.charge_admitted(&key).await;
    let days = vec![(UtcDay(TODAY.0 + 1), 2), (UtcDay(TODAY.0 + 2), 3)];
    fixture.reconcile(&ReconcileBatch { days, ..empty_batch(&key) }).await;
    let counts = [(TODAY.0, 1), (TODAY.0 + 1, 2), (TODAY.0 + 2, 3), (TODAY.0 + 3, 1)];
    let counts = counts.map(|(day, count)| (key.id, day, count));
    assert_eq!(swept_usage(&fixture).await, counts);

    // PostgreSQL has two newer days.
    clock.advance_ms(2 * DAY_MS as i64);
    fixture.ledger.invalidate_key_record(key.id).await.expect("Redis answers");
    let usage = |days, count| Some(DailyUsage { day: UtcDay(TODAY.0 + days), count });
    fixture.fill(&key, &KeyRecord { usage: usage(5, 6), previous_usage: usage(4, 5), ..key_record }).await;
    assert_eq!(swept_usage(&fixture).await[..4], counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sweep_finds_the_counts_of_all_keys() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let mut keys = Vec::new();
    for _ in 0..50 {
        let (key, _) = fixture.filled_key(10).await;
        fixture.charge_admitted(&key).await;
        keys.push(key.id);
    }
    keys.sort_unstable();
    assert_eq!(swept_usage(&fixture).await.iter().map(|(key, _, _)| *key).collect::<Vec<_>>(), keys);
    flush(&fixture).await;
    assert_eq!(swept_usage(&fixture).await, []);
}

/// Sweeps as if PostgreSQL has stored the counts.
async fn flush(fixture: &LedgerFixture) {
    let owner = fixture.ledger.owners().remove(0);
    let swept = fixture.ledger.sweep(&fixture.ledger.all_parts(&owner)).await.expect("Redis answers");
    assert!(!swept.has_more);
    fixture.ledger.confirm_flush(&swept.usage).await.expect("Redis answers");
}
