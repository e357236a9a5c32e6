//! Information about the Redis servers, for operators. No verdict depends on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::redis::connection::RedisConnection;
use crate::redis::node::RedisNode;
use crate::redis::sentinel::SentinelInfo;
use crate::redis::subscription::Subscription;

/// Number of clock readings. The one with the shortest round trip is the most exact.
const CLOCK_SAMPLES: usize = 5;

/// A Redis server.
#[derive(Clone, Debug)]
pub struct RedisServerInfo {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// `Redis` or `Valkey`.
    pub product: &'static str,
    /// Its version, such as `7.0.15`.
    pub version: String,
    /// Whether it is a primary, which accepts writes.
    pub is_primary: bool,
    /// Whether its cluster serves every slot. `None` if it is not in a cluster.
    pub cluster_ok: Option<bool>,
    /// The eviction policy for full memory, such as `noeviction`.
    pub maxmemory_policy: String,
    /// Memory limit in bytes, or 0 for no limit.
    pub maxmemory_bytes: u64,
    /// Used memory in bytes.
    pub used_memory_bytes: u64,
    /// Whether the append-only file is enabled.
    pub aof_enabled: bool,
    /// Whether it saves snapshots automatically. `None` if the setting cannot be read.
    pub rdb_enabled: Option<bool>,
    /// Whether the last write of the append-only file or the last snapshot failed.
    pub last_save_failed: bool,
    /// How far its clock is ahead of this machine's clock, in milliseconds.
    pub clock_offset_ms: i64,
    /// Duration of one round trip.
    pub round_trip: Duration,
    /// Whether the user may publish changes of keys and receive them, which optimistic remote nodes need.
    pub has_change_channel: bool,
}

impl Ledger {
    /// Returns information about every server that owns a slot.
    ///
    /// # Errors
    /// Fails if one of them does not answer in time.
    pub async fn diagnostics(&self) -> Result<Vec<RedisServerInfo>, LedgerError> {
        let deadline = Instant::now() + self.timeout;
        let mut servers = Vec::new();
        for (node, connection) in self.router.find_owners(deadline).await? {
            let result = timeout_at(deadline, inspect_server(&node, &connection)).await;
            servers.push(result.unwrap_or(Err(LedgerError::ReplyTimeout))?);
        }
        Ok(servers)
    }

    /// What each Sentinel answers. Empty if the URL names servers.
    pub async fn sentinels(&self) -> Vec<SentinelInfo> {
        match self.router.sentinels() {
            Some(sentinels) => sentinels.inspect().await,
            None => Vec::new(),
        }
    }
}

async fn inspect_server(
    node: &Arc<RedisNode>,
    connection: &Arc<RedisConnection>,
) -> Result<RedisServerInfo, LedgerError> {
    let mut conn = connection.conn.clone();
    let info: String = redis::cmd("INFO").query_async(&mut conn).await?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    let number = |name: &str| field(name).parse().unwrap_or_default();
    // Many hosted servers do not allow CONFIG.
    let settings = redis::cmd("CONFIG").arg("GET").arg("save").query_async(&mut conn).await;
    let rdb_enabled =
        settings.ok().map(|settings: HashMap<String, String>| settings.values().any(|points| !points.is_empty()));
    let cluster_ok = if connection.identity.is_cluster {
        let cluster_info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut conn).await?;
        Some(cluster_info.lines().any(|line| line == "cluster_state:ok"))
    } else {
        None
    };
    let valkey = field("valkey_version");
    let (product, version) = if valkey.is_empty() { ("Redis", field("redis_version")) } else { ("Valkey", valkey) };
    let (clock_offset_ms, round_trip) = measure_clock_offset(&mut conn).await?;
    Ok(RedisServerInfo {
        address: node.address().to_string(),
        product,
        version: version.to_owned(),
        is_primary: connection.identity.is_primary,
        cluster_ok,
        maxmemory_policy: field("maxmemory_policy").to_owned(),
        maxmemory_bytes: number("maxmemory"),
        used_memory_bytes: number("used_memory"),
        aof_enabled: field("aof_enabled") == "1",
        rdb_enabled,
        last_save_failed: ["rdb_last_bgsave_status", "aof_last_write_status"].iter().any(|name| field(name) == "err"),
        clock_offset_ms,
        round_trip,
        has_change_channel: Subscription::open(node, |_| {}).await.is_some(),
    })
}

/// Reads the server's clock in a script, as charges do.
async fn measure_clock_offset(conn: &mut MultiplexedConnection) -> Result<(i64, Duration), LedgerError> {
    let mut best: Option<(i64, Duration)> = None;
    for _ in 0..CLOCK_SAMPLES {
        let (sent_at, sent_ms) = (Instant::now(), now_ms());
        let mut eval = redis::cmd("EVAL");
        let (s, us): (i64, i64) = eval.arg("return redis.call('TIME')").arg(0).query_async(conn).await?;
        let round_trip = sent_at.elapsed();
        let half_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or_default();
        if best.is_none_or(|(_, quickest)| round_trip < quickest) {
            best = Some((s * 1000 + us / 1000 - sent_ms - half_ms, round_trip));
        }
    }
    best.ok_or(LedgerError::ReplyTimeout)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
