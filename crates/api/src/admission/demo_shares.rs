//! The share of the demo's daily quota that one network can use, so that one caller cannot use it up for all. Counted in
//! memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ipseity_domain::{Address, NetworkId, UtcDay};

/// Counts today's demo requests per network. Every counted request is also charged to the quota, which bounds the entries.
pub(super) struct DemoShares {
    per_subnet_max: u64,
    today: Mutex<(UtcDay, HashMap<NetworkId, u64>)>,
}

impl DemoShares {
    pub(super) fn new(per_subnet_max: u64) -> Self {
        Self { per_subnet_max, today: Mutex::new((UtcDay(0), HashMap::new())) }
    }

    /// Counts a request of this day. Fails with the limit of a network that has used its share.
    ///
    /// Private addresses are not counted. Behind one of them there may be any number of callers, such as all those of a
    /// proxy that is not configured.
    pub(super) fn take(&self, client: Address, day: UtcDay) -> Result<(), u64> {
        if client.is_private() {
            return Ok(());
        }
        let mut today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        if today.0 != day {
            *today = (day, HashMap::new());
        }
        let counts = &mut today.1;
        for (network, factor) in client.subnet().networks() {
            let limit = self.per_subnet_max.saturating_mul(factor.into());
            if counts.get(&network).is_some_and(|count| *count >= limit) {
                return Err(limit);
            }
        }
        for (network, _) in client.subnet().networks() {
            *counts.entry(network).or_default() += 1;
        }
        Ok(())
    }

    /// Uncounts a request of this day that was not charged.
    pub(super) fn give_back(&self, client: Address, day: UtcDay) {
        let mut today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        if today.0 != day {
            return;
        }
        for (network, _) in client.subnet().networks() {
            if let Some(count) = today.1.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    today.1.remove(&network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: UtcDay = UtcDay(20_000);

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("address parses"))
    }

    fn taken(shares: &DemoShares, text: &str, day: UtcDay) -> usize {
        (0..1_000).take_while(|_| shares.take(address(text), day).is_ok()).count()
    }

    #[test]
    fn network_has_its_share_of_each_day() {
        let shares = DemoShares::new(100);
        for day in [TODAY, UtcDay(TODAY.0 + 1)] {
            assert_eq!(taken(&shares, "198.51.100.1", day), 100);
            assert_eq!(shares.take(address("198.51.100.1"), day), Err(100));
            assert_eq!(taken(&shares, "198.51.100.2", day), 100);
            assert_eq!(taken(&shares, "2001:db8:1::1", day), 100);
            assert_eq!(taken(&shares, "2001:db8:1:1::1", day) + taken(&shares, "2001:db8:1:2::1", day), 100);
            let rest_of_48: usize = (1..9).map(|n| taken(&shares, &format!("2001:db8:1:{n}00::1"), day)).sum();
            assert_eq!(rest_of_48, 200);
        }
    }

    #[test]
    fn private_addresses_have_no_share() {
        let shares = DemoShares::new(100);
        for private in ["127.0.0.1", "10.1.2.3", "::1", "fd00::1"] {
            assert_eq!(taken(&shares, private, TODAY), 1_000);
        }
    }

    #[test]
    fn uncharged_request_does_not_use_the_share() {
        let shares = DemoShares::new(1);
        for client in ["198.51.100.1", "2001:db8::1"].map(address) {
            for _ in 0..3 {
                assert_eq!(shares.take(client, TODAY), Ok(()));
                shares.give_back(client, TODAY);
            }
        }
        assert!(shares.today.lock().expect("not poisoned").1.is_empty());
    }
}
