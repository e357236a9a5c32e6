//! Prints the result of each run, and a table at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::consistency::RecoveryTimes;
use crate::run::RunObservations;

/// Figures of one run.
#[derive(Clone, Copy, Default)]
pub(crate) struct RunStats {
    pub(crate) requests: usize,
    pub(crate) admitted: usize,
    pub(crate) unanswered: usize,
    pub(crate) charged: u64,
    /// Admitted but not charged.
    pub(crate) lost: u64,
    pub(crate) unverifiable: u64,
    /// Slowest response since the fault.
    pub(crate) slowest: Duration,
    pub(crate) recovered_after: Duration,
    pub(crate) consistent_after: Duration,
}

impl RunStats {
    pub(crate) fn from_run(observations: &RunObservations, recovery: &RecoveryTimes) -> Self {
        let after_fault = observations.requests.iter().filter(|request| request.sent_at >= observations.injected_at);
        let times = after_fault.filter_map(|request| Some(request.outcome?.took));
        Self {
            requests: observations.requests.len(),
            admitted: observations.requests.iter().filter(|request| request.is_admitted()).count(),
            unanswered: observations.requests.iter().filter(|request| request.is_unanswered()).count(),
            charged: observations.charges.values().sum(),
            lost: count_lost(observations),
            unverifiable: observations.unverifiable,
            slowest: times.max().unwrap_or_default(),
            recovered_after: recovery.recovered_after,
            consistent_after: recovery.consistent_after,
        }
    }
}

fn count_lost(observations: &RunObservations) -> u64 {
    let missing = observations.keys.iter().enumerate().map(|(number, key)| {
        let admitted =
            observations.requests.iter().filter(|request| request.key_index == number && request.is_admitted()).count()
                as u64;
        let charged = observations.charges.iter().filter(|((id, _), _)| *id == key.id).map(|(_, count)| count).sum();
        admitted.saturating_sub(charged)
    });
    missing.sum()
}

#[derive(Default)]
pub(crate) struct FaultReport {
    runs: BTreeMap<&'static str, Vec<RunStats>>,
    failures: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
impl FaultReport {
    pub(crate) fn record(&mut self, name: &'static str, seed: u64, outcome: Result<RunStats>) {
        match outcome {
            Ok(stats) => {
                println!(
                    "ok    {name:34} seed {seed:<5} {:6} requests, {:6} admitted, {:6} charged, {:4} unanswered, slowest {:4} ms, \
                     recovered {:4} ms, consistent {:5} ms",
                    stats.requests,
                    stats.admitted,
                    stats.charged,
                    stats.unanswered,
                    stats.slowest.as_millis(),
                    stats.recovered_after.as_millis(),
                    stats.consistent_after.as_millis(),
                );
                self.runs.entry(name).or_default().push(stats);
            }
            Err(error) => {
                println!("FAIL  {name:34} seed {seed:<5} {error:#}");
                self.failures.push(format!("{name}, seed {seed}: {error:#}"));
            }
        }
    }

    pub(crate) fn failure_count(&self) -> usize {
        self.failures.len()
    }

    pub(crate) fn print_summary(&self) {
        println!(
            "\nkind                               runs  requests  admitted   charged    lost  unanswered  unverifiable  slowest ms  recovered ms"
        );
        let mut all = 0;
        for (name, runs) in &self.runs {
            all += runs.len();
            let sum = |of: fn(&RunStats) -> u64| runs.iter().map(of).sum::<u64>();
            let max = |of: fn(&RunStats) -> Duration| runs.iter().map(of).max().unwrap_or_default().as_millis();
            println!(
                "{name:34} {:5} {:9} {:9} {:9} {:7} {:11} {:13} {:11} {:13}",
                runs.len(),
                sum(|run| run.requests as u64),
                sum(|run| run.admitted as u64),
                sum(|run| run.charged),
                sum(|run| run.lost),
                sum(|run| run.unanswered as u64),
                sum(|run| run.unverifiable),
                max(|run| run.slowest),
                max(|run| run.recovered_after),
            );
        }
        for failure in &self.failures {
            println!("FAIL  {failure}");
        }
        println!("\n{all} passed, {} failed", self.failures.len());
    }
}
