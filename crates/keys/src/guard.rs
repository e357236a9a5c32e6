//! The result of checking the deployment, which all services of a process share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ipseity_ledger::StoreFingerprint;
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

/// The identity of this process and the result of its last check. All services of a process share it.
#[derive(Debug)]
pub struct DeploymentGuard {
    pub(crate) node_id: Uuid,
    fingerprint: Arc<StoreFingerprint>,
    status: Mutex<DeploymentStatus>,
}

impl DeploymentGuard {
    /// Creates the guard of a process.
    #[must_use]
    pub fn generate() -> Self {
        let mut random_bytes = [0; 16];
        getrandom::fill(&mut random_bytes).expect("the system provides random bytes");
        let node_id = uuid::Builder::from_random_bytes(random_bytes).into_uuid();
        Self { node_id, fingerprint: Arc::default(), status: Mutex::default() }
    }

    /// The fingerprint for all ledgers of the process.
    #[must_use]
    pub const fn fingerprint(&self) -> &Arc<StoreFingerprint> {
        &self.fingerprint
    }

    /// The result of the last check.
    #[must_use]
    pub fn status(&self) -> DeploymentStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_status(&self, status: DeploymentStatus) {
        let previous = std::mem::replace(&mut *self.status.lock().unwrap_or_else(PoisonError::into_inner), status);
        if status.is_mismatch() && previous != status {
            tracing::error!(reason = %status, "Redis not trusted");
        } else if previous.is_mismatch() && !status.is_mismatch() {
            tracing::info!("Redis trusted again");
        }
    }
}
