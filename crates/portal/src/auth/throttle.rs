//! Rate limits for sign-in attempts, key actions and requested emails, in memory only. The keys are never written to disk or logs.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::unsync::Cache;

/// Counts attempts per key. Each key has `attempts_max` attempts in a period that starts with the first.
pub(crate) struct Throttle<K> {
    attempts: Mutex<Cache<K, AttemptCount>>,
    attempts_max: u32,
    period: Duration,
}

#[derive(Clone, Copy)]
struct AttemptCount {
    started_at: Instant,
    count: u32,
}

/// Time until the next attempt is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter(pub(crate) Duration);

impl<K: Hash + Eq> Throttle<K> {
    /// Tracks at most `entries_max` keys; the least used are evicted first.
    pub(crate) fn new(attempts_max: u32, period: Duration, entries_max: usize) -> Self {
        Self { attempts: Mutex::new(Cache::new(entries_max)), attempts_max, period }
    }

    /// Checks whether one more attempt is allowed, without counting it.
    pub(crate) fn check(&self, key: &K) -> Result<(), RetryAfter> {
        self.check_below_max(self.current_attempts(&self.lock(), key, Instant::now()))
    }

    /// Counts an attempt, if it is allowed.
    pub(crate) fn record_attempt(&self, key: K) -> Result<(), RetryAfter> {
        let now = Instant::now();
        let mut attempts = self.lock();
        let current = self.current_attempts(&attempts, &key, now);
        self.check_below_max(current)?;
        attempts.insert(key, AttemptCount { count: current.count + 1, ..current });
        Ok(())
    }

    /// Resets the attempts of a key, after a success.
    pub(crate) fn reset(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Cache<K, AttemptCount>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_attempts(&self, attempts: &Cache<K, AttemptCount>, key: &K, now: Instant) -> AttemptCount {
        let current =
            attempts.peek(key).copied().filter(|attempts| now.duration_since(attempts.started_at) < self.period);
        current.unwrap_or(AttemptCount { started_at: now, count: 0 })
    }

    fn check_below_max(&self, attempts: AttemptCount) -> Result<(), RetryAfter> {
        if attempts.count < self.attempts_max {
            Ok(())
        } else {
            Err(RetryAfter(self.period.saturating_sub(attempts.started_at.elapsed())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_per_key_and_reset_on_success_or_expiry() {
        let throttle = Throttle::new(2, Duration::from_millis(50), 10);
        for _ in 0..2 {
            assert_eq!(throttle.check(&"ada"), Ok(()));
            assert_eq!(throttle.record_attempt("ada"), Ok(()));
        }
        assert!(throttle.check(&"ada").is_err());
        let Err(RetryAfter(wait)) = throttle.record_attempt("ada") else { panic!("a third attempt was allowed") };
        assert!(wait <= Duration::from_millis(50));
        assert_eq!(throttle.record_attempt("bob"), Ok(()));
        throttle.reset(&"ada");
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        while throttle.check(&"ada").is_err() {
            std::thread::yield_now();
        }
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
    }
}
