//! Bounds on how often something may be tried, in memory only. Who is counted is never written down.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::unsync::Cache;

/// Counts tries of many; each may try `max` times in a period that begins with the first.
pub(crate) struct Throttle<K> {
    tries: Mutex<Cache<K, Tries>>,
    max: u32,
    period: Duration,
}

#[derive(Clone, Copy)]
struct Tries {
    since: Instant,
    count: u32,
}

/// How long until the next try is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Duration);

impl<K: Hash + Eq> Throttle<K> {
    /// Remembers at most `entries_max`; the least used are forgotten first.
    pub(crate) fn new(max: u32, period: Duration, entries_max: usize) -> Self {
        Self { tries: Mutex::new(Cache::new(entries_max)), max, period }
    }

    /// Whether one more try is allowed; it is not counted.
    pub(crate) fn check(&self, who: &K) -> Result<(), Wait> {
        self.judge(self.known(&self.lock(), who, Instant::now()))
    }

    /// Counts a try, if it is allowed.
    pub(crate) fn spend(&self, who: K) -> Result<(), Wait> {
        let now = Instant::now();
        let mut tries = self.lock();
        let known = self.known(&tries, &who, now);
        self.judge(known)?;
        tries.insert(who, Tries { count: known.count + 1, ..known });
        Ok(())
    }

    /// Forgets the tries of one that proved itself.
    pub(crate) fn forgive(&self, who: &K) {
        self.lock().remove(who);
    }

    fn lock(&self) -> MutexGuard<'_, Cache<K, Tries>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, tries: &Cache<K, Tries>, who: &K, now: Instant) -> Tries {
        let known = tries.peek(who).copied().filter(|tries| now.duration_since(tries.since) < self.period);
        known.unwrap_or(Tries { since: now, count: 0 })
    }

    fn judge(&self, tries: Tries) -> Result<(), Wait> {
        if tries.count < self.max { Ok(()) } else { Err(Wait(self.period.saturating_sub(tries.since.elapsed()))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_tries_and_gets_them_back_when_forgiven_or_in_time() {
        let throttle = Throttle::new(2, Duration::from_millis(50), 10);
        for _ in 0..2 {
            assert_eq!(throttle.check(&"ada"), Ok(()));
            assert_eq!(throttle.spend("ada"), Ok(()));
        }
        assert!(throttle.check(&"ada").is_err());
        let Err(Wait(wait)) = throttle.spend("ada") else { panic!("a third try") };
        assert!(wait <= Duration::from_millis(50));
        assert_eq!(throttle.spend("bob"), Ok(()));
        throttle.forgive(&"ada");
        assert_eq!(throttle.spend("ada"), Ok(()));
        assert_eq!(throttle.spend("ada"), Ok(()));
        while throttle.check(&"ada").is_err() {
            std::thread::yield_now();
        }
        assert_eq!(throttle.spend("ada"), Ok(()));
    }
}
