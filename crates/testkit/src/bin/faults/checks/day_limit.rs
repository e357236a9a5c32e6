//! A key's daily limit.
//!
//! While Redis answers, each admitted request gets the next number, so numbers increase in real time. A process that
//! decides without Redis continues from the last number it saw. So p processes exceed the limit by at most
//! (p − 1) × (limit − used). Optimistic processes may exceed it by the requests that they have in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipseity_domain::IN_FLIGHT_MAX;

use crate::checks::spans::{restarts, split_at};
use crate::history::{FaultEffect, History, RequestRecord};
use crate::timeline::{LocalDecisions, is_lost_with_store, processes};

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    let mut violations = Vec::new();
    for key in 0..history.keys.len() {
        violations.extend(check_numbers(history, local, key));
        violations.extend(check_total_by_redis(history, local, key));
        for process in processes(history) {
            violations.extend(check_local(history, local, key, process));
        }
    }
    violations
}

fn used(history: &History, request: &RequestRecord) -> Option<u64> {
    let remaining = request.response.filter(|response| response.status == 200)?.remaining?;
    history.keys[request.key].daily_limit.checked_sub(remaining)
}

fn days(history: &History, key: usize) -> BTreeSet<u64> {
    history.key_requests(key).filter(|request| request.is_admitted()).filter_map(RequestRecord::day).collect()
}

/// Redis never gives a number twice, or a smaller one later.
fn check_numbers(history: &History, local: &LocalDecisions, key: usize) -> Option<String> {
    let lost =
        restarts(history, key, &[FaultEffect::RedisMemoryLost, FaultEffect::CommitsLost, FaultEffect::ClockStep]);
    let id = &history.keys[key].name;
    days(history, key).into_iter().find_map(|day| {
        let by_redis = history
            .key_requests(key)
            .filter(|request| request.is_admitted() && request.day() == Some(day) && local.has_exact_number(request));
        split_at(by_redis, &lost).into_iter().find_map(|group| {
            let mut by_end: Vec<(Duration, u64)> =
                group.iter().filter_map(|request| Some((request.end, used(history, request)?))).collect();
            by_end.sort_unstable();
            let mut by_start = group.clone();
            by_start.sort_unstable_by_key(|request| request.start);
            let mut seen = BTreeMap::<u64, usize>::new();
            let (mut ended, mut highest) = (0, 0);
            for request in by_start {
                while ended < by_end.len() && by_end[ended].0 < request.start {
                    highest = highest.max(by_end[ended].1);
                    ended += 1;
                }
                let Some(number) = used(history, request) else { continue };
                let times = seen.entry(number).or_default();
                *times += 1;
                // A node takes back the charge of a request that it refused because the verdict was late.
                let is_taken_back = |other: &&RequestRecord| {
                    other.response.is_some()
                        && other.start < request.start
                        && !other.is_admitted()
                        && local.may_be_unconfirmed(other)
                };
                let taken_back = || history.key_requests(key).filter(is_taken_back).count();
                if (number <= highest && number + taken_back() as u64 <= highest)
                    || (*times > 1 && *times > 1 + taken_back())
                {
                    return Some(format!(
                        "request {number} of {id} began at {:?}, after number {highest} was given",
                        request.start
                    ));
                }
            }
            None
        })
    })
}

/// Redis admits as many as the limit, and those more that it lost.
fn check_total_by_redis(history: &History, local: &LocalDecisions, key: usize) -> Option<String> {
    let facts = &history.keys[key];
    days(history, key).into_iter().find_map(|day| {
        let by_redis = || {
            history.key_requests(key).filter(move |request| {
                request.is_admitted() && request.day() == Some(day) && !local.may_include(request)
            })
        };
        let admitted = by_redis().count() as u64;
        let lost = by_redis().filter(|request| is_lost_with_store(history, request)).count() as u64;
        let has_step = history.windows(FaultEffect::ClockStep).next().is_some();
        let exact = by_redis().filter(|request| !history.optimistic.contains(&request.process)).count() as u64;
        let is_exceeded = admitted > facts.daily_limit + history.in_flight_max() as u64 + lost;
        ((is_exceeded || exact > facts.daily_limit + lost) && !has_step)
            .then(|| format!("Redis admitted {admitted} requests of {} on a day, {lost} may be lost", facts.name))
    })
}

/// A process that decides without Redis admits at most what was left when it last knew.
fn check_local(history: &History, local: &LocalDecisions, key: usize, process: usize) -> Option<String> {
    let facts = &history.keys[key];
    let unverifiable = history.unverifiable.of_key(key);
    let of_process =
        || history.key_requests(key).filter(move |request| request.process == process && request.is_admitted());
    local.windows_of(process, key).into_iter().find_map(|(from, until)| {
        days(history, key).into_iter().find_map(|day| {
            let on_day = || of_process().filter(move |request| request.day() == Some(day));
            let known = on_day()
                .filter(|request| request.end < from && local.has_exact_number(request))
                .filter_map(|request| used(history, request))
                .max();
            // A process forgets pending charges that turn out to be unverifiable.
            let in_flight = if history.optimistic.contains(&process) { IN_FLIGHT_MAX as u64 } else { 0 };
            let left = facts.daily_limit.saturating_sub(known.unwrap_or(0)) + unverifiable + in_flight;
            let admitted = on_day().filter(|request| request.start >= from && request.end <= until).count() as u64;
            (admitted > left).then(|| {
                format!(
                    "process {process} admitted {admitted} requests of {} without Redis, but {left} were left",
                    facts.name
                )
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::fixtures::{history, on_process, request, window, with_remaining};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    fn numbered(limit: u64, numbers: impl Iterator<Item = u64>) -> Vec<RequestRecord> {
        numbers.map(|number| with_remaining(limit - number, request(number * 10, 200))).collect()
    }

    #[test]
    fn numbers_increase_up_to_the_limit() {
        let mut history = history(60);
        history.requests = numbered(60, 1..=60);
        assert_eq!(violations(&history), 0);
        history.requests.push(with_remaining(0, request(900, 200)));
        assert_eq!(violations(&history), 2, "number 60 twice, and 61 admitted");
    }

    #[test]
    fn number_that_falls_back_is_found_unless_redis_lost_its_memory() {
        let mut history = history(1_000);
        history.requests = numbered(1_000, 1..=50);
        history.requests.push(with_remaining(1_000 - 20, request(600, 200)));
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::RedisMemoryLost, 550, 560));
        assert_eq!(violations(&history), 0);
    }

    #[test]
    fn process_without_redis_admits_what_is_left() {
        let mut history = history(60);
        history.requests = numbered(60, 1..=50);
        history.faults.push(window(FaultEffect::RedisUnreachable, 1_000, 9_000));
        history.requests.extend((0..10).map(|at| request(1_100 + at, 200)));
        assert_eq!(violations(&history), 0);
        history.requests.extend((0..60).map(|at| on_process(1, request(1_200 + at, 200))));
        assert_eq!(violations(&history), 0, "the other process knew nothing");
        history.requests.push(request(1_300, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn optimistic_process_may_have_4_requests_in_flight() {
        let mut history = history(60);
        history.optimistic = [1].into();
        history.requests = numbered(60, 1..=60);
        history.requests.extend((0..4).map(|at| on_process(1, with_remaining(10, request(800 + at, 200)))));
        assert_eq!(violations(&history), 0, "its numbers are estimates");
        history.requests.push(on_process(1, with_remaining(10, request(900, 200))));
        assert_eq!(violations(&history), 1);
    }
}
