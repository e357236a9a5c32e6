//! What the runs showed, as they end and in one table at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::books::Healed;
use crate::run::Seen;

/// Figures of one run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    pub(crate) admitted: usize,
    pub(crate) unanswered: usize,
    pub(crate) charged: u64,
    /// Admitted and not in the books.
    pub(crate) lost: u64,
    pub(crate) untold: u64,
    /// From the fault on.
    pub(crate) slowest: Duration,
    pub(crate) healed: Duration,
    pub(crate) books: Duration,
}

impl Figures {
    pub(crate) fn of(seen: &Seen, healed: &Healed) -> Self {
        let from_then = seen.asked.iter().filter(|asked| asked.sent >= seen.struck);
        let took = from_then.filter_map(|asked| Some(asked.outcome?.took));
        Self {
            requests: seen.asked.len(),
            admitted: seen.asked.iter().filter(|asked| asked.is_admitted()).count(),
            unanswered: seen.asked.iter().filter(|asked| asked.is_unanswered()).count(),
            charged: seen.charged.values().sum(),
            lost: lost(seen),
            untold: seen.untold,
            slowest: took.max().unwrap_or_default(),
            healed: healed.verdicts,
            books: healed.books,
        }
    }
}

fn lost(seen: &Seen) -> u64 {
    let missing = seen.subjects.iter().enumerate().map(|(number, subject)| {
        let admitted = seen.asked.iter().filter(|asked| asked.key == number && asked.is_admitted()).count() as u64;
        let charged = seen.charged.iter().filter(|((id, _), _)| *id == subject.id).map(|(_, count)| count).sum();
        admitted.saturating_sub(charged)
    });
    missing.sum()
}

#[derive(Default)]
pub(crate) struct Report {
    runs: BTreeMap<&'static str, Vec<Figures>>,
    failures: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
impl Report {
    pub(crate) fn ran(&mut self, name: &'static str, seed: u64, outcome: Result<Figures>) {
        match outcome {
            Ok(figures) => {
                println!(
                    "ok    {name:34} seed {seed:<5} {:6} requests, {:6} admitted, {:6} charged, {:4} unanswered, slowest {:4} ms, \
                     healed {:4} ms, books {:5} ms",
                    figures.requests,
                    figures.admitted,
                    figures.charged,
                    figures.unanswered,
                    figures.slowest.as_millis(),
                    figures.healed.as_millis(),
                    figures.books.as_millis(),
                );
                self.runs.entry(name).or_default().push(figures);
            }
            Err(error) => {
                println!("FAIL  {name:34} seed {seed:<5} {error:#}");
                self.failures.push(format!("{name}, seed {seed}: {error:#}"));
            }
        }
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.len()
    }

    pub(crate) fn conclude(&self) {
        println!(
            "\nkind                               runs  requests  admitted   charged    lost  unanswered  untold  slowest ms  healed ms"
        );
        let mut all = 0;
        for (name, runs) in &self.runs {
            all += runs.len();
            let sum = |of: fn(&Figures) -> u64| runs.iter().map(of).sum::<u64>();
            let max = |of: fn(&Figures) -> Duration| runs.iter().map(of).max().unwrap_or_default().as_millis();
            println!(
                "{name:34} {:5} {:9} {:9} {:9} {:7} {:11} {:7} {:11} {:10}",
                runs.len(),
                sum(|run| run.requests as u64),
                sum(|run| run.admitted as u64),
                sum(|run| run.charged),
                sum(|run| run.lost),
                sum(|run| run.unanswered as u64),
                sum(|run| run.untold),
                max(|run| run.slowest),
                max(|run| run.healed),
            );
        }
        for failure in &self.failures {
            println!("FAIL  {failure}");
        }
        println!("\n{all} passed, {} failed", self.failures.len());
    }
}
