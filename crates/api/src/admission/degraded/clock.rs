//! The counter store's clock as a node knows it: what the last verdict said, carried on by a clock that nobody sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ipseity_ledger::LedgerTime;

/// Unix milliseconds at which `start` was, by the counter store's clock; by the system's until that has spoken.
pub(crate) struct LedgerClock {
    start: Instant,
    start_ms: AtomicU64,
}

impl LedgerClock {
    pub(crate) fn start() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_ms: AtomicU64::new(as_millis(now)) }
    }

    /// The store said what its time is, and that was heard just now.
    pub(crate) fn sync(&self, now: LedgerTime, received_at: Instant) {
        self.start_ms.store(now.0.saturating_sub(as_millis(received_at - self.start)), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> LedgerTime {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, now: Instant) -> LedgerTime {
        LedgerTime(self.start_ms.load(Ordering::Relaxed) + as_millis(now - self.start))
    }
}

fn as_millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
