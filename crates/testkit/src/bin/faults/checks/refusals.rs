//! Every refusal has a reason in the history, and every missing response too.

use std::time::Duration;

use ipseity_domain::BURST_LIMIT;

use crate::history::{ChangeOutcome, ChangeRecord, FaultEffect, History, KeyAction, RequestRecord};
use crate::timeline::{LocalDecisions, SLOW_REQUEST, recovery_max};

/// A node may keep refusing a key for one second after it was resumed.
const REFUSAL_CACHE_MAX: Duration = Duration::from_millis(1_500);
/// How long a node may take to connect again.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
const BURST_WINDOW: Duration = Duration::from_secs(61);
/// How long a node does not ask PostgreSQL after it was late.
const POSTGRES_REST: Duration = Duration::from_millis(600);
/// How many requests may fail because both stores were late.
const LATE_ERRORS_ONE_IN: usize = 50;
const LATE_ERRORS_MIN: usize = 8;

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    let mut unexplained = std::collections::BTreeMap::<(usize, Option<u16>, bool), Vec<Duration>>::new();
    let mut late_errors_left = (history.requests.len() / LATE_ERRORS_ONE_IN).max(LATE_ERRORS_MIN);
    for request in history.requests.iter().filter(|request| !request.is_admitted()) {
        if !is_explained(history, local, request) {
            if is_late_error(history, local, request) && late_errors_left > 0 {
                late_errors_left -= 1;
                continue;
            }
            let response = (request.key, request.status(), request.is_burst_refusal());
            unexplained.entry(response).or_default().push(request.start);
        }
    }
    unexplained
        .into_iter()
        .map(|((key, status, is_burst), times)| {
            let what = match (status, is_burst) {
                (Some(status), false) => format!("status {status}"),
                (Some(status), true) => format!("status {status} for the burst limit"),
                (None, _) => "no response".to_owned(),
            };
            let id = &history.keys[key].name;
            format!("{} requests of {id} got {what} without a reason, the first at {:?}", times.len(), times[0])
        })
        .collect()
}

fn is_explained(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    match request.status() {
        None => may_have_no_response(history, request),
        Some(401) => may_have_wrong_secret(history, local, request),
        Some(403) => may_be_deactivated(history, local, request) || may_be_paused(history, local, request),
        Some(429) if request.is_burst_refusal() => may_be_paused(history, local, request),
        Some(429) => may_be_exhausted(history, local, request),
        Some(500..=599) => may_be_undecidable(history, local, request),
        Some(_) => false,
    }
}

fn may_have_no_response(history: &History, request: &RequestRecord) -> bool {
    [FaultEffect::NodeDown, FaultEffect::NodeKilled, FaultEffect::ClientsDisconnect].into_iter().any(|effect| {
        let start = request.start.saturating_sub(RECONNECT_MAX);
        history.is_affected(effect, request.process, request.key, start, request.end)
    })
}

fn may_have_wrong_secret(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    history.key_changes(request.key).any(|change| match change.action {
        KeyAction::Rotate(secret) if request.secret < secret => change.start < request.end,
        KeyAction::Rotate(secret) => request.secret == secret && !is_visible(history, local, change, request),
        KeyAction::Deactivate | KeyAction::Reactivate | KeyAction::Resume => false,
    })
}

fn may_be_deactivated(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    let of_key = || history.key_changes(request.key);
    of_key().filter(|change| change.action == KeyAction::Deactivate && change.start < request.end).any(|deactivated| {
        !of_key().any(|change| {
            change.action == KeyAction::Reactivate
                && change.start >= deactivated.end
                && is_visible(history, local, change, request)
        })
    })
}

/// Whether the key may be paused: more than 300 requests that count came within 60 s, since its last resume.
fn may_be_paused(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    let resumes = resumes_of_paused(history, request.key);
    let visible = resumes.into_iter().filter(|change| is_visible(history, local, change, request));
    let since = visible.map(|change| change.start).max();
    let mut starts: Vec<Duration> = history
        .key_requests(request.key)
        .filter(|other| other.start <= request.end && other.end >= since.unwrap_or_default())
        .filter(|other| other.is_admitted() || local.may_be_charged_unseen(other) || other.status() == Some(429))
        .map(|other| other.start)
        .collect();
    starts.sort_unstable();
    starts.windows(BURST_LIMIT + 1).any(|window| window[BURST_LIMIT] - window[0] <= BURST_WINDOW)
}

/// Resumes of a key that was certainly paused. Others change nothing.
fn resumes_of_paused(history: &History, key: usize) -> Vec<&ChangeRecord> {
    let mut since = Duration::ZERO;
    let mut found = Vec::new();
    for resume in history.key_changes(key).filter(|change| change.action == KeyAction::Resume) {
        let mut refusals = history.key_requests(key).filter(|request| request.is_burst_refusal());
        if refusals.any(|request| request.start > since && request.end < resume.start) {
            found.push(resume);
        }
        since = resume.end;
    }
    found
}

/// Whether the daily limit may be reached. A process counts a pending charge until Redis confirms it, although Redis may
/// have counted it already.
fn may_be_exhausted(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    let counted = history.key_requests(request.key).filter(|other| other.start < request.end).map(|other| {
        let is_of_day = other.is_admitted() && other.day() == request.day();
        u64::from(is_of_day || local.may_be_charged_unseen(other))
            + u64::from(is_of_day && other.process == request.process && local.may_include(other))
    });
    counted.sum::<u64>() >= history.keys[request.key].daily_limit
}

/// Whether neither store could decide: both were unreachable, or Redis had no record and PostgreSQL was unreachable.
fn may_be_undecidable(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    let (process, key) = (request.process, request.key);
    let start = request.start.saturating_sub(RECONNECT_MAX);
    if history.is_affected(FaultEffect::NodeDown, process, key, start, request.end) {
        return true;
    }
    if !history.is_affected(FaultEffect::PostgresUnreachable, process, key, start, request.end) {
        return false;
    }
    let is_known = history.key_requests(key).any(|other| other.is_admitted() && other.end < request.start);
    let restarts = [FaultEffect::RedisUnreachable, FaultEffect::RedisMemoryLost];
    let may_lack_record =
        restarts.into_iter().flat_map(|effect| history.windows(effect)).any(|window| window.from <= request.end);
    local.may_include(request) || !is_known || may_lack_record
}

/// On a busy machine both stores may be late for the same request. The node then spares PostgreSQL for a moment.
fn is_late_error(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    let from = request.start.saturating_sub(POSTGRES_REST);
    let is_slow = |other: &&RequestRecord| {
        other.process == request.process && other.took() >= SLOW_REQUEST && other.overlaps(from, request.end)
    };
    request.status() == Some(500) && local.may_include(request) && history.requests.iter().any(|other| is_slow(&other))
}

/// Whether a request must see a change that permits it.
fn is_visible(history: &History, local: &LocalDecisions, change: &ChangeRecord, request: &RequestRecord) -> bool {
    if history.windows(FaultEffect::CommitsLost).any(|lost| lost.from <= change.end && lost.until >= change.start) {
        return false;
    }
    let outages = [FaultEffect::RedisUnreachable, FaultEffect::PostgresUnreachable, FaultEffect::RedisMemoryLost];
    let outage_ended_at = outages
        .into_iter()
        .flat_map(|effect| history.windows(effect))
        .filter(|window| window.from <= request.start && window.until + recovery_max(history) >= change.start)
        .map(|window| window.until + recovery_max(history))
        .max()
        .unwrap_or_default();
    match change.outcome {
        ChangeOutcome::Failed => false,
        ChangeOutcome::InEffect if !local.may_include(request) => {
            request.start > change.end.max(outage_ended_at) + REFUSAL_CACHE_MAX
        }
        ChangeOutcome::InEffect | ChangeOutcome::Saved => {
            request.start > change.end.max(outage_ended_at) + recovery_max(history)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::fixtures::{burst_refusal, change, history, request, unanswered, window};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    #[test]
    fn refusals_without_a_reason_are_found() {
        for status in [401, 403, 404, 429, 500] {
            let mut history = history(10_000);
            history.requests = vec![request(0, 200), request(10, status)];
            assert_eq!(violations(&history), 1, "{status}");
        }
        let mut history = history(10_000);
        history.requests = vec![unanswered(10)];
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::NodeDown, 0, 20));
        assert_eq!(violations(&history), 0);
    }

    #[test]
    fn key_that_stays_refused_after_its_reactivation_is_found() {
        let mut history = history(10_000);
        history.changes.push(change(KeyAction::Deactivate, 100, 200));
        history.changes.push(change(KeyAction::Reactivate, 300, 400));
        history.requests = vec![request(150, 403), request(1_000, 403)];
        assert_eq!(violations(&history), 0);
        history.requests.push(request(2_000, 403));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn key_is_paused_only_above_the_burst_limit() {
        let mut history = history(10_000);
        history.requests = (0..300).map(|at| request(at, 200)).collect();
        history.requests.push(burst_refusal(400));
        history.requests.push(request(500, 403));
        assert_eq!(violations(&history), 0);
        history.requests.retain(|request| request.start != Duration::ZERO);
        assert_eq!(violations(&history), 2);
    }

    #[test]
    fn key_that_stays_paused_after_its_resume_is_found() {
        let mut history = history(10_000);
        history.requests = (0..300).map(|at| request(at, 200)).collect();
        history.requests.push(burst_refusal(400));
        history.changes.push(change(KeyAction::Resume, 500, 600));
        history.requests.push(request(3_000, 403));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn daily_limit_refuses_only_after_it_is_reached() {
        let mut history = history(2);
        history.requests = vec![request(0, 200), request(10, 200), request(20, 429)];
        assert_eq!(violations(&history), 0);
        history.requests.remove(0);
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn error_needs_two_unreachable_stores() {
        let mut history = history(10_000);
        history.requests = vec![request(0, 200), request(100, 500)];
        history.faults.push(window(FaultEffect::RedisUnreachable, 50, 200));
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::PostgresUnreachable, 50, 200));
        assert_eq!(violations(&history), 0);
    }
}
