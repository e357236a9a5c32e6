//! Generates load on a subject with a tool for its protocol, as fast as possible unless noted.

mod h2load;
pub(crate) mod h3load;
pub(crate) mod paced;
mod redis_benchmark;
mod result;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio::process::Command;

pub(crate) use redis_benchmark::SEEDED_KEYS;
pub(crate) use result::BenchLoadResult;

use self::result::{parse_result, run_command};
use crate::caller_pool::CallerPool;

pub(crate) const LOOKUP_PATH: &str = "/api/v1/ip";
pub(crate) const DEMO_PATH: &str = "/api/v1/ip/demo";

const WRK_THREADS: &str = "2";

/// The load generator of a subject.
pub(crate) enum BenchLoad {
    /// wrk, over HTTP/1.1.
    Wrk { url: String, connections: usize, pool: CallerPool },
    /// h2load, over TLS and HTTP/2.
    H2load { address: SocketAddr, pool: CallerPool },
    /// This program's generator, over HTTP/3.
    H3load { address: SocketAddr, ca_file: PathBuf, pool: CallerPool },
    /// redis-benchmark with the floor's script only.
    RedisBenchmark { address: SocketAddr },
}

impl BenchLoad {
    /// Runs the load for this many seconds; temporary files go into a directory.
    pub(crate) async fn run(&self, seconds: u64, dir: &Path) -> Result<BenchLoadResult> {
        match self {
            Self::Wrk { url, connections, pool } => {
                let script = dir.join("caller_pool.lua");
                std::fs::write(&script, include_str!("caller_pool.lua"))?;
                let mut wrk = Command::new("wrk");
                wrk.args(["-t", WRK_THREADS, "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "-s"]);
                wrk.arg(script).arg(url).arg("--").arg(&pool.file).arg(LOOKUP_PATH);
                parse_result(&run_command(wrk).await?)
            }
            Self::H3load { address, ca_file: authority, pool } => {
                let mut h3load = Command::new(std::env::current_exe()?);
                h3load.arg("h3load").arg(address.to_string()).arg(authority).arg(&pool.file).arg(seconds.to_string());
                parse_result(&run_command(h3load).await?)
            }
            Self::H2load { address, pool } => h2load::run_h2load(*address, pool, seconds, dir).await,
            Self::RedisBenchmark { address } => redis_benchmark::run_redis_benchmark(*address, seconds).await,
        }
    }
}
