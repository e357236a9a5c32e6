//! Keys: issue, and every change of them. Each change and its row of the key's history are one transaction.

use domain::account::KeyName;
use domain::{Change, KEYS_PER_ACCOUNT_MAX, Key, KeyId, Scope};
use sqlx::PgConnection;

use crate::accounts::{self, Account};
use crate::error::{Refused, StoreError};
use crate::history::By;
use crate::pool::Store;
use crate::standing;
use crate::usage::turn;

/// An update of the key $1 that may be $2's alone, with its act's row in the history, by the actor $3, if it changed anything.
macro_rules! act {
    ($act:literal, $set:literal, $when:literal) => {
        concat!(
            "with changed as (update keys set ",
            $set,
            " where id = $1 and ($2::bigint is null or account_id = $2) and ",
            $when,
            " returning id) insert into history (key_id, act, actor) select id, '",
            $act,
            "', $3 from changed"
        )
    };
}

impl Store {
    /// Gives an account a key.
    ///
    /// # Errors
    /// When the account holds ten, is gone, or is not the owner's who asks.
    pub async fn issue(
        &self,
        account: &Account,
        by: By,
        name: &KeyName,
        scope: Scope,
        key: &Key,
    ) -> Result<(), StoreError> {
        let issued = async {
            let mut transaction = self.pool.begin().await?;
            // The lock makes racing issues queue for the lowest free seat; that there are only ten seats is the table's own rule.
            if by.account_id().is_some_and(|id| id != account.id)
                || !accounts::lock(&mut transaction, account.id).await?
            {
                return Err(Refused::UnknownAccount.into());
            }
            let issued = sqlx::query(
                "with issued as (
                     insert into keys (id, account_id, seat, name, scope, digest)
                     select $1, $2, seat, $3, $4, $5 from generate_series(1, $6::int) seat
                     where not exists (select 1 from keys where account_id = $2 and keys.seat = seat.seat)
                     order by seat limit 1
                     returning id
                 )
                 insert into history (key_id, act, actor) select id, 'issued', $7 from issued",
            )
            .bind(key.id.as_str())
            .bind(account.id)
            .bind(name.as_str())
            .bind(scope.name())
            .bind(key.digest.as_bytes().as_slice())
            .bind(i32::try_from(KEYS_PER_ACCOUNT_MAX).unwrap_or(i32::MAX))
            .bind(by.actor())
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            if issued.rows_affected() == 1 { Ok(()) } else { Err(Refused::KeysSpent.into()) }
        };
        self.within::<_, StoreError>(issued).await
    }

    /// Gives a key another name; its standing stays as it is.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn rename(&self, by: By, id: KeyId, name: &KeyName) -> Result<(), StoreError> {
        let renamed = sqlx::query_scalar(
            "with renamed as (
                 update keys set name = $4
                 where id = $1 and ($2::bigint is null or account_id = $2) and name <> $4
                 returning id
             ), told as (
                 insert into history (key_id, act, actor) select id, 'renamed', $3 from renamed
             )
             select exists (select 1 from keys where id = $1 and ($2::bigint is null or account_id = $2))",
        )
        .bind(id.as_str())
        .bind(by.account_id())
        .bind(by.actor())
        .bind(name.as_str())
        .fetch_one(&self.pool);
        if self.within(renamed).await? { Ok(()) } else { Err(Refused::UnknownKey.into()) }
    }

    /// Deactivates a key; one that is inactive stays so.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn deactivate(&self, by: By, id: KeyId) -> Result<Change, StoreError> {
        let statement =
            act!("deactivated", "deactivated_at = now(), generation = generation + 1", "deactivated_at is null");
        self.change(by, id, statement).await
    }

    /// Reactivates a key; one that was paused before is paused again.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn reactivate(&self, by: By, id: KeyId) -> Result<Change, StoreError> {
        let statement =
            act!("reactivated", "deactivated_at = null, generation = generation + 1", "deactivated_at is not null");
        self.change(by, id, statement).await
    }

    /// Resumes a paused key: opens a new window for its burst limit.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn resume(&self, by: By, id: KeyId) -> Result<Change, StoreError> {
        let statement = act!(
            "resumed",
            "paused_at = null, burst_window = burst_window + 1, generation = generation + 1",
            "paused_at is not null"
        );
        self.change(by, id, statement).await
    }

    /// Puts a new secret under a key's id; the old one holds for `overlap_s` seconds.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn roll(&self, by: By, new: &Key, overlap_s: u32) -> Result<Change, StoreError> {
        let rolled = async {
            let mut transaction = self.pool.begin().await?;
            sqlx::query(act!(
                "rolled",
                "retired_digest = case when $5 > 0 then digest end,
                 retired_until = case when $5 > 0 then now() + make_interval(secs => $5) end,
                 digest = $4, generation = generation + 1",
                "true"
            ))
            .bind(new.id.as_str())
            .bind(by.account_id())
            .bind(by.actor())
            .bind(new.digest.as_bytes().as_slice())
            .bind(f64::from(overlap_s))
            .execute(&mut *transaction)
            .await?;
            let change = stands(&mut transaction, by, new.id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.within::<_, StoreError>(rolled).await
    }

    /// Ends the old secret of a rolled key now.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn retire(&self, by: By, id: KeyId) -> Result<Change, StoreError> {
        let statement = act!(
            "retired",
            "retired_digest = null, retired_until = null, generation = generation + 1",
            "retired_until > now()"
        );
        self.change(by, id, statement).await
    }

    /// Deletes a key and its history.
    ///
    /// # Errors
    /// When there is no such key.
    pub async fn delete(&self, by: By, id: KeyId) -> Result<Change, StoreError> {
        let deleted = sqlx::query(concat!(
            "with turn as materialized (",
            turn!(),
            ") delete from keys using turn where id = $1 and ($2::bigint is null or account_id = $2)"
        ));
        let deleted = deleted.bind(id.as_str()).bind(by.account_id()).execute(&self.pool);
        let deleted = self.within(deleted).await?.rows_affected();
        if deleted == 1 { Ok(Change::Gone(id)) } else { Err(Refused::UnknownKey.into()) }
    }

    async fn change(&self, by: By, id: KeyId, statement: &'static str) -> Result<Change, StoreError> {
        let changed = async {
            let mut transaction = self.pool.begin().await?;
            let act = sqlx::query(statement).bind(id.as_str()).bind(by.account_id()).bind(by.actor());
            act.execute(&mut *transaction).await?;
            let change = stands(&mut transaction, by, id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.within::<_, StoreError>(changed).await
    }
}

async fn stands(connection: &mut PgConnection, by: By, id: KeyId) -> Result<Change, StoreError> {
    let standing = standing::find_of(connection, by.account_id(), id).await?;
    standing.map(Change::Stands).ok_or(Refused::UnknownKey.into())
}
