//! No request is admitted that began after a revocation: a deactivated key, a secret that was rotated out, or a pause.
//!
//! The bound is 0 where Redis has the change and decides. A process without Redis follows PostgreSQL's notifications.
//! A process with neither store may admit until one of them is back.

use std::time::Duration;

use crate::history::{ChangeOutcome, FaultEffect, History, KeyAction, RequestRecord};
use crate::timeline::{HOME_TIMEOUT, LocalDecisions, NOTIFY_MAX, SLOW_REQUEST};

/// A change that is only in PostgreSQL reaches Redis within `[ledger] outbox_poll_interval_ms` (2 s).
const OUTBOX_MAX: Duration = Duration::from_millis(3_000);
/// How long a node may take to connect to PostgreSQL and to listen again.
const STORE_RETRY_MAX: Duration = Duration::from_secs(2);

/// An optimistic node that hears nothing from home waits for it after 850 ms. Longer on a busy machine.
const FRESHNESS_MAX: Duration = Duration::from_millis(1_350);

const PAUSED: &str = "paused";

/// From `end` until `until`, requests with these secrets must not be admitted.
struct Revocation {
    what: &'static str,
    key: usize,
    /// Secrets below this number.
    secrets: usize,
    start: Duration,
    end: Duration,
    until: Duration,
    /// Whether Redis has it.
    in_effect: bool,
    /// The process that decided it alone.
    decided_by: Option<usize>,
}

pub(super) fn check(history: &History, local: &LocalDecisions) -> Vec<String> {
    let mut violations = Vec::new();
    for revocation in revocations(history, local) {
        let id = &history.keys[revocation.key].name;
        let late: Vec<Duration> = history
            .key_requests(revocation.key)
            .filter(|request| request.is_admitted() && request.secret < revocation.secrets)
            .filter(|request| request.start > revocation.end && request.end < revocation.until)
            .filter(|request| effective_at(history, local, &revocation, request).is_some_and(|at| request.start > at))
            .map(|request| request.start - revocation.end)
            .collect();
        if let Some(last) = late.iter().max() {
            violations.push(format!(
                "{} requests of {id} were admitted after it was {} at {:?}, the last began {last:?} later",
                late.len(),
                revocation.what,
                revocation.end
            ));
        }
    }
    violations
}

fn revocations(history: &History, local: &LocalDecisions) -> Vec<Revocation> {
    let mut found = Vec::new();
    for change in history.changes.iter().filter(|change| change.outcome != ChangeOutcome::Failed) {
        let (what, secrets, ended_by) = match change.action {
            KeyAction::Deactivate => ("deactivated", usize::MAX, Some(KeyAction::Reactivate)),
            KeyAction::Rotate(secret) => ("rotated", secret, None),
            KeyAction::Reactivate | KeyAction::Resume => continue,
        };
        let later = history.key_changes(change.key).filter(|later| later.start >= change.start);
        let until = later.filter(|later| Some(later.action) == ended_by).map(|later| later.start).min();
        found.push(Revocation {
            what,
            key: change.key,
            secrets,
            start: change.start,
            end: change.end,
            until: until.unwrap_or(Duration::MAX),
            in_effect: change.outcome == ChangeOutcome::InEffect,
            decided_by: None,
        });
    }
    for key in 0..history.keys.len() {
        let mut since = Duration::ZERO;
        let resumes = history.key_changes(key).filter(|change| change.action == KeyAction::Resume);
        let mut epochs: Vec<(Duration, Duration)> = resumes.map(|resume| (resume.start, resume.end)).collect();
        epochs.push((Duration::MAX, Duration::MAX));
        for (until, next) in epochs {
            let refusals = history.key_requests(key).filter(|request| request.is_burst_refusal());
            let in_epoch = refusals.filter(|request| request.start >= since && request.end <= until);
            if let Some(pause) = in_epoch.min_by_key(|request| request.end) {
                let in_effect = !local.may_include(pause);
                found.push(Revocation {
                    what: PAUSED,
                    key,
                    secrets: usize::MAX,
                    start: pause.start,
                    end: pause.end,
                    until,
                    in_effect,
                    decided_by: (!in_effect).then_some(pause.process),
                });
            }
            since = next;
        }
    }
    found
}

/// After which time the request must not be admitted. `None` if nothing is promised.
fn effective_at(
    history: &History,
    local: &LocalDecisions,
    revocation: &Revocation,
    request: &RequestRecord,
) -> Option<Duration> {
    let (process, key) = (request.process, request.key);
    let is_affected = |effect, from: Duration, until: Duration| history.is_affected(effect, process, key, from, until);
    // PostgreSQL forgot the change. It has to be made again.
    if history
        .windows(FaultEffect::CommitsLost)
        .any(|lost| lost.from <= revocation.end && lost.until >= revocation.start)
    {
        return None;
    }
    // Redis forgot a pause before PostgreSQL had it.
    let may_be_forgotten = history.windows(FaultEffect::PostgresUnreachable).any(|down| {
        let recorded_at = down.until + OUTBOX_MAX;
        let mut losses = history.windows(FaultEffect::RedisMemoryLost);
        down.from <= revocation.end + NOTIFY_MAX
            && recorded_at >= revocation.start
            && losses.any(|lost| lost.until >= revocation.start && lost.from <= recorded_at)
    });
    if revocation.what == PAUSED && may_be_forgotten {
        return None;
    }
    // Two clocks that disagree decide in which epoch a request is.
    if revocation.decided_by == Some(process) {
        return Some(revocation.end);
    }
    // A pause without a row in PostgreSQL is known to one process only.
    if let Some(by) = revocation.decided_by
        && history.is_affected(FaultEffect::PostgresUnreachable, by, key, revocation.start, revocation.end + NOTIFY_MAX)
    {
        return None;
    }
    let postgres_is_down = |from: Duration, until| {
        is_affected(FaultEffect::PostgresUnreachable, from.saturating_sub(STORE_RETRY_MAX), until)
    };
    let thawed_at = history
        .windows(FaultEffect::NodeDown)
        .filter(|window| window.concerns(process, key) && request.overlaps(window.from, window.until + NOTIFY_MAX))
        .map(|window| window.until)
        .max()
        .unwrap_or_default();
    if history.optimistic.contains(&process) && revocation.in_effect && !local.may_include(request) {
        // Without a fault, the notice takes the way from home. A node that may have missed it waits for home.
        let may_miss = local.is_local_between(process, key, revocation.start, request.end);
        let notice_max = if may_miss { FRESHNESS_MAX } else { NOTIFY_MAX };
        return Some(revocation.end.max(thawed_at) + notice_max);
    }
    if local.may_include(request) {
        let is_remote = history.remote.contains(&process);
        let was_notified = !is_remote && !postgres_is_down(revocation.start, revocation.end + NOTIFY_MAX);
        // A node without Redis waits for PostgreSQL only. If that is late, it reaches neither.
        let is_fast = request.took() < if is_remote { HOME_TIMEOUT } else { SLOW_REQUEST };
        let can_ask = !postgres_is_down(request.start, request.end) && is_fast;
        return (was_notified || can_ask).then_some(revocation.end.max(thawed_at) + NOTIFY_MAX);
    }
    if revocation.in_effect {
        return Some(revocation.end);
    }
    if postgres_is_down(revocation.end, request.start) {
        return None;
    }
    // A process that lost its connection to Redis applies the outbox before it charges again.
    let has_reconnected = local.is_local_between(process, key, revocation.start, revocation.end);
    Some(revocation.end + if has_reconnected { NOTIFY_MAX } else { OUTBOX_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ChangeRecord;
    use crate::history::fixtures::{burst_refusal, change, history, on_process, request, sample, window};

    fn violations(history: &History) -> usize {
        check(history, &LocalDecisions::of(history)).len()
    }

    fn deactivated() -> History {
        let mut history = history(10_000);
        history.requests.push(request(90, 200));
        history.changes.push(change(KeyAction::Deactivate, 100, 200));
        history.requests.push(request(150, 200));
        history.requests.push(request(300, 403));
        history
    }

    #[test]
    fn deactivated_key_is_not_admitted() {
        let mut history = deactivated();
        assert_eq!(violations(&history), 0, "a concurrent request may be admitted");
        history.requests.push(request(201, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn reactivated_key_is_admitted() {
        let mut history = deactivated();
        history.changes.push(change(KeyAction::Reactivate, 400, 500));
        history.requests.push(request(450, 200));
        history.requests.push(request(600, 200));
        assert_eq!(violations(&history), 0);
    }

    #[test]
    fn process_without_redis_follows_notifications() {
        let mut history = deactivated();
        history.faults.push(window(FaultEffect::RedisUnreachable, 0, 5_000));
        history.changes[0].outcome = ChangeOutcome::Saved;
        history.requests.push(request(300, 200));
        assert_eq!(violations(&history), 0);
        history.requests.push(request(1_000, 200));
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::PostgresUnreachable, 150, 5_000));
        assert_eq!(violations(&history), 0, "it reaches neither store");
    }

    #[test]
    fn change_that_redis_lacks_takes_effect_within_the_outbox_interval() {
        let mut history = deactivated();
        history.changes[0].outcome = ChangeOutcome::Saved;
        history.requests.push(request(2_000, 200));
        assert_eq!(violations(&history), 0);
        history.requests.push(request(3_300, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn secret_that_was_rotated_out_is_not_admitted() {
        let mut history = history(10_000);
        history.changes.push(ChangeRecord { ..change(KeyAction::Rotate(1), 100, 200) });
        history.requests.push(RequestRecord { secret: 1, ..request(300, 200) });
        assert_eq!(violations(&history), 0);
        history.requests.push(request(300, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn paused_key_is_not_admitted_before_its_resume() {
        let mut history = history(10_000);
        history.requests.push(burst_refusal(100));
        history.changes.push(change(KeyAction::Resume, 500, 600));
        history.requests.push(on_process(1, request(700, 200)));
        assert_eq!(violations(&history), 0);
        history.requests.push(on_process(1, request(300, 200)));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn lost_commit_may_lose_a_revocation() {
        let mut history = deactivated();
        history.faults.push(window(FaultEffect::CommitsLost, 50, 400));
        history.requests.push(request(1_000, 200));
        assert_eq!(violations(&history), 0);
        history.changes.push(change(KeyAction::Deactivate, 2_000, 2_100));
        history.requests.push(request(2_200, 200));
        assert_eq!(violations(&history), 1);
    }

    #[test]
    fn optimistic_process_follows_notices_or_waits_for_home() {
        let mut history = deactivated();
        history.optimistic = [0].into();
        history.requests.push(request(600, 200));
        assert_eq!(violations(&history), 0, "the notice takes a moment");
        history.requests.push(request(900, 200));
        assert_eq!(violations(&history), 1);
        history.faults.push(window(FaultEffect::RedisUnreachable, 150, 1_450));
        history.faults.push(window(FaultEffect::PostgresUnreachable, 150, 1_450));
        history.samples = vec![sample(1_500, 0), sample(1_600, 0)];
        assert_eq!(violations(&history), 0, "the notice may have been lost");
        history.requests.push(request(1_700, 200));
        assert_eq!(violations(&history), 1);
    }
}
