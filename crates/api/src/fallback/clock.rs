//! The counter store's clock as a node knows it: what the last verdict said, carried on by a clock that nobody sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ledger::Moment;

/// Unix milliseconds at which `start` was, by the counter store's clock; by the system's until that has spoken.
pub(crate) struct StoreClock {
    start: Instant,
    start_ms: AtomicU64,
}

impl StoreClock {
    pub(crate) fn start() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_ms: AtomicU64::new(ms(now)) }
    }

    /// The store said what its time is, and that was heard just now.
    pub(crate) fn tell(&self, now: Moment, heard: Instant) {
        self.start_ms.store(now.0.saturating_sub(ms(heard - self.start)), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Moment {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, now: Instant) -> Moment {
        Moment(self.start_ms.load(Ordering::Relaxed) + ms(now - self.start))
    }
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
