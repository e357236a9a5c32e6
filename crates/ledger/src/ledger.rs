//! The handle to Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::error::LedgerError;
use crate::redis::router::RedisRouter;

/// How to reach the counter store.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// `redis://…`, or several with commas between: of a cluster any of its servers, else a primary and those that may be promoted in its place.
    pub url: String,
    /// Time for a call, connecting included.
    pub timeout: Duration,
}

/// A handle on the counter store.
pub struct Ledger {
    pub(crate) router: Arc<RedisRouter>,
    pub(crate) timeout: Duration,
}

impl Ledger {
    /// Makes a handle that connects when it is first used: a service must be able to start while its counter store is away.
    ///
    /// # Errors
    /// When an address cannot be read.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self { router: Arc::new(RedisRouter::new(&options.url)?), timeout: options.timeout })
    }

    /// Lets all connections go, for one that does not answer may never do so again; the next call makes others.
    pub fn disconnect_all(&self) {
        self.router.disconnect_all();
    }
}
