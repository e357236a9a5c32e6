//! Errors, classified by whether the request may have been applied.

use redis::{ErrorKind, RedisError};

use crate::ledger_time::LedgerTime;
use crate::redis::identity::DataSet;

/// An error of a request to Redis.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// Redis did not apply the request. It is safe to retry.
    #[error("Redis did not accept the request (is it running, and does [ledger] url name its primary?)")]
    NotApplied(#[source] RedisError),
    /// The request reached Redis later than its time limit, and was not applied.
    #[error("the request reached Redis too late and was not applied (is a clock being set, or the network very slow?)")]
    Expired,
    /// There was no connection in time. The request was not sent.
    #[error("failed to connect to Redis within [ledger] timeout_ms")]
    Unreachable,
    /// Sentinel knows no primary, or reports a server that is none. The request was not sent.
    #[error("failed to find the primary of Redis: {0}")]
    NoPrimary(String),
    /// The request was sent, but there was no reply in time. It may have been applied.
    #[error("Redis did not reply within [ledger] timeout_ms. The request may have been applied")]
    ReplyTimeout,
    /// The connection was lost before the reply. The request may have been applied.
    #[error("lost the connection to Redis (the request may have been applied)")]
    ConnectionLost(#[source] RedisError),
    /// The URL is invalid.
    #[error("it must be like redis://host:6379, rediss://host:6379 or redis+sentinel://host:26379/NAME")]
    InvalidUrl(#[source] RedisError),
    /// Redis returned an error that only a bug in a script causes.
    #[error("failed to run a script in Redis")]
    ScriptFailed(#[source] RedisError),
    /// The reply has an unknown format.
    #[error("the reply of Redis has an unexpected {0}. Check that all nodes run the same version")]
    UnexpectedReply(&'static str),
}

/// Error codes that mean that the request was not applied.
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

/// Error codes of a server that is no longer a primary. A new connection may reach the new primary.
const DEMOTED_CODES: [&str; 2] = ["READONLY", "MASTERDOWN"];

/// Error codes that mean that the slot map is outdated.
const STALE_SLOT_MAP_CODES: [&str; 2] = ["MOVED", "CLUSTERDOWN"];

/// Error codes for missing or wrong credentials.
const AUTH_ERROR_CODES: [&str; 2] = ["NOAUTH", "WRONGPASS"];

impl From<RedisError> for LedgerError {
    fn from(error: RedisError) -> Self {
        match error_code(&error) {
            Some(code) if NOT_APPLIED_CODES.contains(&&*code) => Self::NotApplied(error),
            _ if error.kind() == ErrorKind::InvalidClientConfig => Self::InvalidUrl(error),
            _ if error.is_connection_refusal() => Self::NotApplied(error),
            _ if error.is_io_error() || error.is_unrecoverable_error() => Self::ConnectionLost(error),
            _ => Self::ScriptFailed(error),
        }
    }
}

impl LedgerError {
    /// Whether the request may have been applied despite the error.
    #[must_use]
    pub const fn may_have_been_applied(&self) -> bool {
        match self {
            Self::NotApplied(_) | Self::Unreachable | Self::NoPrimary(_) | Self::Expired | Self::InvalidUrl(_) => false,
            Self::ReplyTimeout | Self::ConnectionLost(_) | Self::ScriptFailed(_) | Self::UnexpectedReply(_) => true,
        }
    }

    /// Whether Redis rejected the user name or the password of the URL.
    #[must_use]
    pub fn is_auth_failure(&self) -> bool {
        let Self::NotApplied(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed
            || error_code(error).is_some_and(|code| AUTH_ERROR_CODES.contains(&&*code))
    }

    /// The error code of an error that Redis reported, such as `NOPERM`.
    #[must_use]
    pub fn server_code(&self) -> Option<String> {
        match self {
            Self::NotApplied(error) | Self::ConnectionLost(error) | Self::ScriptFailed(error) => error_code(error),
            Self::Unreachable
            | Self::NoPrimary(_)
            | Self::Expired
            | Self::ReplyTimeout
            | Self::InvalidUrl(_)
            | Self::UnexpectedReply(_) => None,
        }
    }

    /// Whether the connection can no longer be used.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Self::ConnectionLost(_) => true,
            Self::NotApplied(error) => {
                error.is_io_error() || error_code(error).is_some_and(|code| DEMOTED_CODES.contains(&&*code))
            }
            Self::Unreachable
            | Self::NoPrimary(_)
            | Self::Expired
            | Self::ReplyTimeout
            | Self::InvalidUrl(_)
            | Self::ScriptFailed(_)
            | Self::UnexpectedReply(_) => false,
        }
    }

    /// Whether the server, and not the data of one key, caused the error.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        !matches!(self, Self::InvalidUrl(_) | Self::ScriptFailed(_) | Self::UnexpectedReply(_))
    }

    /// Whether another server may own the slot by now.
    pub(crate) fn invalidates_slot_map(&self) -> bool {
        match self {
            Self::ReplyTimeout => true,
            Self::NotApplied(error) => error_code(error).is_some_and(|code| STALE_SLOT_MAP_CODES.contains(&&*code)),
            Self::Unreachable
            | Self::NoPrimary(_)
            | Self::Expired
            | Self::ConnectionLost(_)
            | Self::InvalidUrl(_)
            | Self::ScriptFailed(_)
            | Self::UnexpectedReply(_) => false,
        }
    }
}

/// A charge or a batch that was sent to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCharge {
    /// When it was sent, by the clock of Redis.
    pub at: LedgerTime,
    /// When its request arrived, as it was sent to Redis.
    pub arrival: LedgerTime,
    /// The data set that it was sent to.
    pub data_set: DataSet,
}

/// A failed charge or batch.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct ChargeError {
    /// Why it failed.
    #[source]
    pub error: LedgerError,
    /// Set if Redis may have applied it.
    pub sent: Option<SentCharge>,
}

impl From<LedgerError> for ChargeError {
    /// An error before anything was sent.
    fn from(error: LedgerError) -> Self {
        Self { error, sent: None }
    }
}

/// The error code of Redis. For a pipeline or a transaction, the first one.
fn error_code(error: &RedisError) -> Option<String> {
    let server_errors = error.clone().into_server_errors();
    let first = server_errors
        .as_ref()
        .and_then(|server_errors| server_errors.first())
        .map(|(_, server_error)| server_error.code());
    first.or(error.code()).map(str::to_owned)
}
