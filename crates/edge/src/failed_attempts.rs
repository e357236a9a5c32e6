//! Failed attempts of one connection: requests without a valid key, and pages that return an error. After some of them, each
//! takes time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests of one connection can fail at the same time. None waits longer than this many intervals.
const DELAY_INTERVALS_MAX: u32 = 2;

pub(crate) struct FailedAttempts {
    interval: Duration,
    /// How far attempts may be ahead of one per interval without waiting.
    free: Duration,
    /// When the attempts would have ended at one per interval (GCRA).
    end: Mutex<Option<Instant>>,
}

impl FailedAttempts {
    /// `free_max` attempts do not wait.
    pub(crate) fn new(free_max: u32, interval: Duration) -> Self {
        Self { interval, free: interval.saturating_mul(free_max.saturating_sub(1)), end: Mutex::default() }
    }

    pub(crate) fn record(&self, now: Instant) {
        let latest = now + self.free + self.interval * DELAY_INTERVALS_MAX;
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = Some((end.map_or(now, |end| end.max(now)) + self.interval).min(latest));
    }

    /// How long the next request must wait.
    pub(crate) fn delay(&self, now: Instant) -> Option<Duration> {
        let end = (*self.end.lock().unwrap_or_else(PoisonError::into_inner))?;
        let left = end.checked_duration_since(now)?;
        left.checked_sub(self.free).filter(|delay| !delay.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_after_the_limit_take_an_interval_each() {
        let interval = Duration::from_secs(1);
        let attempts = FailedAttempts::new(20, interval);
        let start = Instant::now();
        let mut now = start;
        for _ in 0..50 {
            now += attempts.delay(now).unwrap_or_default();
            attempts.record(now);
        }
        assert_eq!(now - start, interval * 30, "the first 20 do not wait");
        (0..1_000).for_each(|_| attempts.record(now));
        assert_eq!(attempts.delay(now), Some(interval * 2), "many at the same time");
        assert_eq!(attempts.delay(now + interval * 2), None);
    }
}
