//! How many tokens of pairing a network gets in a minute. Counted in memory, by keyed hashes of networks.

use std::sync::{Mutex, PoisonError};

use ipseity_domain::{Address, NetworkId};
use quick_cache::unsync::Cache;

pub(crate) const WINDOW_S: u64 = 60;

/// Counts the tokens of the current minute per network.
pub(super) struct PairThrottle {
    per_subnet_max: u32,
    /// The number of the current minute, and its counts. If there are too many networks, those with few tokens are not counted.
    counts: Mutex<(u64, Cache<NetworkId, u32>)>,
}

/// The limit of a network that has got its tokens, and when it gets more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairLimit {
    pub(crate) limit: u32,
    pub(crate) now_s: u64,
    pub(crate) retry_after_s: u64,
}

impl PairThrottle {
    pub(super) fn new(per_subnet_max: u32, networks_max: usize) -> Self {
        Self { per_subnet_max, counts: Mutex::new((0, Cache::new(networks_max))) }
    }

    /// Counts a token, unless a network of the client has reached its limit.
    pub(super) fn take(&self, client: Address, now_s: u64) -> Result<(), PairLimit> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (counted_minute, counts) = &mut *counts;
        if *counted_minute != now_s / WINDOW_S {
            *counted_minute = now_s / WINDOW_S;
            counts.clear();
        }
        let subnet = client.subnet();
        for (network, factor) in subnet.networks() {
            let limit = self.per_subnet_max.saturating_mul(factor);
            if counts.get(&network).copied().unwrap_or_default() >= limit {
                return Err(PairLimit { limit, now_s, retry_after_s: WINDOW_S - now_s % WINDOW_S });
            }
        }
        for (network, _) in subnet.networks() {
            let count = counts.get(&network).copied().unwrap_or_default();
            counts.insert(network, count + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn taken(throttle: &PairThrottle, address: &str, now_s: u64) -> usize {
        let address = Address::new(address.parse().expect("address parses"));
        (0..100).take_while(|_| throttle.take(address, now_s).is_ok()).count()
    }

    #[test]
    fn network_gets_its_tokens_in_each_minute() {
        let throttle = PairThrottle::new(10, 1_000);
        for now_s in [NOW_S, NOW_S + 60] {
            assert_eq!(taken(&throttle, "198.51.100.7", now_s), 10);
            assert_eq!(taken(&throttle, "198.51.100.7", now_s + 59), 0);
            assert_eq!(taken(&throttle, "198.51.100.8", now_s), 10);
            let of_48: usize = (0..9).map(|n| taken(&throttle, &format!("2001:db8:1:{n}00::1"), now_s)).sum();
            assert_eq!(of_48, 40);
        }
        let address = Address::new("198.51.100.7".parse().expect("address parses"));
        let limit = PairLimit { limit: 10, now_s: NOW_S + 75, retry_after_s: 45 };
        assert_eq!(throttle.take(address, NOW_S + 75), Err(limit));
    }

    #[test]
    fn number_of_counted_networks_is_bounded() {
        let throttle = PairThrottle::new(10, 100);
        for number in 0..10_000_u32 {
            assert_eq!(throttle.take(Address::new(std::net::Ipv4Addr::from(number).into()), NOW_S), Ok(()));
        }
        assert!(throttle.counts.lock().expect("not poisoned").1.len() <= 100);
    }
}
