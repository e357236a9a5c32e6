//! Errors of key changes.

use ipseity_ledger::LedgerError;
use ipseity_store::StoreError;

use crate::guard::DeploymentStatus;

/// Why a change was not made, or did not reach Redis.
#[derive(Debug, thiserror::Error)]
pub enum KeyServiceError {
    /// PostgreSQL failed or rejected the change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// PostgreSQL and Redis do not belong together.
    #[error("{0}")]
    Mismatch(DeploymentStatus),
}

impl KeyServiceError {
    /// Whether a retry may succeed without a fix.
    pub(crate) const fn is_transient(&self) -> bool {
        match self {
            Self::Store(StoreError::Outage(_)) | Self::Mismatch(_) => true,
            Self::Store(StoreError::Refused(_) | StoreError::Fault(_) | StoreError::MigrationBlocked(_)) => false,
            Self::Ledger(
                LedgerError::InvalidUrl(_) | LedgerError::ScriptFailed(_) | LedgerError::UnexpectedReply(_),
            ) => false,
            Self::Ledger(_) => true,
        }
    }
}
