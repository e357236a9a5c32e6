//! `faults [--short] [--seeds N] [--seed N] [--only NAME] [--runs | --outages]`: breaks stores, lines and nodes under load, and checks the books afterwards.
//!
//! First seeded runs, each with one kind of fault at a random moment; then the long outages, at full length unless `--short` is given.
//! Every request is written down before it is sent, and its outcome after. Ends with one line, and with 1 if anything failed.

mod books;
mod kind;
mod load;
mod outage;
mod report;
mod run;
mod stage;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::kind::Kind;
use crate::report::Report;
use crate::stage::Stage;

struct Options {
    is_short: bool,
    seeds: usize,
    seed: u64,
    only: Option<String>,
    has_runs: bool,
    has_outages: bool,
}

fn options() -> Result<Options> {
    let mut options = Options { is_short: false, seeds: 210, seed: 1, only: None, has_runs: true, has_outages: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--short" => (options.is_short, options.seeds) = (true, Kind::ALL.len()),
            "--seeds" => options.seeds = value()?.parse().context("--seeds is a number")?,
            "--seed" => options.seed = value()?.parse().context("--seed is a number")?,
            "--only" => options.only = Some(value()?),
            "--runs" => options.has_outages = false,
            "--outages" => options.has_runs = false,
            other => {
                bail!("{other} is unknown: faults [--short] [--seeds N] [--seed N] [--only NAME] [--runs | --outages]")
            }
        }
    }
    Ok(options)
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<ExitCode> {
    let options = options()?;
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut report = Report::default();
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| wanted(kind.name())).collect();
    if options.has_runs && !kinds.is_empty() {
        let mut stage = Stage::open().await?;
        for (turn, kind) in kinds.iter().cycle().take(options.seeds).enumerate() {
            let seed = options.seed + turn as u64;
            report.ran(kind.name(), seed, run::run(&mut stage, *kind, seed, options.is_short).await);
        }
    }
    let outages = outage::ALL.iter().filter(|outage| options.has_outages && wanted(outage.name));
    for outage in outages {
        report.ran(outage.name, options.seed, outage::run(outage, options.is_short).await);
    }
    report.conclude();
    Ok(ExitCode::from(u8::from(report.failed() > 0)))
}
