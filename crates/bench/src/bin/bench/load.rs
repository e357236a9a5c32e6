//! Load on a subject, by whatever speaks its protocol: as fast as it is answered, unless said otherwise.

mod engine;
mod h2load;
pub(crate) mod h3load;
pub(crate) mod pace;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

pub(crate) use engine::SEEDED;

use crate::crowd::Crowd;

/// The lookup.
pub(crate) const PATH: &str = "/api/v1/ip";
/// The demo.
pub(crate) const DEMO: &str = "/api/v1/ip/demo";

const WRK_THREADS: &str = "2";

/// What a load generator saw.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Answers with a status of 400 and above.
    pub(crate) refused: u64,
    /// Requests without an answer.
    pub(crate) broken: u64,
}

/// How a subject is asked.
pub(crate) enum Load {
    /// By wrk, over HTTP/1.1.
    Wrk { url: String, connections: usize, crowd: Crowd },
    /// By h2load, over TLS and HTTP/2.
    H2load { address: SocketAddr, crowd: Crowd },
    /// By a load generator of our own, over HTTP/3.
    H3load { address: SocketAddr, authority: PathBuf, crowd: Crowd },
    /// By redis-benchmark: the floor's script alone.
    Engine { address: SocketAddr },
}

impl Load {
    /// Asks for so long; files go into a folder.
    pub(crate) async fn run(&self, seconds: u64, folder: &Path) -> Result<Ran> {
        match self {
            Self::Wrk { url, connections, crowd } => {
                let script = folder.join("crowd.lua");
                std::fs::write(&script, include_str!("crowd.lua"))?;
                let mut wrk = Command::new("wrk");
                wrk.args(["-t", WRK_THREADS, "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "-s"]);
                wrk.arg(script).arg(url).arg("--").arg(&crowd.file).arg(PATH);
                told(&output(wrk).await?)
            }
            Self::H3load { address, authority, crowd } => {
                let mut h3load = Command::new(std::env::current_exe()?);
                h3load.arg("h3load").arg(address.to_string()).arg(authority).arg(&crowd.file).arg(seconds.to_string());
                told(&output(h3load).await?)
            }
            Self::H2load { address, crowd } => h2load::run(*address, crowd, seconds, folder).await,
            Self::Engine { address } => engine::run(*address, seconds).await,
        }
    }
}

async fn output(mut command: Command) -> Result<Output> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

fn told(output: &Output) -> Result<Ran> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).with_context(|| format!("no figures in:\n{text}"))?;
    Ok(serde_json::from_str(line)?)
}

/// The value below which so many of a hundred lie.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().map_or(0.0, f64::from)
}
