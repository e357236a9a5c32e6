//! The status of a key: what Redis counts, read without a write.

use ipseity_domain::{DailyUsage, KeyChange, LimitLevel};
use ipseity_ledger::{FoundStatus, KeyCounts};

use crate::fixture::{DAY_MS, LedgerFixture, NOON, TODAY, new_key};

/// Number of writes that Redis has processed.
async fn write_count(fixture: &LedgerFixture) -> String {
    let info: String = redis::cmd("INFO")
        .arg("persistence")
        .query_async(&mut fixture.connection().await)
        .await
        .expect("INFO succeeds");
    let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save")).expect("line exists");
    line.to_owned()
}

#[tokio::test]
async fn status_counts_the_day_and_the_burst_window_and_writes_nothing() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, mut record) = fixture.filled_key(10).await;
    for _ in 0..3 {
        fixture.charge_admitted(&key).await;
    }
    let writes = write_count(&fixture).await;
    let read = async || {
        let found = fixture.ledger.key_status(&key).await.expect("Redis answers");
        let FoundStatus::Status(status) = found else { panic!("no status: {found:?}") };
        assert_eq!((status.scope, status.daily_limit), (record.scope, 10));
        status.counts.expect("Redis counts")
    };
    assert_eq!(read().await, KeyCounts { day: 3, burst: 3 });
    for (after_ms, expected) in [
        (59_000, KeyCounts { day: 3, burst: 3 }),
        (61_000, KeyCounts { day: 3, burst: 0 }),
        (DAY_MS, KeyCounts { day: 0, burst: 0 }),
    ] {
        clock.freeze_at_ms(i64::try_from(NOON.0 + after_ms).expect("time fits into i64"));
        fixture.ledger.ping().await.expect("Redis answers");
        fixture.ledger.refresh_clocks().await;
        assert_eq!(read().await, expected, "after {after_ms} ms");
    }
    assert_eq!(write_count(&fixture).await, writes);
    record.flags.paused = true;
    record.flags.deactivated = true;
    record.generation += 1;
    let _ = fixture.ledger.apply_change(&KeyChange::Updated(record.clone())).await.expect("change is applied");
    let status = fixture.ledger.key_status(&key).await.expect("Redis answers");
    assert!(matches!(status, FoundStatus::Status(status) if status.flags == record.flags), "{status:?}");
}

#[tokio::test]
async fn status_needs_a_record_and_its_secret() {
    let fixture = LedgerFixture::open().await;
    let (key, _) = fixture.filled_key(10).await;
    let (unknown, _) = new_key(10);
    let wrong = ipseity_domain::ApiKey { id: key.id, digest: unknown.digest };
    assert_eq!(fixture.ledger.key_status(&unknown).await.expect("Redis answers"), FoundStatus::NoRecord);
    assert_eq!(fixture.ledger.key_status(&wrong).await.expect("Redis answers"), FoundStatus::WrongSecret);
}

#[tokio::test]
async fn key_is_near_its_burst_limit_while_80_percent_are_within_60_seconds() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(100).await;
    let ((idle, _), (unknown, _)) = (fixture.filled_key(10).await, new_key(10));
    let read = async || {
        let keys = [(idle.id, 300), (unknown.id, 300), (key.id, 300)];
        let [idle, unknown, busy] =
            <[_; 3]>::try_from(fixture.ledger.recent_use_of(&keys).await.expect("Redis answers")).expect("three");
        assert_eq!((idle.burst, unknown.burst, unknown.usage), (LimitLevel::Normal, LimitLevel::Normal, None));
        busy
    };
    // The daily limit rejects most of them. They count nevertheless.
    for _ in 0..239 {
        fixture.charge(&key).await;
    }
    let writes = write_count(&fixture).await;
    assert_eq!(read().await.burst, LimitLevel::Normal);
    assert_eq!(write_count(&fixture).await, writes);
    fixture.charge(&key).await;
    assert_eq!(read().await.usage, Some(DailyUsage { day: TODAY, count: 100 }));
    for (after_ms, expected) in [(0, LimitLevel::Near), (59_000, LimitLevel::Near), (61_000, LimitLevel::Normal)] {
        clock.freeze_at_ms(i64::try_from(NOON.0 + after_ms).expect("time fits into i64"));
        assert_eq!(read().await.burst, expected, "after {after_ms} ms");
    }
    assert!(fixture.ledger.recent_use_of(&[]).await.expect("read succeeds").is_empty());
}
