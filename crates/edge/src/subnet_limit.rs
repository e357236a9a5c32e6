//! Open connections per client subnet. Held in memory only, and removed with the subnet's last connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipseity_domain::{Address, ClientSubnet};

/// Counts open connections per client subnet. It has at most one entry per connection.
pub(crate) struct SubnetLimiter {
    per_subnet_max: usize,
    counts: Mutex<HashMap<ClientSubnet, usize>>,
}

impl SubnetLimiter {
    pub(crate) fn new(per_subnet_max: usize) -> Arc<Self> {
        Arc::new(Self { per_subnet_max, counts: Mutex::default() })
    }

    /// Takes a permit for one more connection, unless the address's subnet has reached its limit.
    pub(crate) fn try_acquire(self: &Arc<Self>, address: Address) -> Option<SubnetPermit> {
        let subnet = address.subnet();
        let mut counts = self.lock_counts();
        let count = counts.entry(subnet).or_default();
        if *count >= self.per_subnet_max {
            return None;
        }
        *count += 1;
        Some(SubnetPermit { limiter: Arc::clone(self), subnet })
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<ClientSubnet, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's share of its subnet's limit, released when dropped.
pub(crate) struct SubnetPermit {
    limiter: Arc<SubnetLimiter>,
    subnet: ClientSubnet,
}

impl Drop for SubnetPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.lock_counts();
        if let Some(count) = counts.get_mut(&self.subnet) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.subnet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_subnet_permit_removes_its_count() {
        let limiter = SubnetLimiter::new(2);
        let acquire = |text: &str| limiter.try_acquire(Address::new(text.parse().expect("address parses")));
        let (first, second) = (acquire("2001:db8::1"), acquire("2001:db8::2"));
        assert!(first.is_some() && second.is_some() && acquire("2001:db8::3").is_none());
        assert!(acquire("2001:db8:0:1::1").is_some());
        drop(first);
        assert!(acquire("2001:db8::3").is_some());
        drop(second);
        assert!(limiter.lock_counts().is_empty());
    }
}
