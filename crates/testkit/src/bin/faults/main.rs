//! `faults [--short] [--seeds N] [--seed N] [--only NAME] [--runs | --outages]`: injects faults into Redis, PostgreSQL,
//! links and nodes under load, and checks the counts afterwards.
//!
//! First come seeded runs, each with one kind of fault at a random time. Then come the long outages, shortened by
//! `--short`. Every request is recorded before it is sent, and its outcome afterwards. The exit code is 1 if anything
//! failed.

mod consistency;
mod fault_kind;
mod fixture;
mod load;
mod outage;
mod report;
mod run;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::fault_kind::FaultKind;
use crate::fixture::FaultFixture;
use crate::report::FaultReport;

struct FaultsOptions {
    is_short: bool,
    seeds: usize,
    seed: u64,
    only: Option<String>,
    runs_seeds: bool,
    runs_outages: bool,
}

fn parse_options() -> Result<FaultsOptions> {
    let mut options =
        FaultsOptions { is_short: false, seeds: 210, seed: 1, only: None, runs_seeds: true, runs_outages: true };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--short" => (options.is_short, options.seeds) = (true, FaultKind::ALL.len()),
            "--seeds" => options.seeds = value()?.parse().context("--seeds must be a number")?,
            "--seed" => options.seed = value()?.parse().context("--seed must be a number")?,
            "--only" => options.only = Some(value()?),
            "--runs" => options.runs_outages = false,
            "--outages" => options.runs_seeds = false,
            other => {
                bail!(
                    "unknown argument {other}; usage: faults [--short] [--seeds N] [--seed N] [--only NAME] [--runs | --outages]"
                )
            }
        }
    }
    Ok(options)
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<ExitCode> {
    let options = parse_options()?;
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut report = FaultReport::default();
    let kinds: Vec<FaultKind> = FaultKind::ALL.into_iter().filter(|kind| wanted(kind.name())).collect();
    if options.runs_seeds && !kinds.is_empty() {
        let mut fixture = FaultFixture::open().await?;
        for (index, kind) in kinds.iter().cycle().take(options.seeds).enumerate() {
            let seed = options.seed + index as u64;
            report.record(kind.name(), seed, run::run_seed(&mut fixture, *kind, seed, options.is_short).await);
        }
    }
    let outages = outage::OUTAGES.iter().filter(|outage| options.runs_outages && wanted(outage.name));
    for outage in outages {
        report.record(outage.name, options.seed, outage::run_outage(outage, options.is_short).await);
    }
    report.print_summary();
    Ok(ExitCode::from(u8::from(report.failure_count() > 0)))
}
