//! The result of checking the deployment, which all services of a process share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_ledger::TrustedStores;
use uuid::Uuid;

/// Whether PostgreSQL and Redis belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeploymentStatus {
    /// Not checked yet, because PostgreSQL or Redis was not reachable.
    #[default]
    Unchecked,
    /// They belong together.
    Matching,
    /// Redis has the id of another deployment.
    ForeignRedis,
    /// Other nodes use another Redis.
    SplitRedis,
    /// No node runs, and the last ones used another Redis, or this one before it was restarted.
    UnclaimedRedis,
}

impl DeploymentStatus {
    /// Whether Redis must not be used.
    #[must_use]
    pub const fn is_mismatch(self) -> bool {
        match self {
            Self::Unchecked | Self::Matching => false,
            Self::ForeignRedis | Self::SplitRedis | Self::UnclaimedRedis => true,
        }
    }
}

impl fmt::Display for DeploymentStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unchecked => "not checked yet",
            Self::Matching => "ok",
            Self::ForeignRedis => {
                "Redis belongs to another deployment. Check that [store] url and [ledger] url belong together."
            }
            Self::SplitRedis => {
                "other nodes use another Redis. Check that [ledger] url is the same on every node. A node that was \
                 killed counts for 10 s."
            }
            Self::UnclaimedRedis => "no node has used this Redis since it was started",
        })
    }
}

/// How long nodes may use different Redis servers before this is reported.
const SPLIT_REPORT_DELAY: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct StatusState {
    status: DeploymentStatus,
    since: Instant,
    is_reported: bool,
}

/// The identity of this process and the result of its last check. All services of a process share it.
#[derive(Debug)]
pub struct DeploymentGuard {
    pub(crate) node_id: Uuid,
    trusted: Arc<TrustedStores>,
    state: Mutex<StatusState>,
}

impl DeploymentGuard {
    /// Creates the guard of a process.
    #[must_use]
    pub fn generate() -> Self {
        let mut random_bytes = [0; 16];
        getrandom::fill(&mut random_bytes).expect("the system provides random bytes");
        let node_id = uuid::Builder::from_random_bytes(random_bytes).into_uuid();
        Self {
            node_id,
            trusted: Arc::default(),
            state: Mutex::new(StatusState {
                status: DeploymentStatus::Unchecked,
                since: Instant::now(),
                is_reported: false,
            }),
        }
    }

    /// Identifies the process.
    #[must_use]
    pub const fn node_id(&self) -> Uuid {
        self.node_id
    }

    /// What all ledgers of the process trust.
    #[must_use]
    pub const fn trusted_stores(&self) -> &Arc<TrustedStores> {
        &self.trusted
    }

    /// The result of the last check.
    #[must_use]
    pub fn status(&self) -> DeploymentStatus {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).status
    }

    pub(crate) fn set_status(&self, status: DeploymentStatus) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.status != status {
            if state.is_reported && !status.is_mismatch() {
                tracing::info!("Redis trusted again");
            }
            *state = StatusState { status, since: Instant::now(), is_reported: false };
        }
        // Nodes notice a restart of Redis one after the other.
        let is_lasting = status == DeploymentStatus::ForeignRedis || state.since.elapsed() > SPLIT_REPORT_DELAY;
        if status.is_mismatch() && is_lasting && !state.is_reported {
            tracing::error!(reason = %status, "Redis not trusted");
            state.is_reported = true;
        }
    }
}
