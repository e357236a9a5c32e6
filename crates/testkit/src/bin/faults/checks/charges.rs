//! Every admitted request is charged once: `admitted − lost ≤ charged ≤ admitted + unanswered`, per key and day.
//!
//! An admitted request that is not charged was reported as unverifiable for its key, or is lost within the documented
//! bound of a fault.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::history::{ChangeRecord, FaultEffect, History, KeyAction, RequestRecord};
use crate::timeline::{LocalDecisions, NOTIFY_MAX, RECOVERY_MAX, may_be_lost};

/// Around midnight a node and Redis may take the same request for another day.
const MIDNIGHT_MARGIN: Duration = Duration::from_secs(2);

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    // PostgreSQL may have lost a count that Redis does not flush again before the key is used.
    let has_lost_commits = history.windows(FaultEffect::CommitsLost).next().is_some();
    let mut violations = if has_lost_commits { Vec::new() } else { history.unflushed.clone() };
    let mut unassigned = history.unverifiable.without_key;
    for (key, facts) in history.keys.iter().enumerate() {
        let requests = || history.key_requests(key);
        let unanswered = requests().filter(|request| local.may_be_charged_unseen(request)).count() as u64;
        let of_uncertain_day = requests().filter(|request| has_uncertain_day(history, request)).count() as u64;
        let reported = history.unverifiable.by_key.get(&key).copied().unwrap_or(0);
        // Only a charge whose reply was lost or late can be unverifiable. A node that stops without Redis reports all
        // that are pending, and if Redis is killed, those that it was sending.
        let is_stopped = |process| history.windows(FaultEffect::NodeDown).any(|window| window.process == Some(process));
        let is_sent_before_kill = |request: &RequestRecord| {
            history.windows(FaultEffect::RedisKilled).any(|window| request.start < window.from)
        };
        // Home does not accept charges of a remote node for a secret that has ended meanwhile.
        let is_of_ended_secret = |request: &RequestRecord| {
            let is_ended = |change: &ChangeRecord| {
                let KeyAction::Rotate(secret) = change.action else { return false };
                let is_in_flight = history.optimistic.contains(&request.process)
                    && request.overlaps(change.start, change.end + NOTIFY_MAX);
                request.secret < secret && (local.may_include(request) || is_in_flight)
            };
            history.remote.contains(&request.process) && history.key_changes(key).any(is_ended)
        };
        let may_be_reported = |request: &&RequestRecord| {
            local.may_be_unconfirmed(request)
                || is_of_ended_secret(request)
                || (local.may_include(request) && (is_stopped(request.process) || is_sent_before_kill(request)))
        };
        let unconfirmed = requests().filter(may_be_reported).count() as u64;
        if reported > unconfirmed {
            violations.push(format!(
                "{reported} charges of {} were reported as unverifiable, but {unconfirmed} were unconfirmed",
                facts.name
            ));
        }
        let mut missing_of_key = 0;
        for day in days(history, key) {
            let admitted =
                requests().filter(|request| request.is_admitted() && request.day() == Some(day)).count() as u64;
            let charged = history.charges.get(&(key, day)).copied().unwrap_or(0);
            if charged > admitted + unanswered + of_uncertain_day {
                violations.push(format!(
                    "{charged} charged of {} on day {day}, but {admitted} admitted and {unanswered} unanswered",
                    facts.name
                ));
            }
            let lost = may_be_lost(history, local, key).filter(|request| request.day() == Some(day)).count() as u64;
            let missing = admitted.saturating_sub(charged + lost + of_uncertain_day);
            missing_of_key += missing;
        }
        let unreported = missing_of_key.saturating_sub(reported);
        if unreported > unassigned.min(unconfirmed) {
            violations.push(format!(
                "{missing_of_key} admitted requests of {} are not charged, {reported} of them reported as unverifiable",
                facts.name
            ));
        } else {
            unassigned -= unreported;
        }
        violations.extend(check_total(history, local, key, unanswered, reported + unreported));
    }
    violations
}

/// The same over all days, also for requests of an uncertain day.
fn check_total(
    history: &History,
    local: &LocalDecisions,
    key: usize,
    unanswered: u64,
    unverifiable: u64,
) -> Option<String> {
    let admitted = history.key_requests(key).filter(|request| request.is_admitted()).count() as u64;
    let charged: u64 = days(history, key).into_iter().filter_map(|day| history.charges.get(&(key, day))).sum();
    let lost = may_be_lost(history, local, key).count() as u64;
    let is_within = charged <= admitted + unanswered && charged + lost + unverifiable >= admitted;
    (!is_within).then(|| {
        format!("{charged} charged of {}, but {admitted} admitted and {unanswered} unanswered", history.keys[key].name)
    })
}

fn days(history: &History, key: usize) -> BTreeSet<u64> {
    let charged = history.charges.keys().filter(|(of, _)| *of == key).map(|(_, day)| *day);
    let admitted = history.key_requests(key).filter(|request| request.is_admitted()).filter_map(RequestRecord::day);
    charged.chain(admitted).collect()
}

/// Whether a request may be charged to another day than that of its response. A node without Redis follows a clock that
/// was set back only when Redis answers again. Then the day of its pending charges is corrected.
fn has_uncertain_day(history: &History, request: &RequestRecord) -> bool {
    let mut midnights = history.windows(FaultEffect::Midnight);
    let mut wrong_days = history.windows(FaultEffect::WrongDay);
    midnights
        .any(|window| request.overlaps(window.from.saturating_sub(MIDNIGHT_MARGIN), window.until + MIDNIGHT_MARGIN))
        || wrong_days.any(|window| request.overlaps(window.from, window.until + RECOVERY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::fixtures::{DAY, change, history, request, sample, unanswered, window};
    use crate::history::{FaultWindow, NodeSample};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    /// 100 admitted requests, one every 100 ms, of which `charged` were charged.
    fn charged(charged: u64) -> History {
        let mut history = history(10_000);
        history.requests = (0..100).map(|at| request(at * 100, 200)).collect();
        history.charges.insert((0, DAY), charged);
        history
    }

    #[test]
    fn charged_equals_admitted_without_a_fault() {
        assert_eq!(violations(&charged(100)), 0);
        assert!(violations(&charged(99)) > 0);
        assert!(violations(&charged(101)) > 0);
    }

    #[test]
    fn unanswered_request_may_be_charged() {
        let mut history = charged(101);
        history.requests.push(unanswered(500));
        assert_eq!(violations(&history), 0);
    }

    #[test]
    fn loss_is_bounded_by_one_flush_interval() {
        let mut history = charged(70);
        history.faults.push(window(FaultEffect::RedisMemoryLost, 9_990, 10_000));
        assert_eq!(violations(&history), 0, "the last 3 s are 30 requests");
        history.charges.insert((0, DAY), 60);
        assert!(violations(&history) > 0);
    }

    #[test]
    fn killed_process_loses_what_it_had_not_reconciled() {
        let mut history = charged(50);
        let pending = NodeSample { is_degraded: true, pending: 40, ..sample(9_000, 40) };
        history.samples = vec![sample(4_950, 0), pending];
        history.faults.push(window(FaultEffect::RedisUnreachable, 4_950, 11_000));
        let killed = window(FaultEffect::NodeKilled, 9_950, 10_000);
        history.faults.push(FaultWindow { process: Some(0), ..killed });
        assert_eq!(violations(&history), 0);
        history.charges.insert((0, DAY), 49);
        assert!(violations(&history) > 0);
    }

    #[test]
    fn unverifiable_charge_is_reported_for_its_key() {
        let mut history = charged(98);
        history.faults.push(window(FaultEffect::RedisUnreachable, 1_000, 1_350));
        assert!(violations(&history) > 0);
        history.unverifiable.by_key.insert(0, 2);
        assert_eq!(violations(&history), 0);
        history.unverifiable.by_key.insert(0, 100);
        assert!(violations(&history) > 0, "more than were unconfirmed");
    }

    #[test]
    fn killed_optimistic_process_loses_at_most_4_requests_of_a_key() {
        let mut history = charged(96);
        history.optimistic = [0].into();
        let killed = window(FaultEffect::NodeKilled, 9_950, 10_000);
        history.faults.push(FaultWindow { process: Some(0), ..killed });
        assert_eq!(violations(&history), 0);
        history.charges.insert((0, DAY), 95);
        assert!(violations(&history) > 0);
    }

    #[test]
    fn remote_node_cannot_charge_for_a_secret_that_has_ended() {
        let mut history = charged(98);
        history.changes.push(change(KeyAction::Rotate(1), 5_000, 5_050));
        history.unverifiable.by_key.insert(0, 2);
        assert!(violations(&history) > 0, "a node with Redis can");
        (history.remote, history.optimistic) = ([0].into(), [0].into());
        assert_eq!(violations(&history), 0);
    }
}
