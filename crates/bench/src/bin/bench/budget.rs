//! The budget: what a request may cost relative to bare servers of the same build, on any machine that runs the checks.

use std::process::ExitCode;

use anyhow::Result;
use ipseity_testkit::deployment::node::Env;

use crate::comparison_server::BenchPrograms;
use crate::fixture::BenchFixture;
use crate::measure::{BenchMeasurement, Subject, median};
use crate::progress::progress;
use crate::report::print_targets;
use crate::targets::{PerformanceTarget, TargetBound};

/// About twice the figures of a debug build, in which only dependencies are optimized. The floor consists of little else.
const SERVER_FULL_TO_FLOOR: f64 = 9.0;
const REDIS_FULL_TO_FLOOR: f64 = 2.5;
const SERVER_REFUSAL_TO_STATIC: f64 = 3.0;

const KEYS: usize = 2_000;
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 3;
/// The interval of the usage flush, so that every round contains one.
const SECONDS: u64 = 2;

pub(crate) async fn run_budget() -> Result<ExitCode> {
    // A debug build on a busy machine may exceed the timeout of Redis, and a local decision would look cheaper.
    let env = Env::from([("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "2000".to_owned())]);
    let fixture = BenchFixture::open(KEYS, CONNECTIONS, Vec::new(), env, &BenchPrograms::find()?).await?;
    fixture.warm_up(&fixture.pools.full).await?;
    let subjects = fixture.basic_subjects();
    let mut measurements = [const { Vec::new() }; 4];
    for round in 1..=ROUNDS {
        for (subject, measurements) in subjects.iter().zip(&mut measurements) {
            progress(&format!("round {round} of {ROUNDS}: {}", subject.name));
            let load = subject.load.run(SECONDS, fixture.dir.path());
            measurements.push(subject.processes.measure(&fixture.deployment, load).await?);
        }
    }
    let [plain, floor, full, refusal] = measurements.map(|rounds| median(&rounds));
    let targets = [
        budget_target("server CPU (µs), full : floor", [full.server_us, floor.server_us], SERVER_FULL_TO_FLOOR),
        budget_target("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], REDIS_FULL_TO_FLOOR),
        budget_target(
            "server CPU (µs), no key : static",
            [refusal.server_us, plain.server_us],
            SERVER_REFUSAL_TO_STATIC,
        ),
    ];
    print_targets(&targets);
    let unexpected = print_unexpected(&subjects, &[plain, floor, full, refusal]);
    Ok(ExitCode::from(u8::from(unexpected > 0 || targets.iter().any(|target| !target.is_met))))
}

fn budget_target(name: &str, figures: [f64; 2], most: f64) -> PerformanceTarget {
    PerformanceTarget::new(name, figures, TargetBound::AtMost(most))
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
fn print_unexpected(subjects: &[Subject], measurements: &[BenchMeasurement]) -> u64 {
    for (subject, measurements) in
        subjects.iter().zip(measurements).filter(|(_, measurements)| measurements.unexpected > 0)
    {
        println!("FAIL    {} unexpected responses: {}", measurements.unexpected, subject.name);
    }
    measurements.iter().map(|measurements| measurements.unexpected).sum()
}
