//! The outbox: changes that are committed and must reach the counter store, also when the process that made them died.

use ipseity_domain::{KeyChange, KeyId};
use sqlx::{PgTransaction, Row};

use crate::access::Outbox;
use crate::error::StoreError;
use crate::keys::record;

/// A batch of the outbox that this process alone holds, until it is done with or dropped.
pub struct OutboxClaim {
    transaction: PgTransaction<'static>,
    row_ids: Vec<i64>,
    key_ids: Vec<KeyId>,
}

impl OutboxClaim {
    /// The current standing of every key in the batch, read now.
    ///
    /// # Errors
    /// When PostgreSQL is away.
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

    /// Removes the batch: its changes have reached the counter store.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn ack(mut self) -> Result<(), StoreError> {
        sqlx::query("delete from outbox where id = any($1)")
            .bind(&self.row_ids)
            .execute(&mut *self.transaction)
            .await?;
        Ok(self.transaction.commit().await?)
    }
}

impl Outbox<'_> {
    /// Takes up to `count_max` rows that no other process holds; `None` when there are none.
    ///
    /// # Errors
    /// When PostgreSQL is away.
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

    /// Whether every change has reached the counter store, those included that another process is bringing there now.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn is_empty(self) -> Result<bool, StoreError> {
        let has_rows = sqlx::query_scalar::<_, bool>("select exists (select from outbox)").fetch_one(&self.store.pool);
        Ok(!self.store.with_timeout(has_rows).await?)
    }

    /// Removes a change's rows: whoever made it has brought it to the counter store.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn ack(self, change: &KeyChange) -> Result<(), StoreError> {
        let (id, generation) = match change {
            KeyChange::Updated(record) => (record.id, i64::try_from(record.generation).unwrap_or(i64::MAX)),
            KeyChange::Deleted(id) => (*id, i64::MAX),
        };
        // Rows that the relay holds are being seen to: nobody waits for it here.
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
