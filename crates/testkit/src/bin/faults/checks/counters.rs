//! The counters of the service agree with what clients saw.

use std::time::Duration;

use crate::history::{FaultEffect, History};
use crate::timeline::{LocalDecisions, SLOW_REQUEST, processes};

/// Outcomes in the nodes' metrics by status.
const OUTCOMES: [(u16, &[&str]); 3] =
    [(200, &["success"]), (403, &["paused", "inactive_api_key"]), (429, &["burst_exceeded", "quota_exhausted"])];
/// Reasons in PostgreSQL by status.
const REASONS: [(u16, &[&str]); 2] = [(403, &["inactive", "paused"]), (429, &["burst", "day"])];
/// A late verdict is reported a moment after the request that waited for it.
const SAMPLE_MARGIN: Duration = Duration::from_millis(500);

/// How many more requests a node may decide without Redis than a fault explains, because of late verdicts.
const LATE_DECISIONS_ONE_IN: u64 = 50;

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    [
        check_responses(history),
        check_refusals(history),
        check_local_decisions(history),
        check_local_keys(history, local),
    ]
    .concat()
}

/// A node counts each response, and perhaps some that no client received.
fn check_responses(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for process in processes(history).into_iter().filter(|process| history.outcomes.keys().any(|(of, _)| of == process))
    {
        let of_process = || history.requests.iter().filter(move |request| request.process == process);
        let unanswered = of_process().filter(|request| request.response.is_none()).count() as u64;
        for (status, outcomes) in OUTCOMES {
            let answered = of_process().filter(|request| request.status() == Some(status)).count() as u64;
            let counted: u64 =
                outcomes.iter().filter_map(|outcome| history.outcomes.get(&(process, (*outcome).to_owned()))).sum();
            if counted < answered || counted > answered + unanswered {
                violations.push(format!(
                    "process {process} counted {counted} responses with status {status}, but clients got {answered}"
                ));
            }
        }
    }
    violations
}

/// PostgreSQL has no refusal that did not happen, and every one of a limit unless a node was killed or the day was wrong.
/// A sum whose confirmation PostgreSQL could not send is added again.
fn check_refusals(history: &History) -> Vec<String> {
    let has = |effect| history.windows(effect).next().is_some();
    let may_lose = has(FaultEffect::NodeKilled) || has(FaultEffect::CommitsLost) || has(FaultEffect::WrongDay);
    let may_repeat = has(FaultEffect::PostgresUnreachable);
    let mut violations = Vec::new();
    for (key, facts) in history.keys.iter().enumerate() {
        let unanswered = history.key_requests(key).filter(|request| request.is_unanswered()).count() as u64;
        for (status, reasons) in REASONS {
            let refused = history.key_requests(key).filter(|request| request.status() == Some(status)).count() as u64;
            let recorded: u64 =
                reasons.iter().filter_map(|reason| history.refusals.get(&(key, (*reason).to_owned()))).sum();
            // A node that refuses a key repeatedly stops recording it.
            let is_missing = status == 429 && recorded < refused && !may_lose;
            let is_excess = recorded > refused + unanswered && !may_repeat;
            if is_excess || is_missing {
                violations.push(format!(
                    "PostgreSQL has {recorded} refusals of {} with status {status}, but clients got {refused}",
                    facts.name
                ));
            }
        }
    }
    violations
}

/// A node decides without Redis only if a fault or a late verdict made it.
fn check_local_decisions(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for process in processes(history) {
        let samples: Vec<_> = history.samples.iter().filter(|sample| sample.process == process).collect();
        for pair in samples.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            let decided = after.decided_locally.saturating_sub(before.decided_locally);
            let from = before.at.saturating_sub(SAMPLE_MARGIN);
            let is_faulty = history.faults.iter().any(|window| {
                window.process.is_none_or(|affected| affected == process)
                    && window.from <= after.received_at
                    && window.until + crate::timeline::RECOVERY_MAX >= before.at
            });
            let is_slow = || {
                let mut requests = history.requests.iter().filter(|request| request.process == process);
                requests.any(|request| request.took() >= SLOW_REQUEST && request.overlaps(from, after.received_at))
            };
            // A node that has paused a key itself, after late verdicts, refuses it until Redis has the pause.
            let is_paused_here = || {
                let requests = history.requests.iter().filter(|request| request.process == process);
                let refused = requests
                    .filter(|request| request.status() == Some(403) && request.overlaps(before.at, after.received_at));
                before.pending > 0 && decided <= refused.count() as u64
            };
            // A sample that took long shows that the machine was busy.
            let is_busy = after.received_at - before.at >= 4 * SAMPLE_MARGIN;
            if decided > 0 && !is_faulty && !is_busy && !is_slow() && !is_paused_here() {
                violations.push(format!(
                    "process {process} decided {decided} requests without Redis at {:?}, though Redis answered",
                    after.at
                ));
            }
        }
    }
    violations
}

/// A node decides without Redis only on keys whose server was unreachable, on keys that it has paused, and on those that no store
/// knows.
fn check_local_keys(history: &History, local: &LocalDecisions) -> Vec<String> {
    let mut violations = Vec::new();
    for process in processes(history) {
        let counted: u64 = history.outcomes.iter().filter(|((of, _), _)| *of == process).map(|(_, count)| count).sum();
        if counted == 0 {
            // A killed process has no counts.
            continue;
        }
        let requests = || history.requests.iter().filter(move |request| request.process == process);
        let may_be_local = requests()
            .filter(|request| local.may_include(request) || matches!(request.status(), Some(403 | 429 | 500)));
        // Requests with keys that do not exist are counted, but not recorded.
        let unrecorded = counted.saturating_sub(requests().count() as u64);
        let allowed = may_be_local.count() as u64 + unrecorded + counted / LATE_DECISIONS_ONE_IN;
        let samples: Vec<_> = history.samples.iter().filter(|sample| sample.process == process).collect();
        let pairs = samples.windows(2);
        let decided: u64 = pairs.map(|pair| pair[1].decided_locally.saturating_sub(pair[0].decided_locally)).sum();
        if decided > allowed {
            violations.push(format!(
                "process {process} decided {decided} requests without Redis, but it was unreachable for {allowed}"
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::FaultWindow;
    use crate::history::fixtures::{history, request, sample, unanswered, window};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    #[test]
    fn node_counts_what_clients_received() {
        let mut history = history(10_000);
        history.requests = vec![request(0, 200), request(10, 200)];
        history.outcomes.insert((0, "success".to_owned()), 2);
        assert_eq!(violations(&history), 0);
        history.requests.push(unanswered(20));
        history.outcomes.insert((0, "success".to_owned()), 3);
        assert_eq!(violations(&history), 0);
        history.outcomes.insert((0, "success".to_owned()), 4);
        assert_eq!(violations(&history), 1);
        history.outcomes.insert((0, "success".to_owned()), 1);
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn recorded_refusals_happened() {
        let mut history = history(1);
        history.requests = vec![request(0, 200), request(10, 429)];
        history.refusals.insert((0, "day".to_owned()), 1);
        assert_eq!(violations(&history), 0);
        history.refusals.insert((0, "day".to_owned()), 2);
        assert_eq!(violations(&history), 1);
        history.refusals.clear();
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn outage_of_one_server_does_not_concern_other_keys() {
        let mut history = history(10_000);
        history.requests = (0..100).map(|at| request(at * 10, 200)).collect();
        history.outcomes.insert((0, "success".to_owned()), 100);
        history.samples = vec![sample(0, 0), sample(1_000, 50)];
        let outage = window(FaultEffect::RedisUnreachable, 0, 1_000);
        history.faults = vec![FaultWindow { keys: Some([0].into()), ..outage.clone() }];
        assert_eq!(violations(&history), 0);
        history.faults = vec![FaultWindow { keys: Some([1].into()), ..outage }];
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn local_decision_needs_a_cause() {
        let mut history = history(10_000);
        history.samples = vec![sample(0, 0), sample(100, 1)];
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::RedisUnreachable, 50, 60));
        assert_eq!(violations(&history), 0);
    }
}
