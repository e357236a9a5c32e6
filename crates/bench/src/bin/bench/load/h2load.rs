//! h2load sends the same header on every request: keys stand in the query, and each of several processes has an address of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::{PATH, Ran, output, percentile};
use crate::crowd::Crowd;

const PROCESSES: usize = 4;
const CONNECTIONS: &str = "4";
const STREAMS: &str = "8";

pub(super) async fn run(address: SocketAddr, crowd: &Crowd, seconds: u64, folder: &Path) -> Result<Ran> {
    let mut running = JoinSet::new();
    let start = fastrand::usize(0..crowd.callers.len());
    for (number, part) in crowd.callers.chunks(crowd.callers.len().div_ceil(PROCESSES)).enumerate() {
        let (uris, log) = (folder.join(format!("uris-{number}")), folder.join(format!("h2load-{number}")));
        let turned = part.iter().cycle().skip(start % part.len()).take(part.len());
        let lines: Vec<_> = turned.map(|(key, _)| format!("https://{address}{PATH}?key={key}")).collect();
        fs::write(&uris, lines.join("\n"))?;
        // h2load would append to what is there.
        drop(fs::remove_file(&log));
        let mut h2load = Command::new("h2load");
        h2load.args(["-c", CONNECTIONS, "-m", STREAMS, "-D", &seconds.to_string(), "-H"]);
        h2load.arg(format!("x-forwarded-for: {}", part[0].1)).arg("--log-file").arg(&log).arg("-i").arg(uris);
        running.spawn(async move {
            let output = output(h2load).await?;
            anyhow::Ok((String::from_utf8_lossy(&output.stdout).into_owned(), fs::read_to_string(log)?))
        });
    }
    let (mut broken, mut refused, mut took_us) = (0, 0, Vec::new());
    while let Some(ended) = running.join_next().await {
        let (said, log) = ended??;
        broken += lost(&said).with_context(|| format!("h2load says:\n{said}"))?;
        for line in log.lines() {
            let mut columns = line.split('\t').skip(1);
            let mut next = || columns.next()?.parse::<u32>().ok();
            // A request that the end cut off has a status of -1.
            let (Some(status), Some(us)) = (next(), next()) else { continue };
            refused += u64::from(status >= 400);
            took_us.push(us);
        }
    }
    took_us.sort_unstable();
    let requests = took_us.len() as u64;
    let (p50_us, p99_us) = (percentile(&took_us, 50), percentile(&took_us, 99));
    Ok(Ran { requests, seconds: seconds as f64, p50_us, p99_us, refused, broken })
}

/// Errors and timeouts, of `requests: … total, … started, … done, … succeeded, … failed, … errored, … timeout`; a request that
/// is refused counts as failed there.
fn lost(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |what: &str| line.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok());
    Some(count("errored")? + count("timeout")?)
}
