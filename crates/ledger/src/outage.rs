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
    Unanswered,
    /// The connection broke with the call under way: it may have been applied.
    #[error("the connection to the counter store broke; the charge may have been applied")]
    Ambiguous(#[source] RedisError),
    /// The counter store answered in a way that this code does not expect: ours to mend.
    #[error("the counter store refused a script")]
    Fault(#[source] RedisError),
    /// A reply of another shape.
    #[error("the counter store's reply has an unexpected {0}; do nodes of different versions share the layout `i2`?")]
    Strange(&'static str),
}

/// Replies that say that nothing was applied.
const NOT_APPLIED: [&str; 14] = [
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
const DEMOTED: [&str; 2] = ["READONLY", "MASTERDOWN"];

/// Replies after which another server may be right.
const OTHERS_KNOW: [&str; 2] = ["MOVED", "CLUSTERDOWN"];

/// Replies of a store that wants to know first who asks.
const NOT_LET_IN: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// Where a cluster sends a call that it did not take.
pub(crate) enum Way {
    /// The slot belongs to the server at this host and port.
    Moved(String, u16),
    /// The slot is on its way to the server at this host and port, and what the call names is there already.
    Asked(String, u16),
    /// The slot is on its way, and what the call names is partly here and partly there.
    Later,
}

impl From<RedisError> for LedgerError {
    fn from(error: RedisError) -> Self {
        match code(&error) {
            Some(code) if NOT_APPLIED.contains(&&*code) => Self::NotApplied(error),
            _ if error.is_connection_refusal() => Self::NotApplied(error),
            _ if error.is_io_error() || error.is_unrecoverable_error() => Self::Ambiguous(error),
            _ => Self::Fault(error),
        }
    }
}

impl LedgerError {
    /// Whether the call may have been applied all the same.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::NotApplied(_) | Self::Unreachable => false,
            Self::Unanswered | Self::Ambiguous(_) | Self::Fault(_) | Self::Strange(_) => true,
        }
    }

    /// Whether the store did not let the name or the password of its address in.
    #[must_use]
    pub fn refuses_credentials(&self) -> bool {
        let Self::NotApplied(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed || code(error).is_some_and(|code| NOT_LET_IN.contains(&&*code))
    }

    /// Whether the connection that this came from is of no more use.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Ambiguous(_) => true,
            Self::NotApplied(error) => error.is_io_error() || code(error).is_some_and(|code| DEMOTED.contains(&&*code)),
            Self::Unreachable | Self::Unanswered | Self::Fault(_) | Self::Strange(_) => false,
        }
    }

    /// Whether another server may be in charge by now.
    pub(crate) fn casts_doubt(&self) -> bool {
        match self {
            Self::Unanswered => true,
            Self::NotApplied(error) => code(error).is_some_and(|code| OTHERS_KNOW.contains(&&*code)),
            Self::Unreachable | Self::Ambiguous(_) | Self::Fault(_) | Self::Strange(_) => false,
        }
    }

    /// Where to go on, if nothing was applied and the store has said where.
    pub(crate) fn way(&self) -> Option<Way> {
        let Self::NotApplied(error) = self else { return None };
        let refusals = error.clone().into_server_errors()?;
        let (_, refusal) = refusals.first()?;
        if refusal.code() == "TRYAGAIN" {
            return Some(Way::Later);
        }
        // `MOVED 3999 127.0.0.1:6381`
        let (_slot, address) = refusal.details()?.split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        match refusal.code() {
            "MOVED" => Some(Way::Moved(host, port)),
            "ASK" => Some(Way::Asked(host, port)),
            _ => None,
        }
    }
}

/// The code of the store's refusal; of a pipeline's or a transaction's, the first one.
fn code(error: &RedisError) -> Option<String> {
    let refusals = error.clone().into_server_errors();
    let first = refusals.as_ref().and_then(|refusals| refusals.first()).map(|(_, refusal)| refusal.code());
    first.or(error.code()).map(str::to_owned)
}
