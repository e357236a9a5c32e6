//! Counters of the edge, for whoever exports metrics. No labels that a peer could choose.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Bound;

/// A number that only the edge changes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value now.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn take_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the edge has counted since it was built.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections open now.
    pub open: Counter,
    /// Times that the system refused to accept a connection.
    pub accept_errors: Counter,
    /// TLS handshakes that failed for another reason than their deadline.
    pub handshakes_failed: Counter,
    /// QUIC callers that were asked to prove their address first.
    pub retries: Counter,
    closed: [Counter; Bound::ALL.len()],
}

impl Stats {
    /// Connections that this bound closed.
    #[must_use]
    pub fn closed_by(&self, bound: Bound) -> u64 {
        self.closed[bound as usize].value()
    }

    pub(crate) fn close(&self, bound: Bound, connections: usize) {
        self.closed[bound as usize].add(connections as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_has_its_own_counter() {
        let stats = Stats::default();
        for (place, bound) in Bound::ALL.into_iter().enumerate() {
            stats.close(bound, place + 1);
        }
        for (place, bound) in Bound::ALL.into_iter().enumerate() {
            assert_eq!(stats.closed_by(bound), place as u64 + 1, "{}", bound.name());
        }
    }
}
