//! Prints the result of each run, and a table at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::history::History;

/// Figures of one run.
#[derive(Clone, Copy, Default)]
pub(crate) struct RunStats {
    pub(crate) requests: usize,
    pub(crate) admitted: usize,
    pub(crate) unanswered: usize,
    pub(crate) changes: usize,
    pub(crate) charged: u64,
    /// Admitted but not charged.
    pub(crate) lost: u64,
    pub(crate) unverifiable: u64,
    /// Slowest response since the first fault.
    pub(crate) slowest: Duration,
    pub(crate) recovered_after: Duration,
}

impl RunStats {
    pub(crate) fn of(history: &History, recovered_after: Duration) -> Self {
        let injected_at = history.faults.iter().map(|window| window.from).min().unwrap_or_default();
        let answered = history.requests.iter().filter(|request| request.response.is_some());
        let after_fault = answered.filter(|request| request.start >= injected_at);
        let count = |key: usize| history.key_requests(key).filter(|request| request.is_admitted()).count() as u64;
        let charged =
            |key: usize| history.charges.iter().filter(|((of, _), _)| *of == key).map(|(_, count)| count).sum::<u64>();
        Self {
            requests: history.requests.len(),
            admitted: history.requests.iter().filter(|request| request.is_admitted()).count(),
            unanswered: history.requests.iter().filter(|request| request.is_unanswered()).count(),
            changes: history.changes.len(),
            charged: history.charges.values().sum(),
            lost: (0..history.keys.len()).map(|key| count(key).saturating_sub(charged(key))).sum(),
            unverifiable: history.unverifiable.by_key.values().sum::<u64>() + history.unverifiable.without_key,
            slowest: after_fault.map(|request| request.took()).max().unwrap_or_default(),
            recovered_after,
        }
    }
}

pub(crate) struct FaultReport {
    runs: BTreeMap<String, Vec<RunStats>>,
    combined: usize,
    failures: Vec<String>,
    started_at: Instant,
}

impl Default for FaultReport {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), combined: 0, failures: Vec::new(), started_at: Instant::now() }
    }
}

#[expect(clippy::print_stdout, reason = "the report is the output")]
impl FaultReport {
    pub(crate) fn record(&mut self, name: &str, seed: u64, result: Result<RunStats>) {
        match result {
            Ok(stats) => {
                println!(
                    "ok    {name:34} seed {seed:<5} {:6} requests, {:6} admitted, {:6} charged, {:4} unanswered, \
                     {:3} changes, slowest {:4} ms, recovered {:4} ms",
                    stats.requests,
                    stats.admitted,
                    stats.charged,
                    stats.unanswered,
                    stats.changes,
                    stats.slowest.as_millis(),
                    stats.recovered_after.as_millis(),
                );
                self.combined += usize::from(name.contains(" + "));
                self.runs.entry(name.split(" + ").next().unwrap_or(name).to_owned()).or_default().push(stats);
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
        println!(
            "\n{all} passed ({} with two faults), {} failed, over {} kinds in {} s",
            self.combined,
            self.failures.len(),
            self.runs.len(),
            self.started_at.elapsed().as_secs()
        );
    }
}
