//! Passkeys, and the ceremonies between their two requests. What is inside either is the portal's matter.

use serde_json::Value;
use sqlx::FromRow;
use uuid::Uuid;

use crate::access::{Passkeys, WebauthnStates};
use crate::accounts;
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// Passkeys that an account may hold.
const PASSKEYS_MAX: i64 = 10;

/// A passkey as its owner sees it.
#[derive(Clone, Debug, FromRow)]
pub struct StoredPasskey {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Unix time of its creation, in seconds.
    pub created_s: i64,
    /// The passkey.
    pub passkey: Value,
}

impl Passkeys<'_> {
    /// What passkeys know an account by.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn user_handle(self, account_id: i64) -> Result<Uuid, StoreError> {
        let handle = sqlx::query_scalar("select handle from accounts where id = $1")
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        self.store.with_timeout(handle).await?.ok_or(StoreRefusal::UnknownAccount.into())
    }

    /// Gives an account a passkey; its name is cut to 60 characters.
    ///
    /// # Errors
    /// When the account holds ten or is gone, or the passkey belongs to an account already.
    pub async fn add(
        self,
        account_id: i64,
        credential_id: &[u8],
        name: &str,
        passkey: &Value,
    ) -> Result<(), StoreError> {
        let added = async {
            let mut transaction = self.store.pool.begin().await?;
            if !accounts::lock_account(&mut transaction, account_id).await? {
                return Err(StoreRefusal::UnknownAccount.into());
            }
            let added = sqlx::query(
                "insert into passkeys (account_id, credential_id, name, passkey) select $1, $2, left($3, 60), $4
                 where (select count(*) from passkeys where account_id = $1) < $5",
            )
            .bind(account_id)
            .bind(credential_id)
            .bind(name)
            .bind(passkey)
            .bind(PASSKEYS_MAX)
            .execute(&mut *transaction)
            .await
            .map_err(|error| {
                let taken = violates_constraint(&error, "passkeys_credential_id_key");
                if taken { StoreRefusal::PasskeyExists.into() } else { StoreError::from(error) }
            })?;
            transaction.commit().await?;
            if added.rows_affected() == 1 { Ok(()) } else { Err(StoreRefusal::PasskeyLimitReached.into()) }
        };
        self.store.with_timeout::<_, StoreError>(added).await
    }

    /// An account's passkeys, oldest first.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn list(self, account_id: i64) -> Result<Vec<StoredPasskey>, StoreError> {
        let rows = sqlx::query_as(
            "select id, name, floor(extract(epoch from created_at))::bigint as created_s, passkey
             from passkeys where account_id = $1 order by id",
        )
        .bind(account_id)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }

    /// Finds the account that a passkey opens, and the passkey.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn find(self, credential_id: &[u8]) -> Result<Option<(i64, Value)>, StoreError> {
        let found = sqlx::query_as("select account_id, passkey from passkeys where credential_id = $1")
            .bind(credential_id)
            .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Keeps what a use has changed of a passkey, such as its counter.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn update(self, credential_id: &[u8], passkey: &Value) -> Result<(), StoreError> {
        let updated = sqlx::query("update passkeys set passkey = $2 where credential_id = $1")
            .bind(credential_id)
            .bind(passkey)
            .execute(&self.store.pool);
        self.store.with_timeout(updated).await?;
        Ok(())
    }

    /// Deletes one of an account's passkeys; `false` when it has no such passkey.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn delete(self, account_id: i64, id: i64) -> Result<bool, StoreError> {
        let deleted = sqlx::query("delete from passkeys where account_id = $1 and id = $2")
            .bind(account_id)
            .bind(id)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(deleted).await?.rows_affected() == 1)
    }
}

impl WebauthnStates<'_> {
    /// Keeps a ceremony's state for five minutes, in place of any before.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn save(self, digest: &[u8; 32], state: &Value) -> Result<(), StoreError> {
        let saved = sqlx::query(
            "insert into ceremonies (digest, state, expires_at) values ($1, $2, now() + interval '5 minutes')
             on conflict (digest) do update set state = excluded.state, expires_at = excluded.expires_at",
        )
        .bind(digest.as_slice())
        .bind(state)
        .execute(&self.store.pool);
        self.store.with_timeout(saved).await?;
        Ok(())
    }

    /// Takes a ceremony's state, once; `None` when there is none or it has expired.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn take(self, digest: &[u8; 32]) -> Result<Option<Value>, StoreError> {
        let taken =
            sqlx::query_scalar("delete from ceremonies where digest = $1 and expires_at > now() returning state")
                .bind(digest.as_slice())
                .fetch_optional(&self.store.pool);
        self.store.with_timeout(taken).await
    }
}
