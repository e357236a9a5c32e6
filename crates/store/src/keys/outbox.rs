//! The outbox: committed changes that must be applied to Redis, even if the process that made them has died.
//!
//! Applying a change is idempotent, because Redis ignores older generations. So rows are never locked: every process may
//! apply every row, and a process that freezes blocks no other.

use ipseity_domain::{KeyChange, KeyId};

use crate::access::{Keys, Outbox};
use crate::error::StoreError;
use crate::keys::record;

/// A row of the outbox: a key that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// The row. Later rows have higher ids.
    pub id: i64,
    /// The key.
    pub key: KeyId,
}

impl Outbox<'_> {
    /// Up to `count_max` rows with higher ids than `after_id`, in order.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, after_id: i64, count_max: i64) -> Result<Vec<OutboxRow>, StoreError> {
        let rows = sqlx::query_as("select id, key_id from outbox where id > $1 order by id limit $2")
            .bind(after_id)
            .bind(count_max)
            .fetch_all(&self.store.pool);
        let rows: Vec<(i64, String)> = self.store.with_timeout(rows).await?;
        Ok(rows.into_iter().filter_map(|(id, key)| Some(OutboxRow { id, key: KeyId::parse(&key)? })).collect())
    }

    /// Removes rows after their changes were applied to a Redis data set, if nodes still use that one.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn remove(self, row_ids: &[i64], data_set_id: Option<&str>) -> Result<(), StoreError> {
        // Rows that another process removes at this moment are skipped. Without this, two processes could deadlock.
        let removed = sqlx::query(
            "delete from outbox where id in (select id from outbox where id = any($1) for update skip locked)
             and exists (select from deployment where data_set_id is not distinct from $2)",
        )
        .bind(row_ids)
        .bind(data_set_id)
        .execute(&self.store.pool);
        self.store.with_timeout(removed).await?;
        Ok(())
    }

    /// Removes the rows of a change after its maker has applied it to a Redis data set, if nodes still use that one.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn ack(self, change: &KeyChange, data_set_id: Option<&str>) -> Result<(), StoreError> {
        let (id, generation) = match change {
            KeyChange::Updated(record) => (record.id, i64::try_from(record.generation).unwrap_or(i64::MAX)),
            KeyChange::Deleted(id) => (*id, i64::MAX),
        };
        let removed = sqlx::query(
            "delete from outbox where id in
             (select id from outbox where key_id = $1 and generation <= $2 for update skip locked)
             and exists (select from deployment where data_set_id is not distinct from $3)",
        )
        .bind(id.as_str())
        .bind(generation)
        .bind(data_set_id)
        .execute(&self.store.pool);
        self.store.with_timeout(removed).await?;
        Ok(())
    }
}

impl Keys<'_> {
    /// The current state of a key that has changed.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_change(self, id: KeyId) -> Result<KeyChange, StoreError> {
        let record = self.store.with_timeout(record::find_record(&self.store.pool, id)).await?;
        Ok(record.map_or(KeyChange::Deleted(id), KeyChange::Updated))
    }
}
