//! Splits a key's requests where a limit may start again.

use std::time::Duration;

use crate::history::{FaultEffect, History, KeyAction, RequestRecord};

/// The burst window, minus the resolution of Redis's clock.
pub(super) const BURST_WINDOW: Duration = Duration::from_millis(59_990);

/// Times between which something restarts: a resume, or a window of a fault. The resume of a key that cannot have been
/// paused changes nothing.
pub(super) fn resumes(history: &History, key: usize) -> Vec<(Duration, Duration)> {
    let may_be_paused =
        |request: &RequestRecord| request.is_unanswered() || matches!(request.status(), Some(403 | 429));
    let mut since = Duration::ZERO;
    let mut found = Vec::new();
    for resume in history.key_changes(key).filter(|change| change.action == KeyAction::Resume) {
        let mut requests = history.key_requests(key).filter(|request| may_be_paused(request));
        if requests.any(|request| request.overlaps(since, resume.end)) {
            found.push((resume.start, resume.end));
        }
        since = resume.start;
    }
    found
}

pub(super) fn restarts(history: &History, key: usize, effects: &[FaultEffect]) -> Vec<(Duration, Duration)> {
    let windows = history.faults.iter().filter(|window| effects.contains(&window.effect) && window.concerns_key(key));
    windows.map(|window| (window.from, window.until)).collect()
}

/// Groups requests by the restarts between them. Requests during a restart belong to no group.
pub(super) fn split_at<'a>(
    requests: impl Iterator<Item = &'a RequestRecord>,
    restarts: &[(Duration, Duration)],
) -> Vec<Vec<&'a RequestRecord>> {
    let mut groups = std::collections::BTreeMap::<usize, Vec<&RequestRecord>>::new();
    for request in requests {
        if restarts.iter().any(|&(from, until)| request.overlaps(from, until)) {
            continue;
        }
        let earlier = restarts.iter().filter(|&&(_, until)| until < request.start).count();
        groups.entry(earlier).or_default().push(request);
    }
    groups.into_values().collect()
}

/// The largest number of requests that certainly lie within one burst window.
pub(super) fn most_in_window(requests: &[&RequestRecord]) -> usize {
    let mut ends: Vec<(Duration, Duration)> = requests.iter().map(|request| (request.start, request.end)).collect();
    ends.sort_unstable();
    let within = |first: usize| {
        let until = ends[first].0 + BURST_WINDOW;
        ends[first..].iter().take_while(|(start, _)| *start <= until).filter(|(_, end)| *end <= until).count()
    };
    let mut most = 0;
    for first in 0..ends.len() {
        if ends.len() - first <= most {
            break;
        }
        most = most.max(within(first));
    }
    most
}
