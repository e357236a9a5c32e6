//! The outbox: committed changes that must be applied to Redis, even if the process that made them has died.

use ipseity_domain::{KeyChange, KeyId};
use sqlx::{PgTransaction, Row};

use crate::access::Outbox;
use crate::error::StoreError;
use crate::keys::record;

/// A batch of outbox rows that is locked for this process until it is acknowledged or dropped.
pub struct OutboxClaim {
    transaction: PgTransaction<'static>,
    row_ids: Vec<i64>,
    key_ids: Vec<KeyId>,
}

impl OutboxClaim {
    /// Reads the current record of every key in the batch.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn changes(&mut self) -> Result<Vec<KeyChange>, StoreError> {
        let mut changes = Vec::with_capacity(self.key_ids.len());
        for id in &self.key_ids {
            changes.push(
                record::find_record(&mut *self.transaction, *id)
                    .await?
                    .map_or(KeyChange::Deleted(*id), KeyChange::Updated),
            );
        }
        Ok(changes)
    }

    /// Removes the batch after its changes were applied to Redis.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn ack(mut self) -> Result<(), StoreError> {
        sqlx::query("delete from outbox where id = any($1)")
            .bind(&self.row_ids)
            .execute(&mut *self.transaction)
            .await?;
        Ok(self.transaction.commit().await?)
    }
}

impl Outbox<'_> {
    /// Locks up to `count_max` rows that no other process has locked. `None` if there are none.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim(self, count_max: i64) -> Result<Option<OutboxClaim>, StoreError> {
        let mut transaction = self.store.pool.begin().await?;
        let found = sqlx::query("select id, key_id from outbox order by id limit $1 for update skip locked")
            .bind(count_max)
            .fetch_all(&mut *transaction)
            .await?;
        if found.is_empty() {
            return Ok(None);
        }
        let rows = found.iter().map(|row| row.get("id")).collect();
        let mut keys: Vec<KeyId> = found.iter().filter_map(|row| KeyId::parse(row.get("key_id"))).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(Some(OutboxClaim { transaction, row_ids: rows, key_ids: keys }))
    }

    /// Whether all changes were applied to Redis, including those that another process has claimed.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn is_empty(self) -> Result<bool, StoreError> {
        let has_rows = sqlx::query_scalar::<_, bool>("select exists (select from outbox)").fetch_one(&self.store.pool);
        Ok(!self.store.with_timeout(has_rows).await?)
    }

    /// Removes the rows of a change after its maker has applied it to Redis.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn ack(self, change: &KeyChange) -> Result<(), StoreError> {
        let (id, generation) = match change {
            KeyChange::Updated(record) => (record.id, i64::try_from(record.generation).unwrap_or(i64::MAX)),
            KeyChange::Deleted(id) => (*id, i64::MAX),
        };
        // Rows that the outbox worker has claimed are skipped, so this call does not wait for it.
        let removed = sqlx::query(
            "delete from outbox where id in
             (select id from outbox where key_id = $1 and generation <= $2 for update skip locked)",
        )
        .bind(id.as_str())
        .bind(generation)
        .execute(&self.store.pool);
        self.store.with_timeout(removed).await?;
        Ok(())
    }
}
