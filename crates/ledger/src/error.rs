//! Failures of the counter store, sorted before anything is tried again.

use redis::{ErrorKind, RedisError};

/// A failure of the counter store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// Nothing was applied: safe to try again, here or elsewhere.
    #[error("the counter store could not take the call; is Redis running, and does [ledger] url name its primary?")]
    NotApplied(#[source] RedisError),
    /// No connection could be had in time: nothing was applied.
    #[error("the counter store could not be reached within [ledger] timeout_ms")]
    Unreachable,
    /// The call went out and no answer came: it may have been applied.
    #[error("the counter store did not answer within [ledger] timeout_ms; the charge may have been applied")]
    ReplyTimeout,
    /// The connection broke with the call under way: it may have been applied.
    #[error("the connection to the counter store broke; the charge may have been applied")]
    ConnectionLost(#[source] RedisError),
    /// The counter store answered in a way that this code does not expect: ours to mend.
    #[error("the counter store refused a script")]
    ScriptFailed(#[source] RedisError),
    /// A reply of another shape.
    #[error("the counter store's reply has an unexpected {0}; do nodes of different versions share the layout `i2`?")]
    UnexpectedReply(&'static str),
}

/// Replies that say that nothing was applied.
const NOT_APPLIED_CODES: [&str; 14] = [
    "READONLY",
    "MOVED",
    "ASK",
    "CLUSTERDOWN",
    "LOADING",
    "MISCONF",
    "OOM",
    "NOREPLICAS",
    "MASTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
];

/// Replies after which another connection, with another identity, may be right.
const DEMOTED_CODES: [&str; 2] = ["READONLY", "MASTERDOWN"];

/// Replies after which another server may be right.
const STALE_SLOT_MAP_CODES: [&str; 2] = ["MOVED", "CLUSTERDOWN"];

/// Replies of a store that wants to know first who asks.
const AUTH_ERROR_CODES: [&str; 2] = ["NOAUTH", "WRONGPASS"];

impl From<RedisError> for LedgerError {
    fn from(error: RedisError) -> Self {
        match error_code(&error) {
            Some(code) if NOT_APPLIED_CODES.contains(&&*code) => Self::NotApplied(error),
            _ if error.is_connection_refusal() => Self::NotApplied(error),
            _ if error.is_io_error() || error.is_unrecoverable_error() => Self::ConnectionLost(error),
            _ => Self::ScriptFailed(error),
        }
    }
}

impl LedgerError {
    /// Whether the call may have been applied all the same.
    #[must_use]
    pub const fn may_have_been_applied(&self) -> bool {
        match self {
            Self::NotApplied(_) | Self::Unreachable => false,
            Self::ReplyTimeout | Self::ConnectionLost(_) | Self::ScriptFailed(_) | Self::UnexpectedReply(_) => true,
        }
    }

    /// Whether the store did not let the name or the password of its address in.
    #[must_use]
    pub fn is_auth_failure(&self) -> bool {
        let Self::NotApplied(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed
            || error_code(error).is_some_and(|code| AUTH_ERROR_CODES.contains(&&*code))
    }

    /// Whether the connection that this came from is of no more use.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Self::ConnectionLost(_) => true,
            Self::NotApplied(error) => {
                error.is_io_error() || error_code(error).is_some_and(|code| DEMOTED_CODES.contains(&&*code))
            }
            Self::Unreachable | Self::ReplyTimeout | Self::ScriptFailed(_) | Self::UnexpectedReply(_) => false,
        }
    }

    /// Whether another server may be in charge by now.
    pub(crate) fn invalidates_slot_map(&self) -> bool {
        match self {
            Self::ReplyTimeout => true,
            Self::NotApplied(error) => error_code(error).is_some_and(|code| STALE_SLOT_MAP_CODES.contains(&&*code)),
            Self::Unreachable | Self::ConnectionLost(_) | Self::ScriptFailed(_) | Self::UnexpectedReply(_) => false,
        }
    }
}

/// The code of the store's refusal; of a pipeline's or a transaction's, the first one.
fn error_code(error: &RedisError) -> Option<String> {
    let server_errors = error.clone().into_server_errors();
    let first = server_errors
        .as_ref()
        .and_then(|server_errors| server_errors.first())
        .map(|(_, server_error)| server_error.code());
    first.or(error.code()).map(str::to_owned)
}
