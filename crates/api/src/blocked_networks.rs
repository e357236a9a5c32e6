//! The networks whose requests are refused.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ipseity_domain::{Address, NetworkSet};

/// The current list of blocked networks, which can be replaced.
pub struct BlockedNetworks(ArcSwap<NetworkSet>);

impl BlockedNetworks {
    /// Starts with a list.
    #[must_use]
    pub fn new(networks: NetworkSet) -> Self {
        Self(ArcSwap::from_pointee(networks))
    }

    /// Uses another list, starting with the next request.
    pub fn replace(&self, networks: NetworkSet) {
        self.0.store(Arc::new(networks));
    }

    /// The number of networks in the list.
    #[must_use]
    pub fn network_count(&self) -> usize {
        self.0.load().network_count()
    }

    pub(crate) fn contains(&self, address: Address) -> bool {
        self.0.load().contains(address)
    }
}
