//! Completes changes whose maker has died or could not reach Redis.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use ipseity_domain::{KeyId, causes, is_mutant};

use crate::error::KeyServiceError;
use crate::service::KeyService;

/// Rows that are read at a time.
const BATCH_ROWS_MAX: i64 = 100;
/// Changes of one Redis server that are applied concurrently.
const CONCURRENT_CHANGES_MAX: usize = 16;

/// The changes of a run that are still in the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxRun {
    /// Keys whose Redis server did not take the change. A later run may succeed.
    pub delayed: Vec<KeyId>,
    /// Keys whose change Redis or PostgreSQL rejected.
    pub rejected: Vec<KeyId>,
}

impl KeyService {
    /// Applies every change in the outbox to Redis. Any number of nodes may do so at the same time. A change that fails
    /// stays in the outbox and does not block the others.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable, or does not belong to Redis.
    pub async fn apply_outbox(&self) -> Result<OutboxRun, KeyServiceError> {
        let mut run = OutboxRun::default();
        let mut last_id = 0;
        loop {
            let rows = self.store.outbox().list(last_id, BATCH_ROWS_MAX).await?;
            let Some(last_row) = rows.last() else { return Ok(run) };
            last_id = last_row.id;
            let mut servers = BTreeMap::<String, BTreeMap<KeyId, Vec<i64>>>::new();
            for row in &rows {
                let keys = servers.entry(self.ledger.owner_of(row.key).address()).or_default();
                keys.entry(row.key).or_default().push(row.id);
            }
            let data_set_id = self.guard.trusted_stores().data_set_id();
            let runs = join_all(servers.into_values().map(|keys| self.apply_keys(keys))).await;
            let mut applied = Vec::with_capacity(rows.len());
            for server_run in runs {
                let (row_ids, server_run) = server_run?;
                applied.extend(row_ids);
                run.delayed.extend(server_run.delayed);
                run.rejected.extend(server_run.rejected);
            }
            self.store.outbox().remove(&applied, data_set_id.as_deref()).await?;
        }
    }

    /// Applies the changes of one Redis server, and returns the rows of those that were applied. If the server does not
    /// answer, the rest is delayed without another attempt.
    async fn apply_keys(&self, keys: BTreeMap<KeyId, Vec<i64>>) -> Result<(Vec<i64>, OutboxRun), KeyServiceError> {
        let (mut applied, mut run) = (Vec::new(), OutboxRun::default());
        let keys: Vec<(KeyId, Vec<i64>)> = keys.into_iter().collect();
        for keys in keys.chunks(CONCURRENT_CHANGES_MAX) {
            if !run.delayed.is_empty() {
                run.delayed.extend(keys.iter().map(|(key, _)| *key));
                continue;
            }
            let results = join_all(keys.iter().map(|(key, _)| self.apply_key(*key))).await;
            for ((key, row_ids), result) in keys.iter().zip(results) {
                match result {
                    Ok(()) => applied.extend(row_ids),
                    Err(error @ KeyServiceError::Mismatch(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%key, error = %causes(&error), "key change not applied");
                        self.metrics.failed_changes.inc();
                        if error.is_transient() { run.delayed.push(*key) } else { run.rejected.push(*key) }
                    }
                }
            }
        }
        Ok((applied, run))
    }

    /// Applies the current state of a changed key.
    async fn apply_key(&self, key: KeyId) -> Result<(), KeyServiceError> {
        if is_mutant("outbox-row-not-published") {
            return Ok(());
        }
        self.apply(self.store.keys().find_change(key).await?).await
    }
}
