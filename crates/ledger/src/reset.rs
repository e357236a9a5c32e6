//! Deleting what the service stores in Redis.

use redis::Pipeline;
use tokio::time::Instant;

use crate::error::LedgerError;
use crate::layout::KEY_PATTERNS;
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
                deleted += delete_matching(&connection, pattern).await?;
            }
        }
        Ok(deleted)
    }
}

async fn delete_matching(connection: &RedisConnection, pattern: &str) -> Result<u64, LedgerError> {
    let (mut conn, mut cursor, mut deleted) = (connection.conn.clone(), 0_u64, 0);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut conn).await?;
        // One by one: in a cluster, they belong to several slots.
        let mut unlink = Pipeline::new();
        for key in &keys {
            unlink.cmd("UNLINK").arg(key).ignore();
        }
        if !keys.is_empty() {
            unlink.exec_async(&mut conn).await?;
        }
        deleted += keys.len() as u64;
        cursor = next;
        if cursor == 0 {
            return Ok(deleted);
        }
    }
}
