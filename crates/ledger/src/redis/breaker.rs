//! The circuit breaker: opens after a number of consecutive failed charges. While it is open, no request is
//! sent to Redis.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failures within this time count once, because the charges of one batch fail together.
const SAME_FAILURE_WINDOW: Duration = Duration::from_millis(1);

pub(crate) struct Breaker {
    failures: AtomicU32,
    start: Instant,
    /// Time of the last counted failure, in microseconds since `start`. 0 if there is none.
    last_failure_us: AtomicU64,
    failures_max: u32,
    is_open: AtomicBool,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32) -> Self {
        let start = Instant::now();
        let (failures, last_failure_us) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { failures, start, last_failure_us, failures_max, is_open: AtomicBool::new(false) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn record_success(&self) {
        // Read before writing: if every request wrote it, the cache line would bounce between cores.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed charge. Returns `true` if it opens the breaker.
    pub(crate) fn record_failure(&self) -> bool {
        self.record_failure_at(Instant::now())
    }

    fn record_failure_at(&self, now: Instant) -> bool {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        // Starts at 1, because 0 means that there was no failure.
        let (now_us, last_us) = (micros(now - self.start) + 1, self.last_failure_us.load(Ordering::Relaxed));
        if last_us > 0 && now_us < last_us + micros(SAME_FAILURE_WINDOW) {
            return false;
        }
        if self.last_failure_us.compare_exchange(last_us, now_us, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        failures >= self.failures_max && !self.is_open.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records a failure late enough after the last to be counted.
    fn fail_later(breaker: &Breaker, at: &mut Instant) -> bool {
        *at += SAME_FAILURE_WINDOW;
        breaker.record_failure_at(*at)
    }

    #[test]
    fn consecutive_failures_open_the_breaker_until_it_is_closed() {
        let (breaker, at) = (Breaker::new(3), &mut Instant::now());
        for _ in 0..10 {
            assert!(!fail_later(&breaker, at));
            assert!(!fail_later(&breaker, at));
            breaker.record_success();
        }
        assert!(!fail_later(&breaker, at) && !fail_later(&breaker, at) && fail_later(&breaker, at));
        assert!(!fail_later(&breaker, at), "it reports the opening once");
        breaker.record_success();
        assert!(breaker.is_open());
        breaker.close();
        assert!(!breaker.is_open());
    }

    #[test]
    fn simultaneous_failures_count_once() {
        let (breaker, now) = (Breaker::new(2), Instant::now());
        assert!((0..10).all(|_| !breaker.record_failure_at(now)));
        assert!(breaker.record_failure_at(now + SAME_FAILURE_WINDOW));
    }
}
