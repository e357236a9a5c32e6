//! State that all listeners of a node share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{Address, Colo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::memory_budget::MemoryBudget;
use crate::subnet_limit::{SubnetLimiter, SubnetPermit};
use crate::{CloseReason, Drain, EdgeLimits, EdgeStats, Trust};

/// Minimum interval between warnings about clients that a trusted proxy did not name.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Part of all connections that may wait to be closed.
const REFUSED_DIVISOR: usize = 10;

/// Limits, trusted proxies, site code, counters and permits of a node's listeners.
pub struct EdgeState {
    pub(crate) limits: EdgeLimits,
    pub(crate) trust: Trust,
    pub(crate) colo: Option<Colo>,
    stats: EdgeStats,
    warned_at: Mutex<Option<Instant>>,
    connection_permits: Arc<Semaphore>,
    subnet_limiter: Arc<SubnetLimiter>,
    refusal_permits: Semaphore,
    memory_budget: Arc<MemoryBudget>,
}

impl EdgeState {
    /// Creates the state of a node without connections. `colo` is the site code that responses report.
    #[must_use]
    pub fn new(limits: EdgeLimits, trust: Trust, colo: Option<Colo>) -> Self {
        let connection_permits = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let memory_budget = MemoryBudget::new(limits.memory_max, None);
        let subnet_limiter = SubnetLimiter::new(
            limits.connections_per_subnet_max,
            limits.connections_max,
            limits.memory_per_subnet_max,
            Arc::clone(&memory_budget),
        );
        let refusal_permits = Semaphore::new((limits.connections_max / REFUSED_DIVISOR).min(Semaphore::MAX_PERMITS));
        Self {
            limits,
            trust,
            colo,
            stats: EdgeStats::default(),
            warned_at: Mutex::default(),
            connection_permits,
            subnet_limiter,
            refusal_permits,
            memory_budget,
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &EdgeStats {
        &self.stats
    }

    /// Counts a request whose client a trusted proxy did not name, and warns the operator from time to time.
    pub(crate) fn note_unidentified_client(&self) {
        self.stats.unidentified_clients.add(1);
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if warned_at.is_none_or(|warned_at| warned_at.elapsed() >= WARNING_INTERVAL) {
            *warned_at = Some(Instant::now());
            // Never the text of the header, which may contain an address.
            tracing::warn!(
                forwarding_header = %self.trust.forwarding_header().name(),
                "a trusted proxy did not name its client in a readable way"
            );
        }
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

    /// Counts a connection beyond the limit of its subnet, and delays its end, unless too many others wait.
    pub(crate) async fn refuse_for_subnet_limit(&self, drain: &Drain) {
        self.stats.record_closed(CloseReason::SubnetLimit, 1);
        if let Ok(_permit) = self.refusal_permits.try_acquire() {
            // Ends early if the drain starts.
            let _ = timeout(self.limits.refusal_delay, drain.started()).await;
        }
    }

    /// The memory that a connection with this permit shares with others.
    pub(crate) fn memory_budget(&self, subnet_permit: Option<&SubnetPermit>) -> Arc<MemoryBudget> {
        Arc::clone(subnet_permit.map_or(&self.memory_budget, SubnetPermit::memory_budget))
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
