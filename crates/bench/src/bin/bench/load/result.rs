//! Results of load generators, and what they share.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// Result of a load generator.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BenchLoadResult {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Responses with a status of 400 or higher.
    pub(crate) refused: u64,
    /// Requests without a response.
    pub(crate) failed: u64,
}

pub(super) async fn run_command(mut command: Command) -> Result<Output> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("failed to run {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

pub(super) fn parse_result(output: &Output) -> Result<BenchLoadResult> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).with_context(|| format!("no figures in:\n{text}"))?;
    Ok(serde_json::from_str(line)?)
}

/// A percentile of sorted values.
pub(super) fn percentile(sorted: &[u32], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().map_or(0.0, f64::from)
}
