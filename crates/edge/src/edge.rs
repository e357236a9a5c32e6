//! What all listeners of a node share.

use std::sync::Arc;

use domain::{Address, Colo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::crowd::{Crowd, Place};
use crate::{Bounds, Stats, Trust};

/// The bounds, the trust, the site and the counters of a node's listeners.
pub struct Edge {
    pub(crate) bounds: Bounds,
    pub(crate) trust: Trust,
    pub(crate) colo: Option<Colo>,
    stats: Stats,
    seats: Arc<Semaphore>,
    crowd: Arc<Crowd>,
}

impl Edge {
    /// Builds an edge with no connection yet.
    #[must_use]
    pub fn new(bounds: Bounds, trust: Trust, colo: Option<Colo>) -> Self {
        let seats = Arc::new(Semaphore::new(bounds.connections_max.min(Semaphore::MAX_PERMITS)));
        let crowd = Crowd::new(bounds.connections_per_network_max);
        Self { bounds, trust, colo, stats: Stats::default(), seats, crowd }
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Waits until one more connection may be held.
    pub(crate) async fn seat(&self) -> Seat {
        Seat(Arc::clone(&self.seats).acquire_owned().await.expect("the semaphore is never closed"))
    }

    /// Whether one more connection from there may be held: its place among its neighbours, which trusted proxies need not.
    pub(crate) fn admit(&self, address: Address) -> Result<Option<Place>, Crowded> {
        if self.trust.holds(address) {
            return Ok(None);
        }
        self.crowd.enter(address).map(Some).ok_or(Crowded)
    }

    pub(crate) fn find_seat(&self) -> Option<Seat> {
        Arc::clone(&self.seats).try_acquire_owned().ok().map(Seat)
    }
}

/// The neighbourhood holds as many connections as it may.
pub(crate) struct Crowded;

/// Leave to hold one connection.
pub(crate) struct Seat(OwnedSemaphorePermit);

impl Seat {
    /// Gives the seat to an accepted connection, which is counted as open until it is dropped.
    pub(crate) fn occupy(self, edge: &Arc<Edge>) -> Occupied {
        edge.stats.accepted.add(1);
        edge.stats.open.add(1);
        Occupied { edge: Arc::clone(edge), _permit: self.0 }
    }
}

/// The seat of an open connection.
pub(crate) struct Occupied {
    edge: Arc<Edge>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.edge.stats.open.take_one();
    }
}
