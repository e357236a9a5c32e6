//! `faults [--short] [--seeds N] [--seed N] [--only NAME] [--parallel N] [--logs DIR] [--runs | --outages]`: injects
//! faults into Redis, PostgreSQL, links and nodes under load and key changes, and checks the history of each run.
//!
//! First come seeded runs. A third of them combine two kinds of faults. Then come the long outages, shortened by
//! `--short`. A seed and a kind decide everything: `--seed N --only KIND --seeds 1` repeats a run, and `--seed N`
//! continues after an interrupted one. The exit code is 1 if anything failed.

mod changes;
mod checks;
mod counts;
mod dump;
mod fault_kind;
mod fixture;
mod history;
mod inject;
mod links;
mod load;
mod options;
mod outage;
mod plan;
mod recorder;
mod report;
mod run;
mod sampler;
mod sites;
mod stores;
mod timeline;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::fixture::FaultFixture;
use crate::options::FaultsOptions;
use crate::plan::RunPlan;
use crate::report::{FaultReport, RunStats};

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<ExitCode> {
    let options = FaultsOptions::parse(std::env::args().skip(1))?;
    let report = Arc::new(Mutex::new(FaultReport::default()));
    if options.runs_seeds {
        let plans = Arc::new(Mutex::new(plans(&options)));
        let mut workers = JoinSet::new();
        for _ in 0..options.parallel {
            // Stopping a server blocks. A thread for each worker keeps the others on time.
            let (plans, report, logs) = (Arc::clone(&plans), Arc::clone(&report), options.logs.clone());
            workers.spawn_blocking(move || Handle::current().block_on(run_plans(&plans, &report, logs.as_deref())));
        }
        workers.join_all().await;
    }
    let outages = outage::OUTAGES.iter().filter(|outage| options.runs_outages && options.wants(outage.name));
    for outage in outages {
        let result = outage::run_outage(outage, options.is_short).await;
        lock(&report).record(outage.name, options.seed, result);
    }
    let report = lock(&report);
    report.print_summary();
    Ok(ExitCode::from(u8::from(report.failure_count() > 0)))
}

/// The plans of all seeds, the last one first.
fn plans(options: &FaultsOptions) -> Vec<RunPlan> {
    let kinds = options.kinds();
    if kinds.is_empty() {
        return Vec::new();
    }
    let kind = |seed: u64| kinds[usize::try_from(seed).unwrap_or_default() % kinds.len()];
    let seeds = options.seed..options.seed + options.seeds;
    let mut plans: Vec<RunPlan> = seeds.rev().map(|seed| RunPlan::new(seed, kind(seed), options.is_short)).collect();
    if options.is_short {
        // Fewer deployments have to be started.
        plans.sort_by_key(RunPlan::topology);
    }
    plans
}

/// Runs plans until none is left. A deployment is used again unless a fault or a failure ruined it.
async fn run_plans(plans: &Mutex<Vec<RunPlan>>, report: &Mutex<FaultReport>, logs: Option<&Path>) {
    let mut fixture: Option<FaultFixture> = None;
    loop {
        let Some(plan) = lock(plans).pop() else { return };
        fixture = fixture.filter(|fixture| fixture.topology == plan.topology() && !fixture.is_ruined);
        let result = run_on(&mut fixture, &plan, logs).await;
        if result.is_err() {
            fixture = None;
        }
        lock(report).record(&plan.name(), plan.seed, result);
    }
}

async fn run_on(fixture: &mut Option<FaultFixture>, plan: &RunPlan, logs: Option<&Path>) -> Result<RunStats> {
    let fixture = match fixture {
        Some(fixture) => fixture,
        None => fixture.insert(FaultFixture::open(plan.topology()).await?),
    };
    run::run_plan(fixture, plan, logs).await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
