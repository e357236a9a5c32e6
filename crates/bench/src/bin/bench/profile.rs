//! Where a node spends its time: perf samples it under load, and the samples are summed by crate.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::measure::Subject;
use crate::progress::progress;

const SAMPLES_PER_S: &str = "1999";
/// Smaller shares are summed up.
const SHARE_MIN: f64 = 1.0;
pub(crate) const REST: &str = "the rest";

/// Shares of a node's time in percent, largest first.
pub(crate) type Profile = Vec<(String, f64)>;

/// Samples the node while it serves a subject's load.
pub(crate) async fn profile(subject: &Subject, seconds: u64, dir: &Path) -> Result<Profile> {
    progress(&format!("profiling: {}", subject.name));
    let (pid, file) = (subject.processes.servers.first().context("the subject has no server")?, dir.join("perf"));
    let mut record = perf(["record", "-e", "cpu-clock", "-F", SAMPLES_PER_S, "-o"], &file);
    record.args(["-p", &pid.to_string(), "--", "sleep", &seconds.to_string()]);
    let (recorded, load) = tokio::join!(record.output(), subject.load.run(seconds, dir));
    let recorded = recorded.context("failed to run perf; install linux-perf")?;
    ensure!(recorded.status.success(), "perf failed: {}", String::from_utf8_lossy(&recorded.stderr));
    load?;
    let mut report = perf(["report", "--stdio", "--no-children", "--sort", "sym", "-i"], &file);
    let output = report.output().await?;
    ensure!(output.status.success(), "perf failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(sum_by_part(&String::from_utf8_lossy(&output.stdout)))
}

fn perf<const N: usize>(arguments: [&str; N], file: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(arguments).arg(file).kill_on_drop(true);
    command
}

/// Sums lines such as `5.02%  [.] hyper::proto::h1::dispatch::Dispatcher<D,Bs,I,T>::poll_read`.
fn sum_by_part(report: &str) -> Profile {
    let mut shares = BTreeMap::<String, f64>::new();
    for line in report.lines() {
        let Some((share, symbol)) = line.trim().split_once('%') else { continue };
        let (Ok(share), Some((mode, symbol))) = (share.parse::<f64>(), symbol.trim().split_once(' ')) else { continue };
        *shares.entry(if mode == "[k]" { "kernel" } else { part_of(symbol.trim()) }.to_owned()).or_default() += share;
    }
    let (mut parts, small): (Profile, Profile) = shares.into_iter().partition(|(_, share)| *share >= SHARE_MIN);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts.push((REST.to_owned(), small.iter().map(|(_, share)| share).sum()));
    parts
}

/// The crate of a function, or of the type that a trait is implemented for.
fn part_of(symbol: &str) -> &str {
    if symbol.starts_with("mi_") || symbol.starts_with("_mi_") {
        return "allocator";
    }
    if symbol.starts_with("__mem") {
        return "copying memory";
    }
    let path = symbol.trim_start_matches(['<', '&', '*', '(']).trim_start_matches("mut ").trim_start_matches("dyn ");
    match path.split_once("::").map(|(first, _)| first) {
        Some("core" | "alloc" | "std" | "hashbrown") => "standard library",
        Some(name) => name.strip_prefix("ipseity_").unwrap_or(name),
        None => "C libraries",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_crate() {
        let report = "# Overhead  Symbol\n    30.00%  [k] do_syscall_64\n    20.00%  [.] hyper::proto::h1::encode\n    \
            10.00%  [.] <&mut hyper::Body as http_body::Body>::poll\n    15.00%  [.] <ipseity_api::lookup::Lookup as core::future::Future>::poll\n    \
            9.00%  [.] _mi_malloc\n    8.00%  [.] __memmove_avx\n    7.00%  [.] core::ptr::drop_in_place<hyper::Body>\n     0.60%  [.] url::parse\n     0.40%  [.] h2::poll\n";
        let expected = [
            ("hyper", 30.0),
            ("kernel", 30.0),
            ("api", 15.0),
            ("allocator", 9.0),
            ("copying memory", 8.0),
            ("standard library", 7.0),
            (REST, 1.0),
        ];
        assert_eq!(sum_by_part(report), expected.map(|(part, share)| (part.to_owned(), share)));
    }
}
