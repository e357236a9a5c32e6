//! `bench compare [--short] | budget | instructions | scale [--short]`: compares the cost of a request with simpler
//! servers, checks it against the budget, counts instructions, and measures how it scales.

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
mod profile;
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
        // Internal: the HTTP/3 load generator, started like wrk.
        ["h3load", address, authority, pool, seconds] => {
            load::h3load::run_h3load(address, authority, pool, seconds).await?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("usage: bench compare [--short] | budget | instructions | scale [--short]"),
    }
}
