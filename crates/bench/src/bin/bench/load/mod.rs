//! Load on a subject, by whatever speaks its protocol: as fast as it is answered, unless said otherwise.

mod h2load;
pub(crate) mod h3load;
pub(crate) mod paced;
mod redis_benchmark;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

pub(crate) use redis_benchmark::SEEDED_KEYS;

use crate::caller_pool::CallerPool;

/// The lookup.
pub(crate) const LOOKUP_PATH: &str = "/api/v1/ip";
/// The demo.
pub(crate) const DEMO_PATH: &str = "/api/v1/ip/demo";

const WRK_THREADS: &str = "2";

/// What a load generator saw.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BenchLoadResult {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Answers with a status of 400 and above.
    pub(crate) refused: u64,
    /// Requests without an answer.
    pub(crate) failed: u64,
}

/// How a subject is asked.
pub(crate) enum BenchLoad {
    /// By wrk, over HTTP/1.1.
    Wrk { url: String, connections: usize, pool: CallerPool },
    /// By h2load, over TLS and HTTP/2.
    H2load { address: SocketAddr, crowd: CallerPool },
    /// By a load generator of our own, over HTTP/3.
    H3load { address: SocketAddr, ca_file: PathBuf, crowd: CallerPool },
    /// By redis-benchmark: the floor's script alone.
    RedisBenchmark { address: SocketAddr },
}

impl BenchLoad {
    /// Asks for so long; files go into a folder.
    pub(crate) async fn run(&self, seconds: u64, folder: &Path) -> Result<BenchLoadResult> {
        match self {
            Self::Wrk { url, connections, pool } => {
                let script = folder.join("caller_pool.lua");
                std::fs::write(&script, include_str!("caller_pool.lua"))?;
                let mut wrk = Command::new("wrk");
                wrk.args(["-t", WRK_THREADS, "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "-s"]);
                wrk.arg(script).arg(url).arg("--").arg(&pool.file).arg(LOOKUP_PATH);
                parse_result(&run_command(wrk).await?)
            }
            Self::H3load { address, ca_file: authority, crowd: pool } => {
                let mut h3load = Command::new(std::env::current_exe()?);
                h3load.arg("h3load").arg(address.to_string()).arg(authority).arg(&pool.file).arg(seconds.to_string());
                parse_result(&run_command(h3load).await?)
            }
            Self::H2load { address, crowd: pool } => h2load::run_h2load(*address, pool, seconds, folder).await,
            Self::RedisBenchmark { address } => redis_benchmark::run_redis_benchmark(*address, seconds).await,
        }
    }
}

async fn run_command(mut command: Command) -> Result<Output> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

fn parse_result(output: &Output) -> Result<BenchLoadResult> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).with_context(|| format!("no figures in:\n{text}"))?;
    Ok(serde_json::from_str(line)?)
}

/// The value below which so many of a hundred lie.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().map_or(0.0, f64::from)
}
