//! Slots that migrate between primaries: no data is lost, no outdated data is trusted, and no request is applied twice.

use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, DEMO_DAILY_LIMIT, KeyFlags, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, ChargeId, LedgerError, Verdict};
use ipseity_testkit::RedisCluster;

use crate::fixture::{LedgerFixture, admitted_count, arrived_now, ledger_with_timeout, new_key, sweep};
use crate::pause::is_paused;

/// A key with a record, its slot, its owner and another primary.
struct MovedKey {
    key: ApiKey,
    key_record: KeyRecord,
    slot: u16,
    from: usize,
    to: usize,
}

async fn movable_key(fixture: &LedgerFixture<RedisCluster>) -> MovedKey {
    let (key, key_record) = fixture.filled_key(10_000).await;
    let (from, record) = fixture.redis.find_key(&format!("*:k:{}", key.id)).await.expect("record exists");
    let slot = fixture.redis.slot_of(&record).await.expect("slot is known");
    MovedKey { key, key_record, slot, from, to: (from + 1) % 3 }
}

impl MovedKey {
    async fn move_away(&self, fixture: &LedgerFixture<RedisCluster>) {
        fixture.redis.move_slots(self.slot..=self.slot, self.from, self.to).await.expect("slot migrates");
    }

    async fn move_back(&self, fixture: &LedgerFixture<RedisCluster>) {
        fixture.redis.move_slots(self.slot..=self.slot, self.to, self.from).await.expect("slot migrates");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_slot_keeps_counts_request_times_and_pauses() {
    let fixture = LedgerFixture::cluster().await;
    let moved = movable_key(&fixture).await;
    for count in 1..=200 {
        assert_eq!(fixture.charge_admitted(&moved.key).await, count);
    }
    moved.move_away(&fixture).await;
    fixture.fill(&moved.key, &moved.key_record).await;
    for count in 201..=300 {
        assert_eq!(fixture.charge_admitted(&moved.key).await, count, "the count came with the record");
    }
    // Requests before the migration count.
    let pause = fixture.charge_pausing(&moved.key).await;
    assert_eq!(pause.counts.iter().map(|&count| u32::from(count)).sum::<u32>(), 301);

    moved.move_back(&fixture).await;
    fixture.fill(&moved.key, &moved.key_record).await;
    assert!(is_paused(&fixture.charge(&moved.key).await), "the pause is not in PostgreSQL yet");
    assert_eq!(sweep(&fixture.ledger, Duration::from_secs(2)).await.expect("first sweep").pauses, [pause]);

    fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    let (from, demo_key) = fixture.redis.find_key("*{demo}*").await.expect("demo record exists");
    let slot = fixture.redis.slot_of(&demo_key).await.expect("slot is known");
    fixture.redis.move_slots(slot..=slot, from, (from + 1) % 3).await.expect("slot migrates");
    let verdict = fixture.ledger.charge_demo_with_stored_usage(DEMO_DAILY_LIMIT, None).await.expect("charge succeeds");
    assert!(matches!(verdict, ipseity_ledger::DemoVerdict::Admitted { quota, .. } if quota.used == 2), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_made_while_a_slot_was_moved_survives_its_return() {
    let fixture = LedgerFixture::cluster().await;
    let moved = movable_key(&fixture).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 1);
    moved.move_away(&fixture).await;
    let flags = KeyFlags { deactivated: true, paused: false };
    let inactive = KeyRecord { flags, generation: 2, ..moved.key_record.clone() };
    fixture.publish(&inactive).await;
    moved.move_back(&fixture).await;
    fixture.fill(&moved.key, &inactive).await;
    assert!(matches!(fixture.charge(&moved.key).await, Verdict::Inactive(_)));

    let active = KeyRecord { flags: KeyFlags::default(), generation: 3, ..inactive };
    fixture.publish(&active).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 2, "no count was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_with_a_fence_of_the_previous_owner_is_rejected() {
    let fixture = LedgerFixture::cluster().await;
    let moved = movable_key(&fixture).await;
    fixture.ledger.delete_key_record(moved.key.id).await.expect("data is deleted");
    let fence = fixture.expect_unknown(&moved.key).await;
    moved.move_away(&fixture).await;
    assert!(!fixture.ledger.fill(&moved.key_record, &fence).await.expect("Redis answers"));
    fixture.fill(&moved.key, &moved.key_record).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_migrating_slot_wait_and_are_applied_once() {
    let fixture = LedgerFixture::cluster().await;
    let moved = movable_key(&fixture).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 1);
    let mut migration = fixture.redis.begin_migration(moved.from, moved.to).await.expect("slot migrates");
    migration.begin_slot(moved.slot).await.expect("slot migration starts");

    let short_timeout = ledger_with_timeout(fixture.redis.url(), Duration::from_millis(100));
    let start = Instant::now();
    let error = short_timeout
        .charge(&moved.key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("slot is migrating")
        .error;
    assert!(matches!(&error, LedgerError::NotApplied(cause) if cause.code() == Some("TRYAGAIN")), "{error:?}");
    assert!(start.elapsed() < Duration::from_millis(1_000), "{:?}", start.elapsed());

    let finish_migration = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        while migration.migrate_keys(moved.slot, 1).await.expect("keys migrate") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        migration.finish_slot(moved.slot).await.expect("slot migration ends");
    };
    let (verdict, ()) = tokio::join!(fixture.charge(&moved.key), finish_migration);
    let Verdict::Unknown(fence) = verdict else { panic!("record exists: {verdict:?}") };
    assert!(fixture.ledger.fill(&moved.key_record, &fence).await.expect("fill succeeds"));
    assert_eq!(fixture.charge_admitted(&moved.key).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_slot_serves_keys_complete_on_one_side() {
    let fixture = LedgerFixture::cluster().await;
    let moved = movable_key(&fixture).await;
    // With an unrecorded pause, all five Redis keys exist.
    let pause = fixture.charge_until_paused(&moved.key).await;
    let resumed = KeyRecord { generation: 2, burst_epoch: 2, ..moved.key_record.clone() };
    fixture.publish(&resumed).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 301);
    let patterns = ["k", "log"].map(|kind| format!("*:{kind}:{}", moved.key.id));
    let (_, record) = fixture.redis.find_key(&patterns[0]).await.expect("record exists");
    let bucket = record.split(":k:").next().expect("key has a bucket").to_owned();
    let mut migration = fixture.redis.begin_migration(moved.from, moved.to).await.expect("slot migrates");
    migration.begin_slot(moved.slot).await.expect("slot migration starts");

    assert_eq!(fixture.charge_admitted(&moved.key).await, 302, "no Redis key has migrated");
    let changed = KeyRecord { generation: 3, daily_limit: 20_000, ..resumed };
    fixture.publish(&changed).await;
    assert_eq!(fixture.charge_admitted(&moved.key).await, 303, "the record is overwritten");

    let (_, log) = fixture.redis.find_key(&patterns[1]).await.expect("log exists");
    for redis_key in
        [record, log, format!("{bucket}:fence"), format!("{bucket}:pending"), format!("{bucket}:unflushed")]
    {
        migration.migrate_key(&redis_key).await.expect("keys migrate");
    }
    let Verdict::Unknown(fence) = fixture.charge(&moved.key).await else { panic!("the new owner trusts the record") };
    assert!(fixture.ledger.fill(&changed, &fence).await.expect("fill succeeds"), "all Redis keys have migrated");
    let verdict = fixture.charge(&moved.key).await;
    assert_eq!(admitted_count(&verdict), 304);
    let unrecorded = fixture.ledger.unrecorded_pauses_of(moved.key.id).await.expect("read succeeds");
    assert_eq!(unrecorded.iter().map(|pause| pause.at_ms).collect::<Vec<_>>(), [pause.at_ms]);
    fixture.ledger.mark_pause_recorded(&pause).await.expect("pause is marked as recorded");
    while migration.migrate_keys(moved.slot, 10).await.expect("keys migrate") > 0 {}
    migration.finish_slot(moved.slot).await.expect("slot migration ends");
    assert_eq!(fixture.charge_admitted(&moved.key).await, 305);

    let (unknown_key, _) = new_key(1);
    fixture.expect_unknown(&unknown_key).await;
}
