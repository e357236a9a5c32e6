//! What keys cost, and that strangers' keys cost nothing.

use std::sync::Arc;

use domain::{BURST_MAX, ClearKey, Retired, Standing};
use ledger::{ChargeName, Verdict};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;

use crate::stage::{Stage, fresh, mint, node};

const MINTED: usize = 10_000;
const BUCKETS: usize = 1_024;

#[tokio::test(flavor = "multi_thread")]
async fn keys_minted_by_a_stranger_grow_nothing_beyond_the_fences() {
    let stage = Stage::open().await;
    let node = Arc::new(node(&stage.redis));
    let mut calls = JoinSet::new();
    for _ in 0..MINTED {
        let node = Arc::clone(&node);
        calls.spawn(async move { matches!(node.charge(&mint(), ChargeName::next()).await, Ok(Verdict::Unknown(_))) });
    }
    assert!(calls.join_all().await.into_iter().all(|unknown| unknown));
    let names: Vec<String> = cmd("KEYS").arg("*").query_async(&mut stage.connection().await).await.expect("names");
    assert!(names.len() <= BUCKETS, "{} names", names.len());
    assert!(names.iter().all(|name| name.ends_with(":fence")));
}

/// Bytes of everything that is kept of one key.
async fn bytes(connection: &mut MultiplexedConnection, key: &domain::Key) -> u64 {
    let names: Vec<String> =
        cmd("KEYS").arg(format!("*:{}", key.id)).query_async(connection).await.expect("a key's names");
    let mut bytes = 0;
    for name in names {
        let usage = cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query_async::<u64>(connection).await;
        bytes += usage.expect("a size");
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_key_takes_600_bytes_and_one_at_its_burst_limit_3500() {
    let stage = Stage::open().await;
    let mut connection = stage.connection().await;
    let (key, standing) = fresh(10_000);
    // As large as a record gets: rolled a moment ago.
    let old = ClearKey::roll(key.id, || fastrand::u8(..)).key();
    let retired = Some(Retired { digest: old.digest, until_s: 4_000_000_000 });
    stage.fill(&key, &Standing { retired, ..standing }).await;
    let idle = bytes(&mut connection, &key).await;
    assert!(idle > 0 && idle <= 600, "{idle} bytes");
    for _ in 0..BURST_MAX {
        stage.admitted(&key).await;
    }
    let busy = bytes(&mut connection, &key).await;
    assert!(busy > idle && busy <= 3_500, "{busy} bytes");
}
