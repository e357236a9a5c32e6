//! Memory of a key: in Redis when idle and at its burst limit, and in PostgreSQL with the usage of one day.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ipseity_domain::BURST_LIMIT;
use ipseity_testkit::{Redis, eventually};
use redis::cmd;
use serde::Serialize;

use super::seeded_deployment::{SeededDeployment, redis_used_memory};
use crate::caller_pool::CallerPool;
use crate::load::LOOKUP_PATH;
use crate::load::paced::{self, PacedLoad};
use crate::progress::progress;

/// Number of keys at their burst limit; enough to outweigh other changes in Redis.
const BURST_KEYS: usize = 2_000;
/// Number of sampled names.
const SAMPLE_SIZE: usize = 1_000;
const SCAN_COUNT: usize = 10_000;
/// Longer than the expiry of anything that belongs to a single request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(240);

#[derive(Serialize)]
pub(super) struct KeyMemory {
    /// In Redis, by its used memory.
    pub(super) idle_bytes: f64,
    /// In Redis, by `MEMORY USAGE` of a sample.
    pub(super) idle_bytes_sampled: f64,
    pub(super) burst_bytes: f64,
    pub(super) burst_bytes_sampled: f64,
    /// In PostgreSQL: the key, its share of an account, its history.
    pub(super) postgres_bytes: f64,
    /// In PostgreSQL, with the usage of one day.
    pub(super) postgres_bytes_day: f64,
}

impl KeyMemory {
    pub(super) fn summary(&self) -> String {
        let Self { idle_bytes, idle_bytes_sampled, burst_bytes, burst_bytes_sampled, .. } = self;
        let (postgres_bytes, day_bytes) = (self.postgres_bytes, self.postgres_bytes_day - self.postgres_bytes);
        format!(
            "A key takes {idle_bytes:.0} bytes in Redis when idle ({idle_bytes_sampled:.0} by `MEMORY USAGE`), and \
             {burst_bytes:.0} ({burst_bytes_sampled:.0}) at its burst limit.\n\
             In PostgreSQL it takes {postgres_bytes:.0} bytes, plus {day_bytes:.0} for each day on which it is used."
        )
    }
}

pub(super) async fn measure_key_memory(deployments: &[SeededDeployment]) -> Result<KeyMemory> {
    let largest = &deployments[2];
    let keys = largest.pool.callers.len() as f64;
    progress("waiting until all keys are idle");
    let redis = &largest.deployment.redis;
    eventually("the logs of all keys are gone", IDLE_TIMEOUT, async || {
        count_burst_logs(redis).await.is_ok_and(|count| count == 0)
    })
    .await?;
    let idle_bytes = (redis_used_memory(redis).await? - largest.redis_bytes_before) as f64 / keys;
    let idle_bytes_sampled = mean_memory_usage(redis).await?;
    let [known, with_day] = largest.postgres_bytes.map(|bytes| bytes as f64 / keys);
    let (log_bytes, log_bytes_sampled) = burst_log_bytes(largest).await?;
    Ok(KeyMemory {
        idle_bytes,
        idle_bytes_sampled,
        burst_bytes: idle_bytes + log_bytes,
        burst_bytes_sampled: idle_bytes_sampled + log_bytes_sampled,
        postgres_bytes: known,
        postgres_bytes_day: with_day,
    })
}

/// Number of logs. Reading each name also removes expired ones that still take memory.
async fn count_burst_logs(redis: &Redis) -> Result<usize> {
    let mut connection = redis.connect().await?;
    let (mut cursor, mut count) = (0_u64, 0);
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("list");
        let (next, names): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
        count += names.len();
        if next == 0 {
            return Ok(count);
        }
        cursor = next;
    }
}

/// Mean memory of some names.
async fn mean_memory_usage(redis: &Redis) -> Result<f64> {
    let mut connection = redis.connect().await?;
    let mut bytes = 0;
    for _ in 0..SAMPLE_SIZE {
        let name: Vec<u8> = cmd("RANDOMKEY").query_async(&mut connection).await?;
        bytes += cmd("MEMORY").arg("USAGE").arg(name).query_async::<u64>(&mut connection).await?;
    }
    Ok(bytes as f64 / SAMPLE_SIZE as f64)
}

/// Memory of the log of a key at its burst limit, by used memory and by `MEMORY USAGE`.
async fn burst_log_bytes(seeded: &SeededDeployment) -> Result<(f64, f64)> {
    progress("bringing keys to their burst limit");
    let redis = &seeded.deployment.redis;
    let before = redis_used_memory(redis).await?;
    let callers = seeded.pool.callers[..BURST_KEYS].to_vec();
    let pool = Arc::new(CallerPool { file: seeded.pool.file.clone(), callers, origin: None });
    let requests = BURST_KEYS * BURST_LIMIT;
    let addresses = vec![seeded.deployment.nodes[0].http()];
    let load = PacedLoad { addresses, path: LOOKUP_PATH, pool, requests, rate: None, connections: paced::CONNECTIONS };
    let result = load.run().await?;
    ensure!(result.refused == 0, "{} requests were rejected before the burst limit", result.refused);
    let bytes = redis_used_memory(redis).await?.saturating_sub(before) as f64 / BURST_KEYS as f64;
    let mut connection = redis.connect().await?;
    let name = loop {
        let name: Vec<u8> = cmd("RANDOMKEY").query_async(&mut connection).await?;
        if cmd("TYPE").arg(&name).query_async::<String>(&mut connection).await? == "list" {
            break name;
        }
    };
    let sampled: u64 = cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query_async(&mut connection).await?;
    Ok((bytes, sampled as f64))
}
