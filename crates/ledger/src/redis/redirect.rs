//! Redirects of a Redis cluster.

use crate::error::LedgerError;

/// The server that a cluster redirects a request to.
pub(crate) enum ClusterRedirect {
    /// The slot belongs to the server at this host and port.
    Moved(String, u16),
    /// The slot is migrating to the server at this host and port, and the keys of the request are already there.
    Ask(String, u16),
    /// The slot is migrating, and the keys of the request are split between both servers.
    TryAgain,
}

impl ClusterRedirect {
    /// Returns the redirect if the error is one.
    pub(crate) fn from_error(error: &LedgerError) -> Option<Self> {
        let LedgerError::NotApplied(error) = error else { return None };
        let server_errors = error.clone().into_server_errors()?;
        let (_, server_error) = server_errors.first()?;
        if server_error.code() == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        // `MOVED 3999 127.0.0.1:6381`
        let (_slot, address) = server_error.details()?.split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        match server_error.code() {
            "MOVED" => Some(Self::Moved(host, port)),
            "ASK" => Some(Self::Ask(host, port)),
            _ => None,
        }
    }
}
