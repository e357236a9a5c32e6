//! Redis alone: redis-benchmark with the floor's script, whose key names it can generate.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::process::Command;

use super::result::{BenchLoadResult, run_command};

/// Number of seeded records, named `k:{key…}` with 12 digits.
pub(crate) const SEEDED_KEYS: usize = 100_000;
const SCRIPT: &str = include_str!("../../reference_server/charge.lua");
/// redis-benchmark takes a number of calls, not a duration.
const CALLS_PER_S: u64 = 30_000;

pub(super) async fn run_redis_benchmark(address: SocketAddr, seconds: u64) -> Result<BenchLoadResult> {
    let port = address.port().to_string();
    let mut load = Command::new("redis-cli");
    load.args(["-p", &port, "SCRIPT", "LOAD", SCRIPT]);
    let digest = String::from_utf8_lossy(&run_command(load).await?.stdout).trim().to_owned();
    let requests = CALLS_PER_S * seconds;
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-p", &port, "-c", "64", "-n", &requests.to_string(), "-r", &SEEDED_KEYS.to_string(), "--csv"]);
    benchmark.args(["EVALSHA", &digest, "2", "k:{key__rand_int__}", "k:{key__rand_int__}:b"]);
    let stdout = String::from_utf8_lossy(&run_command(benchmark).await?.stdout).into_owned();
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
    let line = stdout.lines().last().context("redis-benchmark printed nothing")?;
    let columns: Vec<f64> = line.split("\",\"").skip(1).filter_map(|column| column.parse().ok()).collect();
    let [rate, _, _, p50_ms, _, p99_ms, ..] = columns[..] else {
        anyhow::bail!("unexpected output of redis-benchmark: {stdout}")
    };
    let seconds = requests as f64 / rate;
    Ok(BenchLoadResult { requests, seconds, p50_us: p50_ms * 1e3, p99_us: p99_ms * 1e3, refused: 0, failed: 0 })
}
