//! Memory per key. Unknown keys take none.

use std::sync::Arc;

use ipseity_domain::{BURST_LIMIT, KeyRecord, PlaintextKey, PreviousDigest};
use ipseity_ledger::{AppliedRestrictions, ChargeId, Verdict};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;

use crate::fixture::{LedgerFixture, arrived_now, generate_key, ledger_on, new_key};

const GENERATED_KEYS: usize = 10_000;
const BUCKET_COUNT: usize = 1_024;

#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_store_nothing_but_fences() {
    let fixture = LedgerFixture::open().await;
    let ledger = Arc::new(ledger_on(&fixture.redis));
    let mut calls = JoinSet::new();
    for _ in 0..GENERATED_KEYS {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move {
            matches!(
                ledger.charge(&generate_key(), ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await,
                Ok(Verdict::Unknown(_))
            )
        });
    }
    assert!(calls.join_all().await.into_iter().all(|unknown| unknown));
    let redis_keys: Vec<String> =
        cmd("KEYS").arg("*").query_async(&mut fixture.connection().await).await.expect("KEYS succeeds");
    assert!(redis_keys.len() <= BUCKET_COUNT, "{} Redis keys", redis_keys.len());
    assert!(redis_keys.iter().all(|redis_key| redis_key.ends_with(":fence")));
}

/// Bytes of all Redis keys of one API key.
async fn key_bytes(connection: &mut MultiplexedConnection, key: &ipseity_domain::ApiKey) -> u64 {
    let redis_keys: Vec<String> =
        cmd("KEYS").arg(format!("*:{}", key.id)).query_async(connection).await.expect("KEYS succeeds");
    let mut bytes = 0;
    for redis_key in redis_keys {
        let usage =
            cmd("MEMORY").arg("USAGE").arg(redis_key).arg("SAMPLES").arg(0).query_async::<u64>(connection).await;
        bytes += usage.expect("size is known");
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_key_takes_600_bytes_and_a_busy_one_3600() {
    let fixture = LedgerFixture::open().await;
    let mut connection = fixture.connection().await;
    let (key, key_record) = new_key(10_000);
    // The largest record: the key was just rotated.
    let old = PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key();
    let previous = Some(PreviousDigest { digest: old.digest, expires_at_s: 4_000_000_000 });
    fixture.fill(&key, &KeyRecord { previous, ..key_record }).await;
    let idle = key_bytes(&mut connection, &key).await;
    assert!(idle > 0 && idle <= 600, "{idle} bytes");
    for _ in 0..BURST_LIMIT {
        fixture.charge_admitted(&key).await;
    }
    let busy = key_bytes(&mut connection, &key).await;
    assert!(busy > idle && busy <= 3_600, "{busy} bytes");
}
