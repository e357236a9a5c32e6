//! The Redis clock as this node knows it: the time of the last verdict, advanced by the monotonic clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ipseity_ledger::LedgerTime;

pub(crate) struct LedgerClock {
    start: Instant,
    /// Unix time of `start` in milliseconds, by the Redis clock. By the system clock until the first verdict.
    start_ms: AtomicU64,
}

impl LedgerClock {
    pub(super) fn start() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_ms: AtomicU64::new(as_millis(now)) }
    }

    /// Sets the clock to the Redis time `now`, received at `received_at`.
    pub(super) fn sync(&self, now: LedgerTime, received_at: Instant) {
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
