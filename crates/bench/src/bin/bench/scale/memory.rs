//! What a key takes: in Redis when it is known and idle, and at its burst limit; in PostgreSQL with one day's count.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use domain::BURST_MAX;
use redis::cmd;
use serde::Serialize;
use testkit::{Redis, eventually};

use super::houses::{Inhabited, used_memory};
use crate::crowd::Crowd;
use crate::load::PATH;
use crate::load::pace::Pace;
use crate::progress::progress;

/// Keys that are brought to their burst limit: so many that what else comes and goes in Redis meanwhile does not show.
const BURSTING: usize = 2_000;
/// Names that are asked for what they take.
const SAMPLE: usize = 1_000;
const SCANNED_AT_ONCE: usize = 10_000;
/// Longer than anything lasts that stands for a request alone.
const IDLE_MAX: Duration = Duration::from_secs(240);

#[derive(Serialize)]
pub(super) struct Memory {
    /// In Redis, by its memory in use.
    pub(super) idle_bytes: f64,
    /// The same by `MEMORY USAGE` of a sample.
    pub(super) idle_bytes_sampled: f64,
    pub(super) burst_bytes: f64,
    pub(super) burst_bytes_sampled: f64,
    /// In PostgreSQL: the key, its part of an account, its history.
    pub(super) postgres_bytes: f64,
    /// And with the count of one day.
    pub(super) postgres_bytes_day: f64,
}

impl Memory {
    pub(super) fn in_words(&self) -> String {
        let Self { idle_bytes, idle_bytes_sampled, burst_bytes, burst_bytes_sampled, .. } = self;
        let (postgres_bytes, day_bytes) = (self.postgres_bytes, self.postgres_bytes_day - self.postgres_bytes);
        format!(
            "A key takes {idle_bytes:.0} bytes in Redis when it is known and idle ({idle_bytes_sampled:.0} by `MEMORY USAGE`), {burst_bytes:.0} ({burst_bytes_sampled:.0}) at its \
             burst limit; in PostgreSQL {postgres_bytes:.0} bytes, and {day_bytes:.0} for each day on which it is used."
        )
    }
}

pub(super) async fn measure(houses: &[Inhabited]) -> Result<Memory> {
    let many = &houses[2];
    let keys = many.crowd.callers.len() as f64;
    progress("waiting until all keys are idle");
    let redis = &many.house.redis;
    eventually("the logs of all keys are gone", IDLE_MAX, async || {
        count_logs(redis).await.is_ok_and(|count| count == 0)
    })
    .await?;
    let idle_bytes = (used_memory(redis).await? - many.redis_bytes_before) as f64 / keys;
    let idle_bytes_sampled = sampled(redis).await?;
    let [known, with_day] = many.postgres_bytes.map(|bytes| bytes as f64 / keys);
    let (log_bytes, log_bytes_sampled) = log_bytes(many).await?;
    Ok(Memory {
        idle_bytes,
        idle_bytes_sampled,
        burst_bytes: idle_bytes + log_bytes,
        burst_bytes_sampled: idle_bytes_sampled + log_bytes_sampled,
        postgres_bytes: known,
        postgres_bytes_day: with_day,
    })
}

/// How many logs there are. Looking at each name also does away with those that have expired and still take memory.
async fn count_logs(redis: &Redis) -> Result<usize> {
    let mut connection = redis.connection().await?;
    let (mut place, mut count) = (0_u64, 0);
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(place).arg("COUNT").arg(SCANNED_AT_ONCE).arg("TYPE").arg("list");
        let (next, names): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
        count += names.len();
        if next == 0 {
            return Ok(count);
        }
        place = next;
    }
}

/// The mean of what some names take.
async fn sampled(redis: &Redis) -> Result<f64> {
    let mut connection = redis.connection().await?;
    let mut bytes = 0;
    for _ in 0..SAMPLE {
        let name: Vec<u8> = cmd("RANDOMKEY").query_async(&mut connection).await?;
        bytes += cmd("MEMORY").arg("USAGE").arg(name).query_async::<u64>(&mut connection).await?;
    }
    Ok(bytes as f64 / SAMPLE as f64)
}

/// What the log of a key takes that is at its burst limit; and the same by `MEMORY USAGE` of one.
async fn log_bytes(some: &Inhabited) -> Result<(f64, f64)> {
    progress("bringing keys to their burst limit");
    let redis = &some.house.redis;
    let before = used_memory(redis).await?;
    let callers = some.crowd.callers[..BURSTING].to_vec();
    let crowd = Arc::new(Crowd { file: some.crowd.file.clone(), callers });
    let requests = BURSTING * BURST_MAX;
    let addresses = vec![some.house.nodes[0].http()];
    let ran = Pace { addresses, path: PATH, crowd, requests, rate: None }.run().await?;
    ensure!(ran.refused == 0, "{} requests were refused on the way to the burst limit", ran.refused);
    let bytes = used_memory(redis).await?.saturating_sub(before) as f64 / BURSTING as f64;
    let mut connection = redis.connection().await?;
    let name = loop {
        let name: Vec<u8> = cmd("RANDOMKEY").query_async(&mut connection).await?;
        if cmd("TYPE").arg(&name).query_async::<String>(&mut connection).await? == "list" {
            break name;
        }
    };
    let sampled: u64 = cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query_async(&mut connection).await?;
    Ok((bytes, sampled as f64))
}
