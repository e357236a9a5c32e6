//! At most 300 requests per key in any 60 seconds and burst epoch, and those in flight from optimistic nodes.
//!
//! While Redis answers, it decides exactly. A process that decides without Redis admits at most 300 of those it
//! receives, which includes the ones that Redis admitted. So p processes admit at most 300 × p, and one window more
//! if Redis loses its memory or its clock is set.

use ipseity_domain::BURST_LIMIT;

use crate::checks::spans::{BURST_WINDOW, most_in_window, restarts, resumes, split_at};
use crate::history::{FaultEffect, History, RequestRecord};
use crate::timeline::{LocalDecisions, processes, settled_at};

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    let mut violations = Vec::new();
    let redis_limit = BURST_LIMIT + history.in_flight_max();
    for (key, facts) in history.keys.iter().enumerate() {
        let id = &facts.name;
        let admitted = || history.key_requests(key).filter(|request| request.is_admitted());
        if admitted().count() <= BURST_LIMIT {
            continue;
        }
        let mut by_redis = resumes(history, key);
        by_redis.extend(restarts(history, key, &[FaultEffect::RedisMemoryLost, FaultEffect::ClockStep]));
        for group in split_at(admitted().filter(|request| !local.may_include(request)), &by_redis) {
            let most = most_in_window(&group);
            let exact: Vec<_> =
                group.into_iter().filter(|request| !history.optimistic.contains(&request.process)).collect();
            if most > redis_limit || most_in_window(&exact) > BURST_LIMIT {
                violations.push(format!("Redis admitted {most} requests of {id} within 60 s"));
            }
        }
        let mut by_process = resumes(history, key);
        by_process.extend(restarts(history, key, &[FaultEffect::ClockStep]));
        for process in processes(history) {
            // A process that cannot be notified of a resume still counts in the old epoch, and then starts a new one.
            let late_epochs = resumes(history, key).into_iter().filter(|(from, until)| {
                history.is_affected(FaultEffect::PostgresUnreachable, process, key, *from, *until)
            });
            let limit = BURST_LIMIT * (1 + late_epochs.count());
            for group in split_at(admitted().filter(|request| request.process == process), &by_process) {
                let most = most_in_window(&group);
                if most > limit {
                    violations.push(format!("process {process} admitted {most} requests of {id} within 60 s"));
                }
            }
        }
        violations.extend(check_after_recovery(history, local, key, &by_redis));
    }
    violations
}

/// Once every charge is reconciled, Redis knows all requests of the window, also those decided without it.
fn check_after_recovery(
    history: &History,
    local: &LocalDecisions,
    key: usize,
    restarts: &[(std::time::Duration, std::time::Duration)],
) -> Option<String> {
    let settled_at = settled_at(history)?;
    let unverifiable = history.unverifiable.of_key(key);
    let lost = crate::timeline::may_be_lost(history, local, key).count();
    let known_limit =
        BURST_LIMIT + history.in_flight_max() + lost + usize::try_from(unverifiable).unwrap_or(usize::MAX);
    let groups = split_at(history.key_requests(key).filter(|request| request.is_admitted()), restarts);
    groups.iter().find_map(|group| {
        let latest: &RequestRecord = group
            .iter()
            .filter(|request| request.start >= settled_at && !local.may_include(request))
            .max_by_key(|request| request.start)?;
        let known = group.iter().filter(|request| {
            let is_known = request.end <= settled_at || !local.may_include(request);
            is_known && request.end <= latest.start && request.start + BURST_WINDOW >= latest.end
        });
        let before = known.count();
        (before >= known_limit).then(|| {
            format!(
                "after recovery Redis admitted a request of {} that follows {before} within 60 s",
                history.keys[key].name
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::fixtures::{burst_refusal, change, history, ms, on_process, request, sample, window};
    use crate::history::{KeyAction, NodeSample};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    /// One admitted request per millisecond on two processes.
    fn admitted(from_ms: u64, count: u64) -> Vec<RequestRecord> {
        (from_ms..from_ms + count).map(|at| on_process((at % 2) as usize, request(at, 200))).collect()
    }

    #[test]
    fn redis_admits_300_in_a_window() {
        let mut history = history(10_000);
        history.requests = admitted(0, 300);
        history.requests.extend(admitted(60_301, 300));
        assert_eq!(violations(&history), 0);
        history.requests.extend(admitted(400, 1));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn resume_and_loss_of_memory_start_a_new_window() {
        let mut resumed = history(10_000);
        resumed.requests = admitted(0, 300).into_iter().chain(admitted(1_000, 300)).collect();
        resumed.changes.push(change(KeyAction::Resume, 500, 600));
        assert_eq!(violations(&resumed), 1, "the key was not paused");
        resumed.requests.push(burst_refusal(400));
        assert_eq!(violations(&resumed), 0);
        resumed.changes.clear();
        resumed.faults.push(window(FaultEffect::RedisMemoryLost, 500, 600));
        assert_eq!(violations(&resumed), 0, "150 + 150 requests on each of two processes");
        resumed.requests.retain(|request| request.process == 0 || request.start < ms(500));
        resumed.requests.extend((1_000..1_300).step_by(2).map(|at| request(at + 1, 200)));
        assert_eq!(violations(&resumed), 1, "one process admitted 450");
    }

    #[test]
    fn each_process_admits_300_without_redis() {
        let mut history = history(10_000);
        history.faults.push(window(FaultEffect::RedisUnreachable, 0, 10_000));
        history.requests = admitted(0, 600);
        assert_eq!(violations(&history), 0);
        history.requests.push(request(700, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn reconciled_requests_count_after_recovery() {
        let mut history = history(10_000);
        history.faults.push(window(FaultEffect::RedisUnreachable, 0, 1_000));
        history.requests = admitted(0, 400);
        for process in 0..2 {
            history.samples.push(NodeSample { process, ..sample(2_000, 200) });
        }
        assert_eq!(violations(&history), 0);
        history.requests.push(request(3_000, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn optimistic_process_may_have_4_requests_in_flight() {
        let mut history = history(10_000);
        history.optimistic = [1].into();
        history.requests = admitted(0, 304);
        assert_eq!(violations(&history), 0);
        history.requests.extend(admitted(400, 1));
        assert_eq!(violations(&history), 1);
        history.requests.retain(|request| request.process == 0);
        history.requests.extend((500..650).map(|at| request(at, 200)));
        assert!(violations(&history) > 0, "the other process is exact");
    }
}
