//! Searching and deleting what the service stores in Redis.

use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::error::LedgerError;
use crate::layout::{KEY_PATTERNS, RECORD_PATTERN};
use crate::ledger::Ledger;
use crate::redis::connection::RedisConnection;

/// Number of keys that Redis looks at per call, so that it answers charges in between.
const SCAN_COUNT: usize = 1_000;

impl Ledger {
    /// Deletes everything that the service stores in Redis, and nothing else. Returns the number of deleted Redis keys. Nodes
    /// read key records from PostgreSQL again.
    ///
    /// # Errors
    /// Fails if a server does not answer in time. Then some keys are deleted.
    pub async fn reset(&self) -> Result<u64, LedgerError> {
        let mut deleted = 0;
        for (_, connection) in self.router.find_owners(Instant::now() + self.timeout).await? {
            for pattern in KEY_PATTERNS {
                let mut search = Search::new(&connection, pattern);
                while let Some(keys) = search.next_keys().await? {
                    deleted += delete(&connection, &keys).await?;
                }
            }
        }
        Ok(deleted)
    }

    /// Whether Redis has the record of any key, so that it can answer requests without PostgreSQL.
    ///
    /// # Errors
    /// Fails if a server does not answer in time.
    pub async fn has_key_records(&self) -> Result<bool, LedgerError> {
        for (_, connection) in self.router.find_owners(Instant::now() + self.timeout).await? {
            let mut search = Search::new(&connection, RECORD_PATTERN);
            while let Some(keys) = search.next_keys().await? {
                if !keys.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// A search of one server for the Redis keys that match a pattern.
struct Search {
    connection: MultiplexedConnection,
    pattern: &'static str,
    /// Where Redis continues. `None` at the end.
    cursor: Option<u64>,
}

impl Search {
    fn new(connection: &RedisConnection, pattern: &'static str) -> Self {
        Self { connection: connection.conn.clone(), pattern, cursor: Some(0) }
    }

    /// The keys that Redis finds next, often none. `None` at the end.
    async fn next_keys(&mut self) -> Result<Option<Vec<String>>, LedgerError> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(self.pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut self.connection).await?;
        self.cursor = (next != 0).then_some(next);
        Ok(Some(keys))
    }
}

async fn delete(connection: &RedisConnection, keys: &[String]) -> Result<u64, LedgerError> {
    // One by one: in a cluster, they belong to several slots.
    let mut unlink = Pipeline::new();
    for key in keys {
        unlink.cmd("UNLINK").arg(key).ignore();
    }
    if !keys.is_empty() {
        unlink.exec_async(&mut connection.conn.clone()).await?;
    }
    Ok(keys.len() as u64)
}
