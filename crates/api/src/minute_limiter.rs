//! Limits on uncharged requests, per key and per network. Counted in memory, in periods of a minute.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{Address, KeyDigest, NetworkId};

use crate::limits::MinuteLimits;
use crate::response::rate_limit_headers::LIMITER_PERIOD_S;

const PERIOD: Duration = Duration::from_secs(LIMITER_PERIOD_S);

/// Counts the requests of the current period.
pub(crate) struct MinuteLimiter {
    limits: MinuteLimits,
    period: Mutex<LimiterPeriod>,
}

struct LimiterPeriod {
    start: Instant,
    networks: HashMap<NetworkId, u32>,
    /// By digest, not by id: a stranger who knows the id cannot use up the requests of the key.
    keys: HashMap<KeyDigest, u32>,
}

/// A limit that a request has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReachedLimit {
    pub(crate) limit: u32,
    pub(crate) retry_after_s: u64,
}

impl MinuteLimiter {
    pub(crate) fn new(limits: MinuteLimits) -> Self {
        Self { limits, period: Mutex::new(LimiterPeriod::starting(Instant::now())) }
    }

    /// Counts a request, unless its network or its key has reached a limit.
    ///
    /// Private addresses are not counted. Behind one of them there may be any number of callers, such as all those of a
    /// proxy that is not configured.
    pub(crate) fn take(&self, client: Option<Address>, key: KeyDigest, now: Instant) -> Result<(), ReachedLimit> {
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(period.start) >= PERIOD {
            *period = LimiterPeriod::starting(now);
        }
        let left = PERIOD.saturating_sub(now.saturating_duration_since(period.start));
        let reached = |limit| ReachedLimit { limit, retry_after_s: left.as_secs_f64().ceil() as u64 };
        let client = client.filter(|client| !client.is_private());
        let subnet = client.map(Address::subnet);
        let networks: Vec<_> = subnet.iter().flat_map(|subnet| subnet.networks()).collect();
        for (network, factor) in &networks {
            let limit = self.limits.requests_per_subnet_per_min_max.saturating_mul(*factor);
            if period.networks.get(network).copied().unwrap_or(0) >= limit {
                return Err(reached(limit));
            }
        }
        let limit = self.limits.requests_per_key_per_min_max;
        if period.keys.get(&key).copied().unwrap_or(0) >= limit {
            return Err(reached(limit));
        }
        for (network, _) in networks {
            count(&mut period.networks, network, self.limits.entries_max);
        }
        count(&mut period.keys, key, self.limits.entries_max);
        Ok(())
    }
}

impl LimiterPeriod {
    fn starting(start: Instant) -> Self {
        Self { start, networks: HashMap::new(), keys: HashMap::new() }
    }
}

/// Counts in a map of bounded size. If it is full, further ones are not counted: the stores have other limits, and many
/// networks together must not lock out the rest.
fn count<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: K, entries_max: usize) {
    if counts.len() < entries_max || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MinuteLimits =
        MinuteLimits { requests_per_key_per_min_max: 3, requests_per_subnet_per_min_max: 5, entries_max: 4 };

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("address parses"))
    }

    fn digest(number: u8) -> KeyDigest {
        KeyDigest::new([number; 32])
    }

    #[test]
    fn key_and_network_have_limits_per_minute() {
        let (limiter, start) = (MinuteLimiter::new(LIMITS), Instant::now());
        let (home, other) = (address("198.51.100.1"), address("198.51.100.2"));
        for _ in 0..3 {
            assert_eq!(limiter.take(Some(home), digest(1), start), Ok(()));
        }
        let of_key = limiter.take(Some(other), digest(1), start).expect_err("the key has reached its limit");
        assert!(of_key.limit == 3 && (59..=60).contains(&of_key.retry_after_s), "{of_key:?}");
        for _ in 0..2 {
            assert_eq!(limiter.take(Some(home), digest(2), start), Ok(()));
        }
        assert_eq!(limiter.take(Some(home), digest(3), start).map_err(|reached| reached.limit), Err(5));
        assert_eq!(limiter.take(Some(other), digest(2), start), Ok(()));
        assert_eq!(limiter.take(Some(home), digest(1), start + PERIOD + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn private_addresses_are_limited_per_key_only() {
        let (limiter, now) = (MinuteLimiter::new(LIMITS), Instant::now());
        for key in 0..4 {
            for _ in 0..3 {
                assert_eq!(limiter.take(Some(address("10.0.0.1")), digest(key), now), Ok(()));
            }
            assert!(limiter.take(Some(address("10.0.0.1")), digest(key), now).is_err());
        }
    }

    #[test]
    fn counts_are_bounded() {
        let (limiter, now) = (MinuteLimiter::new(LIMITS), Instant::now());
        for number in 0..100 {
            assert_eq!(limiter.take(Some(address(&format!("2001:db8:{number:x}::1"))), digest(number), now), Ok(()));
        }
        let period = limiter.period.lock().expect("not poisoned");
        assert!(period.networks.len() <= 4 && period.keys.len() <= 4);
    }
}
