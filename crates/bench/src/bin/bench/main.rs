//! `bench compare [--short] | budget | instructions | scale [--short]`: what a request costs, beside servers that do less; whether that is within
//! the budget; how many instructions it takes; and how it grows.

mod bars;
mod budget;
mod callgrind;
mod chart;
mod compare;
mod cpu;
mod crowd;
mod load;
mod measure;
mod progress;
mod report;
mod scale;
mod server;
mod stage;
mod subjects;

use std::process::ExitCode;

use anyhow::{Result, bail};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["compare"] => compare::run(false).await,
        ["compare", "--short"] => compare::run(true).await,
        ["budget"] => budget::run().await,
        ["instructions"] => callgrind::run().await,
        ["scale"] => scale::run(false).await,
        ["scale", "--short"] => scale::run(true).await,
        // A load generator among others, which it starts as it starts wrk.
        ["h3load", address, authority, crowd, seconds] => {
            load::h3load::run(address, authority, crowd, seconds).await?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("bench compare [--short] | budget | instructions | scale [--short]"),
    }
}
