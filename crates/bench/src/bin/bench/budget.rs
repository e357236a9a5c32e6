//! The budget: what a request may cost in relation to bare servers of the same build, on any machine that runs the checks.

use std::process::ExitCode;

use anyhow::Result;
use testkit::node::Env;

use crate::bars::{Bar, Bound};
use crate::measure::{Figures, Subject, median};
use crate::progress::progress;
use crate::report::print_bars;
use crate::server::Programs;
use crate::stage::Stage;

/// About twice what a debug build was measured at.
const SERVER_FULL_TO_FLOOR: f64 = 3.7;
const REDIS_FULL_TO_FLOOR: f64 = 2.5;
const SERVER_REFUSAL_TO_STATIC: f64 = 3.0;

const KEYS: usize = 2_000;
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 3;
const SECONDS: u64 = 1;

pub(crate) async fn run() -> Result<ExitCode> {
    // A debug build on a busy machine is late, and a verdict that it does not wait for would cost nothing.
    let env = Env::from([("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "2000".to_owned())]);
    let stage = Stage::open(KEYS, CONNECTIONS, Vec::new(), env, &Programs::find()?).await?;
    stage.meet(&stage.crowds.full).await?;
    let subjects = stage.basic();
    let mut seen = [const { Vec::new() }; 4];
    for round in 1..=ROUNDS {
        for (subject, seen) in subjects.iter().zip(&mut seen) {
            progress(&format!("round {round} of {ROUNDS}: {}", subject.name));
            let load = subject.load.run(SECONDS, stage.folder.path());
            seen.push(subject.accounts.measure(&stage.house, load).await?);
        }
    }
    let [plain, floor, full, refusal] = seen.map(|rounds| median(&rounds));
    let bars = [
        budget("server CPU (µs), full : floor", [full.server_us, floor.server_us], SERVER_FULL_TO_FLOOR),
        budget("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], REDIS_FULL_TO_FLOOR),
        budget("server CPU (µs), no key : static", [refusal.server_us, plain.server_us], SERVER_REFUSAL_TO_STATIC),
    ];
    print_bars(&bars);
    let unexpected = tell_unexpected(&subjects, &[plain, floor, full, refusal]);
    Ok(ExitCode::from(u8::from(unexpected > 0 || bars.iter().any(|bar| !bar.is_met))))
}

fn budget(name: &str, figures: [f64; 2], most: f64) -> Bar {
    Bar::new(name, figures, Some(Bound::AtMost(most)))
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
fn tell_unexpected(subjects: &[Subject], figures: &[Figures]) -> u64 {
    for (subject, figures) in subjects.iter().zip(figures).filter(|(_, figures)| figures.unexpected > 0) {
        println!("FAIL    {} unexpected answers: {}", figures.unexpected, subject.name);
    }
    figures.iter().map(|figures| figures.unexpected).sum()
}
