//! What all listeners of a node share.

use std::sync::Arc;

use ipseity_domain::{Address, Colo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::subnet_limit::{SubnetLimiter, SubnetPermit};
use crate::{EdgeLimits, EdgeStats, Trust};

/// The bounds, the trust, the site and the counters of a node's listeners.
pub struct EdgeState {
    pub(crate) limits: EdgeLimits,
    pub(crate) trust: Trust,
    pub(crate) colo: Option<Colo>,
    stats: EdgeStats,
    connection_permits: Arc<Semaphore>,
    subnet_limiter: Arc<SubnetLimiter>,
}

impl EdgeState {
    /// Builds an edge with no connection yet.
    #[must_use]
    pub fn new(limits: EdgeLimits, trust: Trust, colo: Option<Colo>) -> Self {
        let connection_permits = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let subnet_limiter = SubnetLimiter::new(limits.connections_per_subnet_max);
        Self { limits, trust, colo, stats: EdgeStats::default(), connection_permits, subnet_limiter }
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> &EdgeStats {
        &self.stats
    }

    /// Waits until one more connection may be held.
    pub(crate) async fn acquire_connection_permit(&self) -> ConnectionPermit {
        ConnectionPermit(
            Arc::clone(&self.connection_permits).acquire_owned().await.expect("the semaphore is never closed"),
        )
    }

    /// Whether one more connection from there may be held: its place among its neighbours, which trusted proxies need not.
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

/// The neighbourhood holds as many connections as it may.
pub(crate) struct SubnetLimitReached;

/// Leave to hold one connection.
pub(crate) struct ConnectionPermit(OwnedSemaphorePermit);

impl ConnectionPermit {
    /// Gives the seat to an accepted connection, which is counted as open until it is dropped.
    pub(crate) fn into_open_connection(self, edge: &Arc<EdgeState>) -> OpenConnection {
        edge.stats.connections_accepted.add(1);
        edge.stats.connections_open.add(1);
        OpenConnection { edge: Arc::clone(edge), _permit: self.0 }
    }
}

/// The seat of an open connection.
pub(crate) struct OpenConnection {
    edge: Arc<EdgeState>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.edge.stats.connections_open.decrement();
    }
}
