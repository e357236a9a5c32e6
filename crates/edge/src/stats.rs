//! Counters of the edge, for whoever exports metrics. No labels that a peer could choose.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::CloseReason;

/// A number that only the edge changes.
#[derive(Debug, Default)]
pub struct EdgeCounter(AtomicU64);

impl EdgeCounter {
    /// Its value now.
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

/// What the edge has counted since it was built.
#[derive(Debug, Default)]
pub struct EdgeStats {
    /// Connections accepted.
    pub connections_accepted: EdgeCounter,
    /// Connections open now.
    pub connections_open: EdgeCounter,
    /// Times that the system refused to accept a connection.
    pub accept_errors: EdgeCounter,
    /// TLS handshakes that failed for another reason than their deadline.
    pub handshakes_failed: EdgeCounter,
    /// QUIC callers that were asked to prove their address first.
    pub quic_retries: EdgeCounter,
    closed_by_reason: [EdgeCounter; CloseReason::ALL.len()],
}

impl EdgeStats {
    /// Connections that this bound closed.
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
