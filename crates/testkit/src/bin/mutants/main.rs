//! `mutants [--short] [--only NAME]`: switches on one known defect at a time and checks that a test or a checker of the
//! fault runs finds it.
//!
//! Each check first runs without a mutant and must pass, so that a broken machine does not count as a find. `--short`
//! runs three mutants. The exit code is 1 if a mutant survives or a check fails without one.

mod check;
mod programs;
mod register;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::check::{Check, CheckOutcome};
use crate::programs::Programs;
use crate::register::{MUTANTS, Mutant};

/// Runs that a mutant must survive. A fault run on a busy machine makes few requests, and may miss a defect that needs many.
const FAULT_RUNS_MAX: usize = 3;

const USAGE: &str = "mutants [--short] [--only NAME]";

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<ExitCode> {
    let selected = select_mutants(std::env::args().skip(1))?;
    let programs = Programs::find(selected.iter().any(|mutant| mutant.check.is_test())).await?;
    let (start, mut report) = (Instant::now(), MutantReport::default());
    for (number, mutant) in selected.iter().enumerate() {
        report.run(&programs, mutant, &format!("{}/{}", number + 1, selected.len())).await?;
    }
    report.print_summary(start);
    Ok(ExitCode::from(u8::from(!report.failures.is_empty())))
}

fn select_mutants(mut arguments: impl Iterator<Item = String>) -> Result<Vec<&'static Mutant>> {
    let mut selected: Vec<&Mutant> = MUTANTS.iter().collect();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--short" => selected.retain(|mutant| mutant.is_short()),
            "--only" => {
                let name = arguments.next().context("--only needs a name")?;
                selected.retain(|mutant| mutant.name == name);
                ensure!(!selected.is_empty(), "there is no mutant {name}");
            }
            other => bail!("unknown argument {other}; usage: {USAGE}"),
        }
    }
    Ok(selected)
}

#[derive(Default)]
struct MutantReport {
    /// Results of the checks without a mutant.
    controls: HashMap<Check, CheckOutcome>,
    killed: usize,
    killed_by_faults: usize,
    failures: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "the report is the output")]
impl MutantReport {
    async fn run(&mut self, programs: &Programs, mutant: &Mutant, position: &str) -> Result<()> {
        let Mutant { name, check } = mutant;
        if !self.controls.contains_key(check) {
            let start = Instant::now();
            let outcome = check.run(programs, None).await?;
            println!("{position:>7}  control   {check}: {outcome}, {} s", start.elapsed().as_secs());
            self.controls.insert(*check, outcome);
        }
        if self.controls.get(check) != Some(&CheckOutcome::Passed) {
            println!("{position:>7}  UNKNOWN   {name:32} {check} fails without a mutant");
            self.failures.push(format!("{name}: {check} fails without a mutant"));
            return Ok(());
        }
        let start = Instant::now();
        let mut outcome = check.run(programs, Some(name)).await?;
        for _ in 1..if check.is_test() { 1 } else { FAULT_RUNS_MAX } {
            if outcome == CheckOutcome::Passed {
                outcome = check.run(programs, Some(name)).await?;
            }
        }
        let is_killed = matches!(outcome, CheckOutcome::Found(_));
        let verdict = if is_killed { "killed" } else { "SURVIVED" };
        println!("{position:>7}  {verdict:8}  {name:32} {check}: {outcome}, {} s", start.elapsed().as_secs());
        if is_killed {
            self.killed += 1;
            self.killed_by_faults += usize::from(!check.is_test());
        } else {
            self.failures.push(format!("{name}: {check}: {outcome}"));
        }
        Ok(())
    }

    fn print_summary(&self, start: Instant) {
        for failure in &self.failures {
            println!("FAIL  {failure}");
        }
        println!(
            "\n{} killed ({} by fault runs), {} not, with {} checks in {} s",
            self.killed,
            self.killed_by_faults,
            self.failures.len(),
            self.controls.len(),
            start.elapsed().as_secs()
        );
    }
}
