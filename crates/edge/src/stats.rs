//! Counters for the metrics endpoint. No label has a value that a peer can choose.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::CloseReason;

/// A counter or gauge that only this crate changes.
#[derive(Debug, Default)]
pub struct EdgeCounter(AtomicU64);

impl EdgeCounter {
    /// The current value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts since the [`EdgeState`](crate::EdgeState) was created.
#[derive(Debug, Default)]
pub struct EdgeStats {
    /// Accepted connections.
    pub connections_accepted: EdgeCounter,
    /// Currently open connections.
    pub connections_open: EdgeCounter,
    /// Failed calls of accept(2), except those that concern one connection only.
    pub accept_errors: EdgeCounter,
    /// TLS handshakes that failed for a reason other than the timeout.
    pub handshakes_failed: EdgeCounter,
    /// Retry packets sent to QUIC clients with an unvalidated address.
    pub quic_retries: EdgeCounter,
    /// Requests that were refused, and responses that were reset, because the memory for them was exhausted.
    pub requests_out_of_memory: EdgeCounter,
    /// Requests whose client a trusted proxy did not name in a readable way.
    pub unidentified_clients: EdgeCounter,
    closed_by_reason: [EdgeCounter; CloseReason::ALL.len()],
}

impl EdgeStats {
    /// Connections closed for this reason.
    #[must_use]
    pub fn connections_closed(&self, reason: CloseReason) -> u64 {
        self.closed_by_reason[reason as usize].value()
    }

    pub(crate) fn record_closed(&self, reason: CloseReason, connections: usize) {
        self.closed_by_reason[reason as usize].add(connections as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_close_reason_has_a_separate_counter() {
        let stats = EdgeStats::default();
        for (index, reason) in CloseReason::ALL.into_iter().enumerate() {
            stats.record_closed(reason, index + 1);
        }
        for (index, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(stats.connections_closed(reason), index as u64 + 1, "{}", reason.name());
        }
    }
}
