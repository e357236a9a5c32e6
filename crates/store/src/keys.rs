//! Keys: issue, list, and every change of their standing.

use domain::account::KeyName;
use domain::{KEYS_PER_ACCOUNT_MAX, Key, KeyId, Marks, Scope, Standing, State};
use sqlx::{FromRow, PgConnection};

use crate::accounts::Account;
use crate::error::{Refused, StoreError};
use crate::pool::Store;
use crate::standing;

/// A change that is committed here and must now reach the counter store.
#[derive(Clone, Debug)]
pub enum Change {
    /// The key has this standing.
    Stands(Standing),
    /// The key is gone.
    Gone(KeyId),
}

/// A key as lists show it.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scope.
    pub scope: String,
    /// Its state.
    pub state: State,
    /// Unix time of its creation, in seconds.
    pub created_s: i64,
    /// The newest day on which it was answered, such as `2026-11-15`, and how often.
    pub last_used: Option<(String, i64)>,
}

#[derive(FromRow)]
struct Listed {
    id: String,
    name: String,
    scope: String,
    created_s: i64,
    deactivated: bool,
    paused: bool,
    day: Option<String>,
    admitted: Option<i64>,
}

impl Store {
    /// Gives an account a key.
    ///
    /// # Errors
    /// When the account holds ten.
    pub async fn issue(&self, account: &Account, name: &KeyName, scope: Scope, key: &Key) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        // The lock makes racing issues queue for the lowest free seat; that there are only ten seats is the table's own rule.
        sqlx::query("select 1 from accounts where id = $1 for update")
            .bind(account.id)
            .execute(&mut *transaction)
            .await?;
        let issued = sqlx::query(
            "insert into keys (id, account_id, seat, name, scope, digest)
             select $1, $2, seat, $3, $4, $5 from generate_series(1, $6::int) seat
             where not exists (select 1 from keys where account_id = $2 and keys.seat = seat.seat)
             order by seat limit 1",
        )
        .bind(key.id.as_str())
        .bind(account.id)
        .bind(name.as_str())
        .bind(scope.name())
        .bind(key.digest.as_bytes().as_slice())
        .bind(i32::try_from(KEYS_PER_ACCOUNT_MAX).unwrap_or(i32::MAX))
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        if issued.rows_affected() == 1 { Ok(()) } else { Err(Refused::KeysSpent.into()) }
    }

    /// An account's keys, oldest first.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn keys(&self, account: &Account) -> Result<Vec<KeyRow>, StoreError> {
        let rows: Vec<Listed> = sqlx::query_as(
            "select k.id, k.name, k.scope, extract(epoch from k.created_at)::bigint as created_s,
                    k.deactivated_at is not null as deactivated, k.paused_at is not null as paused, u.day, u.admitted
             from keys k
             left join lateral (
                 select day::text as day, admitted from usage where key_id = k.id order by usage.day desc limit 1
             ) u on true
             where k.account_id = $1 order by k.created_at, k.id",
        )
        .bind(account.id)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Listed::row).collect())
    }

    /// Deactivates a key; one that is inactive stays so.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn deactivate(&self, id: KeyId) -> Result<Change, StoreError> {
        self.change(
            id,
            "update keys set deactivated_at = now(), generation = generation + 1 where id = $1 and deactivated_at is null",
        )
        .await
    }

    /// Reactivates a key; one that was paused before is paused again.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn reactivate(&self, id: KeyId) -> Result<Change, StoreError> {
        self.change(
            id,
            "update keys set deactivated_at = null, generation = generation + 1
             where id = $1 and deactivated_at is not null",
        )
        .await
    }

    /// Resumes a paused key: opens a new window for its burst limit.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn resume(&self, id: KeyId) -> Result<Change, StoreError> {
        self.change(
            id,
            "update keys set paused_at = null, burst_window = burst_window + 1, generation = generation + 1
             where id = $1 and paused_at is not null",
        )
        .await
    }

    /// Puts a new secret under a key's id; the old one holds for `overlap_s` seconds.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn roll(&self, new: &Key, overlap_s: u32) -> Result<Change, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "update keys set retired_digest = case when $3 > 0 then digest end,
                    retired_until = case when $3 > 0 then now() + make_interval(secs => $3) end,
                    digest = $2, generation = generation + 1 where id = $1",
        )
        .bind(new.id.as_str())
        .bind(new.digest.as_bytes().as_slice())
        .bind(f64::from(overlap_s))
        .execute(&mut *transaction)
        .await?;
        let change = stands(&mut transaction, new.id).await?;
        transaction.commit().await?;
        Ok(change)
    }

    /// Deletes a key and its history.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn delete(&self, id: KeyId) -> Result<Change, StoreError> {
        let deleted = sqlx::query("delete from keys where id = $1").bind(id.as_str()).execute(&self.pool).await?;
        if deleted.rows_affected() == 1 { Ok(Change::Gone(id)) } else { Err(Refused::UnknownKey.into()) }
    }

    async fn change(&self, id: KeyId, statement: &'static str) -> Result<Change, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(statement).bind(id.as_str()).execute(&mut *transaction).await?;
        let change = stands(&mut transaction, id).await?;
        transaction.commit().await?;
        Ok(change)
    }
}

async fn stands(connection: &mut PgConnection, id: KeyId) -> Result<Change, StoreError> {
    standing::find(connection, id).await?.map(Change::Stands).ok_or(Refused::UnknownKey.into())
}

impl Listed {
    fn row(self) -> KeyRow {
        KeyRow {
            state: Marks { deactivated: self.deactivated, paused: self.paused }.state(),
            id: self.id,
            name: self.name,
            scope: self.scope,
            created_s: self.created_s,
            last_used: self.day.zip(self.admitted),
        }
    }
}
