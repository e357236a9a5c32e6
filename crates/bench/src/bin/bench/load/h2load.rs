//! Runs h2load. It sends the same headers with every request, so keys are in the query and each process has a different
//! client address.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::LOOKUP_PATH;
use super::result::{BenchLoadResult, percentile, run_command};
use crate::caller_pool::CallerPool;

const PROCESSES: usize = 4;
const CONNECTIONS: &str = "4";
const STREAMS: &str = "8";

pub(super) async fn run_h2load(
    address: SocketAddr,
    pool: &CallerPool,
    seconds: u64,
    dir: &Path,
) -> Result<BenchLoadResult> {
    let mut running = JoinSet::new();
    let start = fastrand::usize(0..pool.callers.len());
    for (number, part) in pool.callers.chunks(pool.callers.len().div_ceil(PROCESSES)).enumerate() {
        let (uris, log) = (dir.join(format!("uris-{number}")), dir.join(format!("h2load-{number}")));
        let rotated = part.iter().cycle().skip(start % part.len()).take(part.len());
        let lines: Vec<_> = rotated.map(|(key, _)| format!("https://{address}{LOOKUP_PATH}?key={key}")).collect();
        fs::write(&uris, lines.join("\n"))?;
        // h2load would append to an existing file.
        drop(fs::remove_file(&log));
        let mut h2load = Command::new("h2load");
        h2load.args(["-c", CONNECTIONS, "-m", STREAMS, "-D", &seconds.to_string(), "-H"]);
        h2load.arg(format!("x-forwarded-for: {}", part[0].1)).arg("--log-file").arg(&log).arg("-i").arg(uris);
        running.spawn(async move {
            let output = run_command(h2load).await?;
            anyhow::Ok((String::from_utf8_lossy(&output.stdout).into_owned(), fs::read_to_string(log)?))
        });
    }
    let (mut failed, mut refused, mut latencies_us) = (0, 0, Vec::new());
    while let Some(ended) = running.join_next().await {
        let (stdout, log) = ended??;
        failed += count_errors(&stdout).with_context(|| format!("unexpected output of h2load:\n{stdout}"))?;
        for line in log.lines() {
            let mut columns = line.split('\t').skip(1);
            let mut next = || columns.next()?.parse::<u32>().ok();
            // A request that was cut off at the end has the status -1.
            let (Some(status), Some(us)) = (next(), next()) else { continue };
            refused += u64::from(status >= 400);
            latencies_us.push(us);
        }
    }
    latencies_us.sort_unstable();
    let requests = latencies_us.len() as u64;
    let (p50_us, p99_us) = (percentile(&latencies_us, 50), percentile(&latencies_us, 99));
    Ok(BenchLoadResult { requests, seconds: seconds as f64, p50_us, p99_us, refused, failed })
}

/// Counts `errored` and `timeout` in `requests: … total, … started, … done, … succeeded, … failed, … errored, …
/// timeout`. Rejected requests count as `failed`.
fn count_errors(stdout: &str) -> Option<u64> {
    let line = stdout.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |what: &str| line.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok());
    Some(count("errored")? + count("timeout")?)
}
