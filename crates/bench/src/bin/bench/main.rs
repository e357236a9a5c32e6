//! `bench compare [--short] | budget | instructions | scale [--short]`: what a request costs, beside servers that do less; whether that is within
//! the budget; how many instructions it takes; and how it grows.

mod budget;
mod caller_pool;
mod chart;
mod compare;
mod comparison_server;
mod fixture;
mod instructions;
mod load;
mod measure;
mod process_stats;
mod progress;
mod report;
mod scale;
mod subjects;
mod targets;

use std::process::ExitCode;

use anyhow::{Result, bail};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["compare"] => compare::run_compare(false).await,
        ["compare", "--short"] => compare::run_compare(true).await,
        ["budget"] => budget::run_budget().await,
        ["instructions"] => instructions::run_instructions().await,
        ["scale"] => scale::run_scale(false).await,
        ["scale", "--short"] => scale::run_scale(true).await,
        // A load generator among others, which it starts as it starts wrk.
        ["h3load", address, authority, crowd, seconds] => {
            load::h3load::run_h3load(address, authority, crowd, seconds).await?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("bench compare [--short] | budget | instructions | scale [--short]"),
    }
}
