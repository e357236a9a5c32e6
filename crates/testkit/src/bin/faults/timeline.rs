//! Derives from a history when a process may have decided without Redis, and how much a loss may cost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipseity_domain::IN_FLIGHT_MAX;

use crate::history::{FaultEffect, FaultWindow, History, NodeSample, RequestRecord};

/// A node decides without Redis after `[ledger] timeout_ms` (50 ms). The client's clock may read less.
pub(crate) const SLOW_REQUEST: Duration = Duration::from_millis(45);
/// An optimistic node waits this long for the verdict on a request that it has admitted (`[home] timeout_ms`).
pub(crate) const HOME_TIMEOUT: Duration = Duration::from_secs(1);
/// Recovery from degraded mode: the probe interval (250 ms), the outbox, and a busy machine.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// The same if a node was killed: until its claim has expired (10 s), the others do not use a Redis that has restarted.
const RECOVERY_AFTER_KILL_MAX: Duration = Duration::from_secs(12);
/// Longest time of a notification to a node, by PostgreSQL or by home: milliseconds, or more on a busy machine.
pub(crate) const NOTIFY_MAX: Duration = Duration::from_millis(500);
/// Usage that is not flushed when Redis loses its memory: one interval (2 s) and the duration of a flush.
pub(crate) const FLUSH_MAX: Duration = Duration::from_millis(3_000);

/// When processes may have decided without Redis.
pub(crate) struct LocalDecisions {
    windows: Vec<FaultWindow>,
    /// By process, in the order of time.
    samples: BTreeMap<usize, Vec<NodeSample>>,
    optimistic: BTreeSet<usize>,
}

impl LocalDecisions {
    pub(crate) fn of(history: &History) -> Self {
        let mut windows: Vec<FaultWindow> = Vec::new();
        for window in history.windows(FaultEffect::RedisUnreachable) {
            for process in affected_processes(history, window) {
                let until = recovered_at(history, process, window.until);
                let in_flight = if history.optimistic.contains(&process) { HOME_TIMEOUT } else { Duration::ZERO };
                let from = window.from.saturating_sub(in_flight);
                windows.push(FaultWindow { process: Some(process), from, until, ..window.clone() });
            }
        }
        // A process that reports local decisions at another time had a late verdict. Those of a known outage must not
        // excuse keys that the outage does not concern.
        let scheduled = windows.clone();
        for (before, after) in sample_pairs(history) {
            let is_scheduled = scheduled.iter().any(|window| {
                window.process == Some(before.process) && window.from <= after.received_at && window.until >= before.at
            });
            if after.decided_locally > before.decided_locally && !is_scheduled {
                windows.push(FaultWindow {
                    effect: FaultEffect::RedisUnreachable,
                    process: Some(before.process),
                    keys: None,
                    from: before.at,
                    until: after.received_at,
                });
            }
        }
        let mut samples = BTreeMap::<usize, Vec<NodeSample>>::new();
        for sample in &history.samples {
            samples.entry(sample.process).or_default().push(*sample);
        }
        Self { windows, samples, optimistic: history.optimistic.clone() }
    }

    /// Whether a process may have decided on the request without Redis.
    pub(crate) fn may_include(&self, request: &RequestRecord) -> bool {
        request.took() >= SLOW_REQUEST
            || self.is_local_between(request.process, request.key, request.start, request.end)
    }

    pub(crate) fn is_local_between(&self, process: usize, key: usize, from: Duration, until: Duration) -> bool {
        self.windows.iter().any(|window| window.concerns(process, key) && window.from <= until && window.until >= from)
    }

    /// Whether the charge of a request may have been sent without a reply. In degraded mode nothing is sent.
    pub(crate) fn may_be_unconfirmed(&self, request: &RequestRecord) -> bool {
        let samples = self.samples_around(request);
        let is_degraded = samples.len() > 1 && samples.iter().all(|sample| sample.is_degraded);
        self.may_include(request) && !is_degraded
    }

    /// Whether a request that was not admitted may have been charged: it got no response, or Redis charged it but
    /// answered too late, and the node then refused it.
    pub(crate) fn may_be_charged_unseen(&self, request: &RequestRecord) -> bool {
        request.is_unanswered() || (!request.is_admitted() && self.may_be_unconfirmed(request))
    }

    /// Whether the number in a response is that of Redis alone. A process adds its pending charges to it, and an
    /// optimistic one continues from the last number it saw.
    pub(crate) fn has_exact_number(&self, request: &RequestRecord) -> bool {
        !self.optimistic.contains(&request.process)
            && !self.may_include(request)
            && self.samples_around(request).iter().all(|sample| sample.pending == 0)
    }

    /// The last sample before a request, those during it and the first after it.
    fn samples_around(&self, request: &RequestRecord) -> &[NodeSample] {
        let samples = self.samples.get(&request.process).map_or(&[] as &[NodeSample], Vec::as_slice);
        let from = samples.partition_point(|sample| sample.received_at <= request.start).saturating_sub(1);
        let until = samples.partition_point(|sample| sample.at < request.end) + 1;
        &samples[from..until.min(samples.len())]
    }

    /// Merged windows of a process for a key.
    pub(crate) fn windows_of(&self, process: usize, key: usize) -> Vec<(Duration, Duration)> {
        let mut windows: Vec<_> = self
            .windows
            .iter()
            .filter(|window| window.concerns(process, key))
            .map(|window| (window.from, window.until))
            .collect();
        windows.sort_unstable();
        let mut merged: Vec<(Duration, Duration)> = Vec::new();
        for (from, until) in windows {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => merged.push((from, until)),
            }
        }
        merged
    }
}

/// How long recovery may take in this history.
pub(crate) fn recovery_max(history: &History) -> Duration {
    let is_killed = history.windows(FaultEffect::NodeKilled).next().is_some();
    if is_killed { RECOVERY_AFTER_KILL_MAX } else { RECOVERY_MAX }
}

pub(crate) fn processes(history: &History) -> BTreeSet<usize> {
    let from_samples = history.samples.iter().map(|sample| sample.process);
    history.requests.iter().map(|request| request.process).chain(from_samples).collect()
}

fn affected_processes(history: &History, window: &FaultWindow) -> BTreeSet<usize> {
    match window.process {
        Some(process) => BTreeSet::from([process]),
        None => processes(history),
    }
}

fn sample_pairs(history: &History) -> impl Iterator<Item = (&NodeSample, &NodeSample)> {
    processes(history).into_iter().flat_map(|process| {
        let samples: Vec<&NodeSample> = history.samples.iter().filter(|sample| sample.process == process).collect();
        let later: Vec<&NodeSample> = samples.iter().skip(1).copied().collect();
        samples.into_iter().zip(later)
    })
}

/// When a process decided with Redis again after a fault: it is not in degraded mode, and the number of its local
/// decisions no longer rises. Without samples, the latest permitted time.
pub(crate) fn recovered_at(history: &History, process: usize, cleared_at: Duration) -> Duration {
    let of_process = |sample: &&NodeSample| sample.process == process && sample.at > cleared_at;
    let samples: Vec<&NodeSample> = history.samples.iter().filter(of_process).collect();
    let has_recovered = |index: &usize| {
        let (sample, next) = (samples[*index], samples.get(index + 1));
        let is_steady = |next: &&NodeSample| !next.is_degraded && next.decided_locally == sample.decided_locally;
        !sample.is_degraded && next.is_none_or(is_steady)
    };
    let recovered = (0..samples.len()).find(has_recovered);
    recovered.map_or(cleared_at + recovery_max(history), |index| samples[index].received_at)
}

/// The last time at or before `at` when a process had no pending charge.
pub(crate) fn last_reconciled_at(history: &History, process: usize, at: Duration) -> Duration {
    let samples = history.samples.iter().filter(|sample| sample.process == process && sample.at <= at);
    samples.filter(|sample| sample.pending == 0).map(|sample| sample.at).max().unwrap_or_default()
}

/// When every process had left degraded mode and reconciled its charges, after the last fault.
pub(crate) fn settled_at(history: &History) -> Option<Duration> {
    let cleared_at = history.faults.iter().map(|window| window.until).max().unwrap_or_default();
    let settled = |sample: &&NodeSample| sample.at > cleared_at && !sample.is_degraded && sample.pending == 0;
    let mut latest = Duration::ZERO;
    for process in processes(history) {
        let samples = || history.samples.iter().filter(|sample| sample.process == process);
        // A killed process has no later samples.
        if samples().map(|sample| sample.at).max()? > cleared_at {
            latest = latest.max(samples().find(settled)?.received_at);
        }
    }
    Some(latest)
}

/// Admitted requests of a key that may be lost: those of the last flush interval before Redis lost its memory or
/// PostgreSQL lost commits, and pending charges of a killed process.
pub(crate) fn may_be_lost<'a>(
    history: &'a History,
    local: &'a LocalDecisions,
    key: usize,
) -> impl Iterator<Item = &'a RequestRecord> {
    history.key_requests(key).filter(move |request| {
        request.is_admitted()
            && (is_lost_with_store(history, request)
                || is_lost_with_node(history, local, request)
                || is_lost_in_flight(history, request))
    })
}

/// Whether a store may have lost the request's charge.
pub(crate) fn is_lost_with_store(history: &History, request: &RequestRecord) -> bool {
    let lost = |window: &FaultWindow| {
        window.concerns_key(request.key) && request.overlaps(unflushed_since(history, window.from), window.until)
    };
    let is_on_wrong_day =
        history.windows(FaultEffect::WrongDay).any(|window| request.overlaps(window.from, window.until));
    is_on_wrong_day
        || history.windows(FaultEffect::RedisMemoryLost).any(lost)
        || history.windows(FaultEffect::CommitsLost).any(lost)
}

/// Since when counts may be missing in PostgreSQL. No flush is possible while PostgreSQL or Redis is unreachable.
fn unflushed_since(history: &History, lost_at: Duration) -> Duration {
    let mut since = lost_at.saturating_sub(FLUSH_MAX);
    let unreachable = || {
        let stores = [FaultEffect::PostgresUnreachable, FaultEffect::RedisUnreachable];
        stores.into_iter().flat_map(|effect| history.windows(effect))
    };
    for _ in 0..unreachable().count() {
        let blocked =
            unreachable().filter(|window| window.from < since && window.until + recovery_max(history) > since);
        since = blocked.map(|window| window.from.saturating_sub(FLUSH_MAX)).min().unwrap_or(since);
    }
    since
}

fn is_lost_with_node(history: &History, local: &LocalDecisions, request: &RequestRecord) -> bool {
    history.windows(FaultEffect::NodeKilled).any(|window| {
        window.process == Some(request.process)
            && request.start <= window.until
            && request.end >= last_reconciled_at(history, request.process, window.from)
            && local.may_include(request)
    })
}

/// Whether an optimistic process was killed before the charge of the request had left: one of the last of its key.
fn is_lost_in_flight(history: &History, request: &RequestRecord) -> bool {
    let kills = history.windows(FaultEffect::NodeKilled).filter(|window| window.process == Some(request.process));
    let later = history
        .key_requests(request.key)
        .filter(|other| other.process == request.process && other.is_admitted() && other.end > request.end);
    history.optimistic.contains(&request.process)
        && kills.into_iter().any(|window| request.overlaps(window.from.saturating_sub(HOME_TIMEOUT), window.until))
        && later.count() < IN_FLIGHT_MAX
}
