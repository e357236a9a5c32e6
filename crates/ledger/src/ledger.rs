//! The handle to Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::error::LedgerError;
use crate::redis::router::RedisRouter;

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// One `redis://…` URL or several, separated by commas. For a cluster, any of its servers; otherwise a primary and
    /// the replicas that may be promoted.
    pub url: String,
    /// Time limit of a call, including the time to connect.
    pub timeout: Duration,
}

/// A handle to Redis.
pub struct Ledger {
    pub(crate) router: Arc<RedisRouter>,
    pub(crate) timeout: Duration,
}

impl Ledger {
    /// Creates a handle. It connects on first use, so a node can start while Redis is down.
    ///
    /// # Errors
    /// Fails if a URL is invalid.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self { router: Arc::new(RedisRouter::new(&options.url)?), timeout: options.timeout })
    }

    /// Closes all connections, because a connection without an answer may never answer again. The next call connects
    /// again.
    pub fn disconnect_all(&self) {
        self.router.disconnect_all();
    }
}
