//! Open connections and memory per client network. Held in memory only, and removed with the network's last connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipseity_domain::{Address, ClientSubnet, NetworkId};

use crate::memory_budget::MemoryBudget;

/// Part of all connections that no network of several /64 exceeds.
const CONNECTIONS_DIVISOR: usize = 4;

/// Counts open connections per client network. It has at most three entries per connection.
pub(crate) struct SubnetLimiter {
    per_subnet_max: usize,
    connections_max: usize,
    memory_max: usize,
    node_memory: Arc<MemoryBudget>,
    networks: Mutex<HashMap<NetworkId, NetworkUse>>,
}

/// What the connections of a network use.
struct NetworkUse {
    connections: usize,
    memory: Arc<MemoryBudget>,
}

impl SubnetLimiter {
    pub(crate) fn new(
        per_subnet_max: usize,
        connections_max: usize,
        memory_max: usize,
        node_memory: Arc<MemoryBudget>,
    ) -> Arc<Self> {
        Arc::new(Self { per_subnet_max, connections_max, memory_max, node_memory, networks: Mutex::default() })
    }

    /// Takes a permit for one more connection, unless a network of the address has reached its limit.
    pub(crate) fn try_acquire(self: &Arc<Self>, address: Address) -> Option<SubnetPermit> {
        let subnet = address.subnet();
        let mut networks = self.lock_networks();
        let is_full =
            |(network, factor)| networks.get(&network).is_some_and(|used| used.connections >= self.limit(factor));
        if subnet.networks().any(is_full) {
            return None;
        }
        let mut largest_memory = Arc::clone(&self.node_memory);
        for (network, _) in subnet.networks() {
            let used = networks.entry(network).or_insert_with(|| NetworkUse {
                connections: 0,
                memory: MemoryBudget::new(self.memory_max, Some(Arc::clone(&self.node_memory))),
            });
            used.connections += 1;
            largest_memory = Arc::clone(&used.memory);
        }
        drop(networks);
        Some(SubnetPermit { limiter: Arc::clone(self), subnet, memory: largest_memory })
    }

    fn limit(&self, factor: u32) -> usize {
        let larger = self.per_subnet_max.saturating_mul(factor as usize);
        larger.min(self.connections_max / CONNECTIONS_DIVISOR).max(self.per_subnet_max)
    }

    fn lock_networks(&self) -> MutexGuard<'_, HashMap<NetworkId, NetworkUse>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's share of its networks' limits, released when dropped.
pub(crate) struct SubnetPermit {
    limiter: Arc<SubnetLimiter>,
    subnet: ClientSubnet,
    memory: Arc<MemoryBudget>,
}

impl SubnetPermit {
    /// The memory of the largest network.
    pub(crate) const fn memory_budget(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }
}

impl Drop for SubnetPermit {
    fn drop(&mut self) {
        let mut networks = self.limiter.lock_networks();
        for (network, _) in self.subnet.networks() {
            if let Some(used) = networks.get_mut(&network) {
                used.connections -= 1;
                if used.connections == 0 {
                    networks.remove(&network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_limiter(per_subnet_max: usize, connections_max: usize) -> Arc<SubnetLimiter> {
        SubnetLimiter::new(per_subnet_max, connections_max, 10, MemoryBudget::new(100, None))
    }

    fn acquire(limiter: &Arc<SubnetLimiter>, text: &str) -> Option<SubnetPermit> {
        limiter.try_acquire(Address::new(text.parse().expect("address parses")))
    }

    #[test]
    fn dropped_subnet_permit_removes_its_count() {
        let limiter = new_limiter(2, 100);
        let (first, second) = (acquire(&limiter, "2001:db8::1"), acquire(&limiter, "2001:db8::2"));
        assert!(first.is_some() && second.is_some() && acquire(&limiter, "2001:db8::3").is_none());
        assert!(acquire(&limiter, "2001:db8:0:1::1").is_some());
        drop(first);
        assert!(acquire(&limiter, "2001:db8::3").is_some());
        drop(second);
        assert!(limiter.lock_networks().is_empty());
    }

    /// Opens connections from 1,000 networks of /64, at a distance of `step`. Returns how many are accepted.
    fn accepted(per_subnet_max: usize, connections_max: usize, step: u16) -> usize {
        let limiter = new_limiter(per_subnet_max, connections_max);
        let addresses = (0..1000_u16).map(|number| format!("2001:db8:1:{:x}::1", number.wrapping_mul(step)));
        let permits: Vec<SubnetPermit> = addresses
            .flat_map(|address| (0..per_subnet_max).filter_map(|_| acquire(&limiter, &address)).collect::<Vec<_>>())
            .collect();
        permits.len()
    }

    #[test]
    fn larger_ipv6_network_has_a_few_times_the_connections_of_a_64() {
        assert_eq!(accepted(256, 10_000, 0), 256);
        assert_eq!(accepted(256, 10_000, 256), 1024, "a /48 has four times the limit");
        let limiter = new_limiter(1, 100);
        let _permits = ["2001:db8::1", "2001:db8:0:1::1"].map(|text| acquire(&limiter, text).expect("below the limit"));
        assert!(acquire(&limiter, "2001:db8:0:2::1").is_none(), "a /56 has twice the limit");
        assert!(acquire(&limiter, "2001:db8:0:100::1").is_some());
    }

    #[test]
    fn addresses_of_a_48_share_their_memory() {
        let limiter = new_limiter(2, 100);
        let permits = ["2001:db8:0:1::1", "2001:db8:0:200::1", "2001:db8:1::1", "192.0.2.1"]
            .map(|text| acquire(&limiter, text).expect("below the limit"));
        let _held = permits[0].memory_budget().try_reserve(10).expect("memory is free");
        let is_free = permits.each_ref().map(|permit| permit.memory_budget().try_reserve(10).is_some());
        assert_eq!(is_free, [false, false, true, true]);
    }

    #[test]
    fn no_larger_ipv6_network_has_more_than_a_quarter_of_all_connections() {
        assert_eq!(accepted(20, 100, 1), 25);
        assert_eq!(accepted(16, 16, 1), 16, "unless one address may");
    }
}
