//! Passkeys and WebAuthn states. Their JSON content is opaque to the store.

use serde_json::Value;
use sqlx::FromRow;
use uuid::Uuid;

use crate::access::{Passkeys, WebauthnStates};
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{self, two_factor};
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// Maximum number of passkeys per account.
const PASSKEYS_MAX: i64 = 10;

/// A stored passkey.
#[derive(Clone, Debug, FromRow)]
pub struct StoredPasskey {
    /// The passkey's id.
    pub id: i64,
    /// The WebAuthn credential id.
    pub credential_id: Vec<u8>,
    /// The passkey's name.
    pub name: String,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
    /// The passkey as JSON.
    pub passkey: Value,
}

/// A passkey with its account.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct FoundPasskey {
    /// The account.
    pub account_id: i64,
    /// The WebAuthn user handle of the account.
    pub user_handle: Uuid,
    /// The passkey as JSON.
    pub passkey: Value,
}

impl Passkeys<'_> {
    /// The WebAuthn user handle of an account.
    ///
    /// # Errors
    /// If the account does not exist.
    pub async fn user_handle(self, account_id: i64) -> Result<Uuid, StoreError> {
        let handle = sqlx::query_scalar("select handle from accounts where id = $1")
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        self.store.with_timeout(handle).await?.ok_or(StoreRefusal::UnknownAccount.into())
    }

    /// Adds a passkey to an account, and queues an email to its owner. The name is truncated to 60 characters.
    ///
    /// # Errors
    /// If the account has ten passkeys or does not exist, the session has ended, or the passkey is already registered.
    pub async fn add(
        self,
        account_id: i64,
        session_id: i64,
        credential_id: &[u8],
        name: &str,
        passkey: &Value,
    ) -> Result<(), StoreError> {
        let added = async {
            let mut transaction = self.store.pool.begin().await?;
            if !accounts::lock_account(&mut transaction, account_id).await? {
                return Err(StoreRefusal::UnknownAccount.into());
            }
            accounts::require_session(&mut transaction, account_id, session_id).await?;
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
            if added.rows_affected() == 0 {
                return Err(StoreRefusal::PasskeyLimitReached.into());
            }
            record_event(&mut transaction, account_id, SecurityEvent::PasskeyAdded, Some(name)).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(added).await
    }

    /// An account's passkeys, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64) -> Result<Vec<StoredPasskey>, StoreError> {
        let rows = sqlx::query_as(
            "select id, credential_id, name, floor(extract(epoch from created_at))::bigint as created_s, passkey
             from passkeys where account_id = $1 order by id",
        )
        .bind(account_id)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }

    /// Finds a passkey and its account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find(self, credential_id: &[u8]) -> Result<Option<FoundPasskey>, StoreError> {
        let found = sqlx::query_as(
            "select p.account_id, a.handle as user_handle, p.passkey
             from passkeys p join accounts a on a.id = p.account_id where p.credential_id = $1",
        )
        .bind(credential_id)
        .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Stores a passkey after use, for example with a new counter.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn update(self, credential_id: &[u8], passkey: &Value) -> Result<(), StoreError> {
        let updated = sqlx::query("update passkeys set passkey = $2 where credential_id = $1")
            .bind(credential_id)
            .bind(passkey)
            .execute(&self.store.pool);
        self.store.with_timeout(updated).await?;
        Ok(())
    }

    /// Deletes one of an account's passkeys, and notifies its owner. Returns false if the account has no such passkey.
    ///
    /// # Errors
    /// If it is the only second factor of an account that needs one.
    pub async fn delete(self, account_id: i64, session_id: i64, id: i64) -> Result<bool, StoreError> {
        let deleted = async {
            let mut transaction = self.store.pool.begin().await?;
            accounts::lock_account(&mut transaction, account_id).await?;
            accounts::require_session(&mut transaction, account_id, session_id).await?;
            let deleted: Option<String> =
                sqlx::query_scalar("delete from passkeys where account_id = $1 and id = $2 returning name")
                    .bind(account_id)
                    .bind(id)
                    .fetch_optional(&mut *transaction)
                    .await?;
            let Some(name) = deleted else { return Ok(false) };
            two_factor::require_factor(&mut transaction, account_id).await?;
            record_event(&mut transaction, account_id, SecurityEvent::PasskeyRemoved, Some(&name)).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.store.with_timeout::<_, StoreError>(deleted).await
    }
}

impl WebauthnStates<'_> {
    /// Stores a WebAuthn state for five minutes. Replaces a previous one.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
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

    /// Removes and returns a WebAuthn state. `None` if it does not exist or has expired.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn take(self, digest: &[u8; 32]) -> Result<Option<Value>, StoreError> {
        let taken =
            sqlx::query_scalar("delete from ceremonies where digest = $1 and expires_at > now() returning state")
                .bind(digest.as_slice())
                .fetch_optional(&self.store.pool);
        self.store.with_timeout(taken).await
    }
}
