//! Checkers: pure functions from a history to the violations they find in it.

mod burst;
mod charges;
mod counters;
mod day_limit;
mod refusals;
mod revocation;
mod spans;

use crate::history::History;
use crate::timeline::LocalDecisions;

/// Violations of one checker that are shown. One cause often has many.
const VIOLATIONS_SHOWN: usize = 4;

/// The violations of a history, each with the name of its checker.
pub(crate) fn find_violations(history: &History) -> Vec<String> {
    let local = LocalDecisions::of(history);
    let checkers: [(&str, Checker); 6] = [
        ("burst", burst::check),
        ("day limit", day_limit::check),
        ("revocation", revocation::check),
        ("charges", charges::check),
        ("refusals", refusals::check),
        ("counters", counters::check),
    ];
    let run = |(name, check): (&str, Checker)| -> Vec<String> {
        let mut found: Vec<String> =
            check(history, &local).into_iter().map(|violation| format!("{name}: {violation}")).collect();
        let more = found.len().saturating_sub(VIOLATIONS_SHOWN);
        if more > 0 {
            found.truncate(VIOLATIONS_SHOWN);
            found.push(format!("{name}: {more} more"));
        }
        found
    };
    checkers.into_iter().flat_map(run).collect()
}

type Checker = fn(&History, &LocalDecisions) -> Vec<String>;
