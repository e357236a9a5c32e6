//! Rate limits for sign-in attempts, key actions and requested emails, in memory only. The keys are never written to disk or logs.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{ClientSubnet, NetworkId};
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

impl<K: Hash + Eq + Copy> Throttle<K> {
    /// Tracks at most `entries_max` keys; the least used are evicted first.
    pub(crate) fn new(attempts_max: u32, period: Duration, entries_max: usize) -> Self {
        Self { attempts: Mutex::new(Cache::new(entries_max)), attempts_max, period }
    }

    /// Counts an attempt, if it is allowed. Call it before the work, so that parallel attempts cannot exceed the limit.
    pub(crate) fn record_attempt(&self, key: K) -> Result<(), RetryAfter> {
        self.record_for_all(std::iter::once((key, 1)))
    }

    /// Takes an attempt back that does not count after all.
    pub(crate) fn give_back(&self, key: &K) {
        if let Some(mut attempts) = self.lock().get_mut(key) {
            attempts.count = attempts.count.saturating_sub(1);
        }
    }

    /// Resets the attempts of a key, after a success.
    pub(crate) fn reset(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Removes the keys whose period is over.
    pub(crate) fn remove_expired(&self) {
        let now = Instant::now();
        self.lock().retain(|_, attempts| self.is_current(attempts, now));
    }

    /// Counts an attempt for several keys, if it is allowed for each. A key has `factor` times the attempts.
    fn record_for_all(&self, keys: impl Iterator<Item = (K, u32)> + Clone) -> Result<(), RetryAfter> {
        let now = Instant::now();
        let mut attempts = self.lock();
        for (key, factor) in keys.clone() {
            let attempts_max = self.attempts_max.saturating_mul(factor);
            self.check_below(attempts_max, self.current_attempts(&attempts, &key, now))?;
        }
        for (key, _) in keys {
            let current = self.current_attempts(&attempts, &key, now);
            attempts.insert(key, AttemptCount { count: current.count + 1, ..current });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Cache<K, AttemptCount>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_attempts(&self, attempts: &Cache<K, AttemptCount>, key: &K, now: Instant) -> AttemptCount {
        let current = attempts.peek(key).copied().filter(|attempts| self.is_current(attempts, now));
        current.unwrap_or(AttemptCount { started_at: now, count: 0 })
    }

    fn is_current(&self, attempts: &AttemptCount, now: Instant) -> bool {
        now.duration_since(attempts.started_at) < self.period
    }

    fn check_below(&self, attempts_max: u32, attempts: AttemptCount) -> Result<(), RetryAfter> {
        if attempts.count < attempts_max {
            Ok(())
        } else {
            Err(RetryAfter(self.period.saturating_sub(attempts.started_at.elapsed())))
        }
    }
}

/// Counts attempts per client network. Larger IPv6 networks have a few times the attempts of a /64.
pub(crate) struct SubnetThrottle(Throttle<NetworkId>);

impl SubnetThrottle {
    /// Tracks at most `entries_max` networks.
    pub(crate) fn new(attempts_max: u32, period: Duration, entries_max: usize) -> Self {
        Self(Throttle::new(attempts_max, period, entries_max))
    }

    /// Counts an attempt, if all networks of the client allow it.
    pub(crate) fn record_attempt(&self, subnet: ClientSubnet) -> Result<(), RetryAfter> {
        self.0.record_for_all(subnet.networks())
    }

    /// Takes an attempt back that does not count after all.
    pub(crate) fn give_back(&self, subnet: &ClientSubnet) {
        for (network, _) in subnet.networks() {
            self.0.give_back(&network);
        }
    }

    /// Removes the networks whose period is over.
    pub(crate) fn remove_expired(&self) {
        self.0.remove_expired();
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::Address;

    use super::*;

    #[test]
    fn attempts_are_per_key_and_reset_on_success_or_expiry() {
        let throttle = Throttle::new(2, Duration::from_millis(50), 10);
        for _ in 0..2 {
            assert_eq!(throttle.record_attempt("ada"), Ok(()));
        }
        let Err(RetryAfter(wait)) = throttle.record_attempt("ada") else { panic!("a third attempt was allowed") };
        assert!(wait <= Duration::from_millis(50));
        assert_eq!(throttle.record_attempt("bob"), Ok(()));
        throttle.reset(&"ada");
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        while throttle.record_attempt("ada").is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn returned_attempt_can_be_used_again() {
        let throttle = Throttle::new(1, Duration::from_secs(60), 10);
        throttle.give_back(&"ada");
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        throttle.give_back(&"ada");
        throttle.give_back(&"ada");
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        assert!(throttle.record_attempt("ada").is_err(), "an attempt was returned twice");
    }

    #[test]
    fn expired_keys_are_removed() {
        let throttle = Throttle::new(2, Duration::from_millis(50), 10);
        assert_eq!(throttle.record_attempt("ada"), Ok(()));
        throttle.remove_expired();
        assert_eq!(throttle.lock().len(), 1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(throttle.record_attempt("bob"), Ok(()));
        throttle.remove_expired();
        assert!(throttle.lock().peek("ada").is_none() && throttle.lock().peek("bob").is_some());
    }

    #[test]
    fn ipv6_attempts_count_for_the_64_the_56_and_the_48() {
        let throttle = SubnetThrottle::new(5, Duration::from_secs(60), 1000);
        let allowed = |text: &str| {
            let subnet = Address::new(text.parse().expect("address parses")).subnet();
            (0..100).take_while(|_| throttle.record_attempt(subnet).is_ok()).count()
        };
        assert_eq!(allowed("2001:db8:1::1"), 5, "a /64");
        assert_eq!(allowed("2001:db8:1::2"), 0);
        assert_eq!(allowed("2001:db8:1:1::1") + allowed("2001:db8:1:2::1"), 5, "twice as many for a /56");
        assert_eq!(allowed("2001:db8:1:100::1") + allowed("2001:db8:1:200::1"), 10, "four times as many for a /48");
        assert_eq!(allowed("2001:db8:1:300::1"), 0);
        assert_eq!(allowed("2001:db8:2::1"), 5, "another /48");
        assert_eq!(allowed("198.51.100.7"), 5);
    }
}
