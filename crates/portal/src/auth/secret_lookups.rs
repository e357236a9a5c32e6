//! Limits the database lookups of made-up cookies and links.
//!
//! A session cookie or the token of a link that is unknown once stays unknown, because each is generated when its row is
//! written. So a node remembers unknown digests for a while. It also counts them by subnet. Digests that were found before do
//! not count, so that members continue to be recognized in a network that sends many made-up ones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::ClientSubnet;
use ipseity_store::StoreError;
use quick_cache::unsync::Cache;

use crate::auth::throttle::SubnetThrottle;
use crate::error::PortalError;

/// Number of unknown digests to remember.
const UNKNOWN_ENTRIES_MAX: usize = 10_000;

pub(crate) struct SecretLookups {
    subnet_throttle: SubnetThrottle,
    known: Mutex<Cache<[u8; 32], ()>>,
    unknown: Mutex<Cache<[u8; 32], Instant>>,
    period: Duration,
}

impl SecretLookups {
    /// Allows `per_subnet_max` unknown digests per subnet and period.
    pub(crate) fn new(per_subnet_max: u32, period: Duration, entries_max: usize) -> Self {
        Self {
            subnet_throttle: SubnetThrottle::new(per_subnet_max, period, entries_max),
            known: Mutex::new(Cache::new(entries_max)),
            unknown: Mutex::new(Cache::new(UNKNOWN_ENTRIES_MAX)),
            period,
        }
    }

    /// Looks a session or a link up, unless its digest was unknown recently.
    pub(crate) async fn find<T>(
        &self,
        digest: [u8; 32],
        subnet: ClientSubnet,
        lookup: impl Future<Output = Result<Option<T>, StoreError>>,
    ) -> Result<Option<T>, PortalError> {
        if lock(&self.unknown).get(&digest).is_some_and(|since| since.elapsed() < self.period) {
            return Ok(None);
        }
        let found = self.find_limited(digest, subnet, lookup).await?;
        if found.is_none() {
            lock(&self.unknown).insert(digest, Instant::now());
        }
        Ok(found)
    }

    /// Looks a digest up that may become known later.
    pub(crate) async fn find_limited<T>(
        &self,
        digest: [u8; 32],
        subnet: ClientSubnet,
        lookup: impl Future<Output = Result<Option<T>, StoreError>>,
    ) -> Result<Option<T>, PortalError> {
        if lock(&self.known).get(&digest).is_some() {
            return Ok(lookup.await?);
        }
        self.subnet_throttle.record_attempt(subnet)?;
        let found = lookup.await;
        if !matches!(found, Ok(None)) {
            self.subnet_throttle.give_back(&subnet);
        }
        if matches!(found, Ok(Some(_))) {
            self.remember(digest);
        }
        Ok(found?)
    }

    /// Removes the subnets whose unknown digests no longer count.
    pub(crate) fn remove_expired(&self) {
        self.subnet_throttle.remove_expired();
    }

    /// Remembers a digest that is stored.
    pub(crate) fn remember(&self, digest: [u8; 32]) {
        lock(&self.known).insert(digest, ());
    }
}

fn lock<T>(cache: &Mutex<Cache<[u8; 32], T>>) -> MutexGuard<'_, Cache<[u8; 32], T>> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::IpAddr;

    use ipseity_domain::Address;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);

    fn subnet(address: [u8; 4]) -> ClientSubnet {
        Address::new(IpAddr::from(address)).subnet()
    }

    #[tokio::test]
    async fn made_up_digests_cost_a_bounded_number_of_lookups() {
        let (lookups, count) = (SecretLookups::new(3, PERIOD, 100), Cell::new(0));
        let (attacker, other) = (subnet([192, 0, 2, 1]), subnet([192, 0, 2, 2]));
        let find = async |digest: u8, subnet| {
            let lookup = async {
                count.set(count.get() + 1);
                Ok((digest >= 200).then_some(digest))
            };
            lookups.find([digest; 32], subnet, lookup).await
        };
        assert!(matches!(find(200, attacker).await, Ok(Some(200))));
        for _ in 0..10 {
            assert!(matches!(find(0, attacker).await, Ok(None)));
        }
        assert_eq!(count.get(), 2, "the unknown digest was looked up once");
        for digest in 1..50 {
            let found = find(digest, attacker).await;
            assert!(if digest < 3 {
                matches!(found, Ok(None))
            } else {
                matches!(found, Err(PortalError::Throttled(_)))
            });
        }
        assert_eq!(count.get(), 4);
        assert!(matches!(find(200, attacker).await, Ok(Some(200))), "a known digest continues to work");
        assert!(matches!(find(201, other).await, Ok(Some(201))), "other networks are not affected");
        tokio::time::sleep(PERIOD).await;
        assert!(matches!(find(0, attacker).await, Ok(None)));
        assert_eq!(count.get(), 7, "the memory of unknown digests has expired");
    }
}
