//! The outbox: changes that are committed and must reach the counter store, also when the process that made them died.

use domain::{Change, KeyId};
use sqlx::{PgTransaction, Row};

use crate::error::StoreError;
use crate::pool::Store;
use crate::standing;

/// A batch of the outbox that this process alone holds, until it is done with or dropped.
pub struct Claim {
    transaction: PgTransaction<'static>,
    rows: Vec<i64>,
    keys: Vec<KeyId>,
}

impl Claim {
    /// The current standing of every key in the batch, read now.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn changes(&mut self) -> Result<Vec<Change>, StoreError> {
        let mut changes = Vec::with_capacity(self.keys.len());
        for id in &self.keys {
            changes.push(standing::find(&mut *self.transaction, *id).await?.map_or(Change::Gone(*id), Change::Stands));
        }
        Ok(changes)
    }

    /// Removes the batch: its changes have reached the counter store.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn done(mut self) -> Result<(), StoreError> {
        sqlx::query("delete from outbox where id = any($1)").bind(&self.rows).execute(&mut *self.transaction).await?;
        Ok(self.transaction.commit().await?)
    }
}

impl Store {
    /// Takes up to `count_max` rows that no other process holds; `None` when there are none.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn claim_outbox(&self, count_max: i64) -> Result<Option<Claim>, StoreError> {
        let mut transaction = self.pool.begin().await?;
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
        Ok(Some(Claim { transaction, rows, keys }))
    }

    /// Whether every change has reached the counter store, those included that another process is bringing there now.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn outbox_is_empty(&self) -> Result<bool, StoreError> {
        let waiting = sqlx::query_scalar::<_, bool>("select exists (select from outbox)").fetch_one(&self.pool);
        Ok(!self.within(waiting).await?)
    }

    /// Removes a change's rows: whoever made it has brought it to the counter store.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn applied(&self, change: &Change) -> Result<(), StoreError> {
        let (id, generation) = match change {
            Change::Stands(standing) => (standing.id, i64::try_from(standing.generation).unwrap_or(i64::MAX)),
            Change::Gone(id) => (*id, i64::MAX),
        };
        // Rows that the relay holds are being seen to: nobody waits for it here.
        let removed = sqlx::query(
            "delete from outbox where id in
             (select id from outbox where key_id = $1 and generation <= $2 for update skip locked)",
        )
        .bind(id.as_str())
        .bind(generation)
        .execute(&self.pool);
        self.within(removed).await?;
        Ok(())
    }
}
