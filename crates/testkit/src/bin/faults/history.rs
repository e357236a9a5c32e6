//! What happened in a run, as the harness saw it: requests, key changes, faults and the nodes' metrics.
//!
//! All times are durations since the run began. The checkers decide from this alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipseity_domain::IN_FLIGHT_MAX;

/// Requests of one key and day that both stores say were charged.
pub(crate) type ChargeCounts = BTreeMap<(usize, u64), u64>;

/// Everything recorded in a run. Keys and node processes are numbered from 0. A node that is replaced gets a new number.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) keys: Vec<KeyFacts>,
    pub(crate) requests: Vec<RequestRecord>,
    pub(crate) changes: Vec<ChangeRecord>,
    pub(crate) faults: Vec<FaultWindow>,
    pub(crate) samples: Vec<NodeSample>,
    /// Processes of remote nodes.
    pub(crate) remote: BTreeSet<usize>,
    /// Those that admit requests before home has charged them.
    pub(crate) optimistic: BTreeSet<usize>,
    /// Counts in PostgreSQL at the end.
    pub(crate) charges: ChargeCounts,
    /// Counts of Redis that PostgreSQL lacks at the end.
    pub(crate) unflushed: Vec<String>,
    /// Refused requests in PostgreSQL at the end, by key and reason.
    pub(crate) refusals: BTreeMap<(usize, String), u64>,
    pub(crate) unverifiable: UnverifiableCounts,
    /// Responses that each node counted, by process and outcome. Without processes that were killed.
    pub(crate) outcomes: BTreeMap<(usize, String), u64>,
}

/// A key of a run. It had no usage before.
#[derive(Clone)]
pub(crate) struct KeyFacts {
    /// How the run uses the key, and its public id.
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) daily_limit: u64,
}

impl KeyFacts {
    pub(crate) fn new(role: &str, id: &str, daily_limit: u64) -> Self {
        Self { name: format!("{role} key {id}"), id: id.to_owned(), daily_limit }
    }
}

/// One request. `end` is when its response arrived, or when the client gave up.
#[derive(Clone)]
pub(crate) struct RequestRecord {
    pub(crate) key: usize,
    /// Number of the key's secret. Each rotation adds one.
    pub(crate) secret: usize,
    pub(crate) process: usize,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) response: Option<ResponseFacts>,
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseFacts {
    pub(crate) status: u16,
    /// The day that the quota of the response belongs to.
    pub(crate) day: Option<u64>,
    /// Requests of that day that remain.
    pub(crate) remaining: Option<u64>,
    /// Whether the response reports the burst limit.
    pub(crate) is_burst: bool,
}

impl RequestRecord {
    pub(crate) fn status(&self) -> Option<u16> {
        self.response.map(|response| response.status)
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.status() == Some(200)
    }

    /// The client does not know whether it was charged.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.status().is_none_or(|status| status >= 500)
    }

    pub(crate) fn is_burst_refusal(&self) -> bool {
        self.response.is_some_and(|response| response.status == 429 && response.is_burst)
    }

    pub(crate) fn day(&self) -> Option<u64> {
        self.response?.day
    }

    pub(crate) fn took(&self) -> Duration {
        self.end - self.start
    }

    /// Whether it was in progress at some time between `from` and `until`.
    pub(crate) fn overlaps(&self, from: Duration, until: Duration) -> bool {
        self.start <= until && self.end >= from
    }
}

/// A change of a key through the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRecord {
    pub(crate) key: usize,
    pub(crate) action: KeyAction,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) outcome: ChangeOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Deactivate,
    Reactivate,
    Resume,
    /// Issues the secret with this number. All earlier ones end immediately.
    Rotate(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    /// Acknowledged: PostgreSQL and Redis have it.
    InEffect,
    /// Acknowledged with a warning: PostgreSQL has it, Redis does not yet.
    Saved,
    /// Not acknowledged. It may have been made.
    Failed,
}

/// A part of a fault, as injected.
#[derive(Clone, Debug)]
pub(crate) struct FaultWindow {
    pub(crate) effect: FaultEffect,
    /// The affected process; all if absent.
    pub(crate) process: Option<usize>,
    /// The affected keys; all if absent.
    pub(crate) keys: Option<BTreeSet<usize>>,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEffect {
    /// Redis gives no verdict, or not in time.
    RedisUnreachable,
    /// PostgreSQL does not answer, or not in time.
    PostgresUnreachable,
    /// Redis lost its memory at some moment of the window.
    RedisMemoryLost,
    /// Redis was killed at some moment of the window. A batch of pending charges that was being sent is unverifiable.
    RedisKilled,
    /// PostgreSQL lost commits made in the window.
    CommitsLost,
    /// Redis's clock was set at some moment of the window.
    ClockStep,
    /// Midnight.
    Midnight,
    /// Redis's clock shows another day.
    WrongDay,
    /// The process does not run: frozen, being stopped or replaced.
    NodeDown,
    /// The process was killed with what it had in memory.
    NodeKilled,
    /// Clients disconnect before they get a response.
    ClientsDisconnect,
    /// Clients send as many requests as the nodes answer. Verdicts may be late.
    Overload,
}

/// Metrics of a node process at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSample {
    pub(crate) process: usize,
    /// The metrics were read at some time between these two.
    pub(crate) at: Duration,
    pub(crate) received_at: Duration,
    pub(crate) is_degraded: bool,
    pub(crate) pending: u64,
    /// Requests that the process decided without Redis so far.
    pub(crate) decided_locally: u64,
}

/// Charges that nodes reported as unverifiable.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnverifiableCounts {
    pub(crate) by_key: BTreeMap<usize, u64>,
    /// Reported without a key.
    pub(crate) without_key: u64,
}

impl UnverifiableCounts {
    /// The most that may belong to a key.
    pub(crate) fn of_key(&self, key: usize) -> u64 {
        self.by_key.get(&key).copied().unwrap_or(0) + self.without_key
    }
}

impl History {
    /// How many requests of a key more than a limit permits may be admitted: those in flight from optimistic processes.
    pub(crate) fn in_flight_max(&self) -> usize {
        IN_FLIGHT_MAX * self.optimistic.len()
    }

    pub(crate) fn key_requests(&self, key: usize) -> impl Iterator<Item = &RequestRecord> {
        self.requests.iter().filter(move |request| request.key == key)
    }

    pub(crate) fn key_changes(&self, key: usize) -> impl Iterator<Item = &ChangeRecord> {
        self.changes.iter().filter(move |change| change.key == key)
    }

    pub(crate) fn windows(&self, effect: FaultEffect) -> impl Iterator<Item = &FaultWindow> {
        self.faults.iter().filter(move |window| window.effect == effect)
    }

    /// Whether the effect touched this process and key between two times.
    pub(crate) fn is_affected(
        &self,
        effect: FaultEffect,
        process: usize,
        key: usize,
        from: Duration,
        until: Duration,
    ) -> bool {
        self.windows(effect).any(|window| window.concerns(process, key) && window.from <= until && window.until >= from)
    }
}

impl FaultWindow {
    pub(crate) fn concerns(&self, process: usize, key: usize) -> bool {
        self.process.is_none_or(|affected| affected == process) && self.concerns_key(key)
    }

    pub(crate) fn concerns_key(&self, key: usize) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&key))
    }
}

#[cfg(test)]
pub(crate) mod fixtures {
    //! Hand-made histories for the tests of the checkers.

    use super::*;

    pub(crate) const DAY: u64 = 20_000;

    pub(crate) fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A history of one key with this limit and no requests.
    pub(crate) fn history(daily_limit: u64) -> History {
        History { keys: vec![KeyFacts::new("test", "key0", daily_limit)], ..History::default() }
    }

    /// A request of key 0 on process 0 that took a millisecond.
    pub(crate) fn request(start_ms: u64, status: u16) -> RequestRecord {
        let response = ResponseFacts { status, day: Some(DAY), remaining: None, is_burst: false };
        RequestRecord {
            key: 0,
            secret: 0,
            process: 0,
            start: ms(start_ms),
            end: ms(start_ms + 1),
            response: Some(response),
        }
    }

    pub(crate) fn on_process(process: usize, request: RequestRecord) -> RequestRecord {
        RequestRecord { process, ..request }
    }

    pub(crate) fn burst_refusal(start_ms: u64) -> RequestRecord {
        let mut refusal = request(start_ms, 429);
        refusal.response = refusal.response.map(|response| ResponseFacts { is_burst: true, day: None, ..response });
        refusal
    }

    pub(crate) fn with_remaining(remaining: u64, mut request: RequestRecord) -> RequestRecord {
        request.response = request.response.map(|response| ResponseFacts { remaining: Some(remaining), ..response });
        request
    }

    pub(crate) fn unanswered(start_ms: u64) -> RequestRecord {
        RequestRecord { response: None, ..request(start_ms, 200) }
    }

    pub(crate) fn change(action: KeyAction, start_ms: u64, end_ms: u64) -> ChangeRecord {
        ChangeRecord { key: 0, action, start: ms(start_ms), end: ms(end_ms), outcome: ChangeOutcome::InEffect }
    }

    /// A sample of process 0 without pending charges.
    pub(crate) fn sample(at_ms: u64, decided_locally: u64) -> NodeSample {
        let (at, received_at) = (ms(at_ms), ms(at_ms + 1));
        NodeSample { process: 0, at, received_at, is_degraded: false, pending: 0, decided_locally }
    }

    pub(crate) fn window(effect: FaultEffect, from_ms: u64, until_ms: u64) -> FaultWindow {
        FaultWindow { effect, process: None, keys: None, from: ms(from_ms), until: ms(until_ms) }
    }
}
