//! The layout of a key record, byte by byte. If this test fails, the layout has changed: raise its version, and adapt
//! the test of the upgrade.

use ipseity_domain::{ApiKey, DailyUsage, KeyFlags, KeyPause, KeyRecord, PreviousDigest, Scope, UtcDay};
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, LedgerTime, Verdict};
use redis::cmd;

use crate::fixture::{DAY_MS, LedgerFixture, NOON, TODAY, arrived_now, generate_key, new_key, swept_usage};

/// Name and width of each column.
const COLUMNS: [(&str, usize); 19] = [
    ("incarnation", 16),
    ("digest", 32),
    ("paused", 1),
    ("newest_ms", 13),
    ("today", 6),
    ("today_count", 12),
    ("yesterday", 6),
    ("yesterday_count", 12),
    ("unflushed", 1),
    ("deactivated", 1),
    ("burst_limit", 4),
    ("daily_limit", 8),
    ("burst_epoch", 9),
    ("scope", 4),
    ("generation", 9),
    ("log_start_ms", 13),
    ("open_slots", 8),
    ("previous_digest", 32),
    ("previous_expires_s", 10),
];

async fn read_record(fixture: &LedgerFixture, key: &ApiKey) -> Vec<u8> {
    let redis_key = fixture.redis_key("k", key).await;
    cmd("GET").arg(redis_key).query_async(&mut fixture.connection().await).await.expect("record exists")
}

fn column<'a>(record: &'a [u8], name: &str) -> &'a [u8] {
    let index = COLUMNS.iter().position(|(column, _)| *column == name).expect("known column");
    let start = COLUMNS[..index].iter().map(|(_, width)| width).sum();
    &record[start..start + COLUMNS[index].1]
}

/// Compares columns with texts.
fn assert_columns(record: &[u8], expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(String::from_utf8_lossy(column(record, name)), *value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_write_every_column() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = new_key(1_000_000);
    let key_record = KeyRecord {
        previous: Some(PreviousDigest { digest: generate_key().digest, expires_at_s: 1_900_000_000 }),
        scope: Scope::Ip,
        generation: 7,
        burst_epoch: 3,
        usage: Some(DailyUsage { day: TODAY, count: 41 }),
        previous_usage: Some(DailyUsage { day: UtcDay(TODAY.0 - 5), count: 12 }),
        ..key_record
    };
    fixture.fill(&key, &key_record).await;
    let (today, yesterday) = (format!("{:06}", TODAY.0), format!("{:06}", TODAY.0 - 5));
    let noon = format!("{:013}", NOON.0);
    let filled = read_record(&fixture, &key).await;
    assert_eq!(filled.len(), COLUMNS.iter().map(|(_, width)| width).sum::<usize>());
    let unchanged = [
        ("yesterday", yesterday.as_str()),
        ("yesterday_count", "000000000012"),
        ("deactivated", "0"),
        ("burst_limit", "0000"),
        ("daily_limit", "01000000"),
        ("burst_epoch", "000000003"),
        ("scope", "ip  "),
        ("generation", "000000007"),
        ("log_start_ms", noon.as_str()),
        ("open_slots", "        "),
        ("previous_expires_s", "1900000000"),
    ];
    assert_columns(&filled, &unchanged);
    let empty_log =
        [("paused", "0"), ("newest_ms", "0000000000000"), ("today_count", "000000000041"), ("unflushed", "0")];
    assert_columns(&filled, &empty_log);
    assert_eq!(column(&filled, "digest"), key.digest.as_bytes());
    assert_eq!(column(&filled, "previous_digest"), key_record.previous.expect("previous secret").digest.as_bytes());

    clock.advance_ms(5);
    let arrival = Arrival::AtOwner(LedgerTime(NOON.0 + 3));
    fixture
        .ledger
        .charge(&key, ChargeId::next(), arrival, AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let charged = read_record(&fixture, &key).await;
    assert_columns(&charged, &unchanged);
    let charged_at = format!("{:013}", NOON.0 + 5);
    let counted =
        [("newest_ms", charged_at.as_str()), ("today", &today), ("today_count", "000000000042"), ("unflushed", "1")];
    assert_columns(&charged, &counted);
    let log_key = fixture.redis_key("log", &key).await;
    let log: Vec<String> = cmd("LRANGE")
        .arg(log_key)
        .arg(0)
        .arg(-1)
        .query_async(&mut fixture.connection().await)
        .await
        .expect("log exists");
    let arrived_at = format!("{:013}", NOON.0 + 3);
    assert!(log.len() == 1 && log[0].starts_with(&arrived_at) && log[0].len() == 19, "{log:?}");

    let flags = KeyFlags { deactivated: true, paused: true };
    fixture.publish(&KeyRecord { flags, previous: None, generation: 8, ..key_record }).await;
    let published = read_record(&fixture, &key).await;
    assert_eq!(published.len(), charged.len() - 42, "without a previous secret");
    assert_columns(&published, &[("paused", "1"), ("deactivated", "1"), ("generation", "000000008")]);
    assert_columns(&published, &[("today_count", "000000000042"), ("unflushed", "2"), ("log_start_ms", &noon)]);
}

/// Composes a record.
fn compose_record(incarnation: &[u8], key: &ApiKey, columns: &[(&str, &str)]) -> Vec<u8> {
    let mut record = Vec::new();
    for (name, width) in COLUMNS {
        let text = columns.iter().find(|(column, _)| *column == name).map(|(_, text)| text.as_bytes());
        match (name, text) {
            ("incarnation", _) => record.extend(incarnation),
            ("digest", _) => record.extend(key.digest.as_bytes()),
            ("open_slots", _) => record.extend([b' '; 8]),
            (_, Some(text)) => {
                record.extend(vec![b'0'; width - text.len()]);
                record.extend(text);
            }
            ("previous_digest" | "previous_expires_s", None) => {}
            (_, None) => record.extend(vec![b'0'; width]),
        }
    }
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_read_a_record_composed_by_hand() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, _) = fixture.filled_key(1).await;
    let incarnation = column(&read_record(&fixture, &key).await, "incarnation").to_owned();
    let (today, yesterday) = (TODAY.0.to_string(), (TODAY.0 - 1).to_string());
    let columns = [
        ("today", today.as_str()),
        ("today_count", "98"),
        ("yesterday", &yesterday),
        ("yesterday_count", "77"),
        ("unflushed", "0"),
        ("daily_limit", "99"),
        ("burst_epoch", "12"),
        ("scope", "full"),
        ("generation", "5"),
    ];
    let redis_key = fixture.redis_key("k", &key).await;
    let write = async |columns: &[(&str, &str)]| {
        let record = compose_record(&incarnation, &key, columns);
        cmd("SET")
            .arg(&redis_key)
            .arg(record)
            .exec_async(&mut fixture.connection().await)
            .await
            .expect("Redis answers");
    };
    write(&columns).await;
    let verdict = fixture
        .ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let Verdict::Admitted { scope, quota, burst_epoch, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    assert_eq!((scope, burst_epoch), (Scope::Full, 12));
    assert_eq!((quota.limit, quota.used, quota.day, quota.now), (99, 99, TODAY, NOON));
    assert!(matches!(fixture.charge(&key).await, Verdict::QuotaExhausted { .. }));
    assert_eq!(swept_usage(&fixture).await, [(key.id, TODAY.0 - 1, 77), (key.id, TODAY.0, 99)]);

    write(&[&columns[..], &[("paused", "1")]].concat()).await;
    assert!(matches!(fixture.charge(&key).await, Verdict::Paused { .. }));
    write(&[&columns[..], &[("deactivated", "1")]].concat()).await;
    assert!(matches!(fixture.charge(&key).await, Verdict::Inactive(_)));
}

/// A record of the layout `i2`, as the previous version wrote it.
fn previous_layout_record(key: &ApiKey, is_paused: bool) -> Vec<u8> {
    let mut record = b"0123456789abcdef".to_vec();
    record.extend(key.digest.as_bytes());
    record.push(if is_paused { b'1' } else { b'0' });
    record.extend(format!("{:013}", NOON.0 - 1_000).bytes());
    record.extend(format!("{:06}{:012}{:06}{:012}", TODAY.0, 33, TODAY.0 - 1, 44).bytes());
    record.extend(b"0".iter().chain(b"000000001000").chain(b"000000001").chain(b"full").chain(b"000000001"));
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_takes_counts_and_pauses_over() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let mut connection = fixture.connection().await;
    for is_paused in [false, true] {
        let (key, key_record) = new_key(1_000);
        // A fill creates the fence, which tells the bucket.
        fixture.fill(&key, &key_record).await;
        let redis_key = fixture.redis_key("k", &key).await;
        fixture.ledger.delete_key_record(key.id).await.expect("record is deleted");
        let previous_key = redis_key.replacen("i3:", "i2:", 1);
        let previous = previous_layout_record(&key, is_paused);
        cmd("SET").arg(previous_key).arg(previous).exec_async(&mut connection).await.expect("Redis answers");

        // PostgreSQL has less of today, and not the pause.
        let usage = Some(DailyUsage { day: TODAY, count: 30 });
        fixture.fill(&key, &KeyRecord { usage, ..key_record.clone() }).await;
        let swept = swept_usage(&fixture).await;
        let expected = [(key.id, TODAY.0 - 1, 44), (key.id, TODAY.0, 33)];
        assert_eq!(swept.iter().filter(|(id, _, _)| *id == key.id).copied().collect::<Vec<_>>(), expected);
        let unrecorded = fixture.ledger.unrecorded_pauses_of(key.id).await.expect("Redis answers");
        if is_paused {
            assert!(matches!(fixture.charge(&key).await, Verdict::Paused { .. }));
            assert!(matches!(&unrecorded[..], [KeyPause { burst_epoch: 1, .. }]), "{unrecorded:?}");
            fixture.publish(&KeyRecord { generation: 2, burst_epoch: 2, ..key_record }).await;
        }
        assert_eq!(fixture.charge_admitted(&key).await, 34, "paused: {is_paused}");
        clock.advance_ms(DAY_MS as i64);
        assert_eq!(fixture.charge_admitted(&key).await, 1, "the next day");
        clock.advance_ms(-(DAY_MS as i64));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_record_of_the_previous_layout_is_ignored() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10).await;
    let previous_key = fixture.redis_key("k", &key).await.replacen("i3:", "i2:", 1);
    fixture.ledger.delete_key_record(key.id).await.expect("record is deleted");
    let mut connection = fixture.connection().await;
    for garbage in [&b"garbage"[..], &[b'x'; 120], &previous_layout_record(&key, false)[..80]] {
        cmd("SET").arg(&previous_key).arg(garbage).exec_async(&mut connection).await.expect("Redis answers");
        fixture.fill(&key, &key_record).await;
        assert_eq!(fixture.charge_admitted(&key).await, 1);
        fixture.ledger.delete_key_record(key.id).await.expect("record is deleted");
    }
}
