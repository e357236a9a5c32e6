//! State that all listeners of a node share.

use std::sync::Arc;

use ipseity_domain::{Address, Colo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::subnet_limit::{SubnetLimiter, SubnetPermit};
use crate::{EdgeLimits, EdgeStats, Trust};

/// Limits, trusted proxies, site code, counters and permits of a node's listeners.
pub struct EdgeState {
    pub(crate) limits: EdgeLimits,
    pub(crate) trust: Trust,
    pub(crate) colo: Option<Colo>,
    stats: EdgeStats,
    connection_permits: Arc<Semaphore>,
    subnet_limiter: Arc<SubnetLimiter>,
}

impl EdgeState {
    /// Creates the state of a node without connections. `colo` is the site code that responses report.
    #[must_use]
    pub fn new(limits: EdgeLimits, trust: Trust, colo: Option<Colo>) -> Self {
        let connection_permits = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let subnet_limiter = SubnetLimiter::new(limits.connections_per_subnet_max);
        Self { limits, trust, colo, stats: EdgeStats::default(), connection_permits, subnet_limiter }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &EdgeStats {
        &self.stats
    }

    /// Waits until one more connection is allowed.
    pub(crate) async fn acquire_connection_permit(&self) -> ConnectionPermit {
        ConnectionPermit(Arc::clone(&self.connection_permits).acquire_owned().await.expect("semaphore is never closed"))
    }

    /// Takes a permit of the address's subnet. Trusted proxies need none and get `None`.
    pub(crate) fn acquire_subnet_permit(&self, address: Address) -> Result<Option<SubnetPermit>, SubnetLimitReached> {
        if self.trust.is_trusted(address) {
            return Ok(None);
        }
        self.subnet_limiter.try_acquire(address).map(Some).ok_or(SubnetLimitReached)
    }

    pub(crate) fn try_acquire_connection_permit(&self) -> Option<ConnectionPermit> {
        Arc::clone(&self.connection_permits).try_acquire_owned().ok().map(ConnectionPermit)
    }
}

/// The subnet has reached its connection limit.
pub(crate) struct SubnetLimitReached;

/// The permission to hold one connection.
pub(crate) struct ConnectionPermit(OwnedSemaphorePermit);

impl ConnectionPermit {
    /// Assigns the permit to an accepted connection, which counts as open until the return value is dropped.
    pub(crate) fn into_open_connection(self, edge: &Arc<EdgeState>) -> OpenConnection {
        edge.stats.connections_accepted.add(1);
        edge.stats.connections_open.add(1);
        OpenConnection { edge: Arc::clone(edge), _permit: self.0 }
    }
}

/// An open connection, with its permit.
pub(crate) struct OpenConnection {
    edge: Arc<EdgeState>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.edge.stats.connections_open.decrement();
    }
}
