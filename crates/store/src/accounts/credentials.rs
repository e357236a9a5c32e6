//! Passwords and email addresses of accounts.

use ipseity_domain::account::EmailAddress;
use sqlx::{FromRow, PgConnection};

use crate::access::Accounts;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{identities, lock_account, personal_tokens, require_session, two_factor};
use crate::email::notices::queue_email_notice;
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// The credentials that a sign-in is checked against.
#[derive(Clone, FromRow)]
pub struct Credentials {
    /// The account.
    pub account_id: i64,
    /// The password hash. `None` if the account has no password.
    pub password_hash: Option<String>,
}

impl Accounts<'_> {
    /// Finds the credentials for an email address.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_credentials(self, email: &EmailAddress) -> Result<Option<Credentials>, StoreError> {
        let found =
            sqlx::query_as("select id as account_id, password_hash from accounts where email collate \"C\" = $1")
                .bind(email.as_str())
                .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// The password hash of an account. `None` if it has no password or does not exist.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn password_hash(self, account_id: i64) -> Result<Option<String>, StoreError> {
        let found = sqlx::query_scalar("select password_hash from accounts where id = $1")
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        Ok(self.store.with_timeout(found).await?.flatten())
    }

    /// Changes an account's password. Ends all its sessions except the given one, forgets its devices, and invalidates its
    /// email tokens. Deletes its passkeys, linked identities and personal tokens if requested. The session gets a new cookie, because
    /// others may have the old one.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn set_password(
        self,
        account_id: i64,
        hash: &str,
        session_id: i64,
        new_session_digest: &[u8; 32],
        delete_credentials: bool,
    ) -> Result<(), StoreError> {
        let set = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            sqlx::query("update sessions set digest = $2, confirmed_at = null where id = $1")
                .bind(session_id)
                .bind(new_session_digest.as_slice())
                .execute(&mut *transaction)
                .await?;
            replace_password(&mut transaction, account_id, hash, Some(session_id), delete_credentials).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(set).await
    }

    /// Replaces the hash of an unchanged password. Returns whether the old hash was still stored. Sessions and links stay.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn upgrade_password_hash(
        self,
        account_id: i64,
        old_hash: &str,
        new_hash: &str,
    ) -> Result<bool, StoreError> {
        let upgraded = sqlx::query("update accounts set password_hash = $3 where id = $1 and password_hash = $2")
            .bind(account_id)
            .bind(old_hash)
            .bind(new_hash)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(upgraded).await?.rows_affected() == 1)
    }

    /// Changes an account's email address without confirmation, for nodes that cannot send email.
    ///
    /// # Errors
    /// If the address is taken, or the session has ended.
    pub async fn set_email(self, account_id: i64, session_id: i64, email: &EmailAddress) -> Result<(), StoreError> {
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            let is_unchanged: bool =
                sqlx::query_scalar("select exists (select 1 from accounts where id = $1 and email collate \"C\" = $2)")
                    .bind(account_id)
                    .bind(email.as_str())
                    .fetch_one(&mut *transaction)
                    .await?;
            if !is_unchanged {
                queue_email_notice(&mut transaction, account_id).await?;
            }
            replace_email(&mut transaction, account_id, email).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

/// Sets the password. Ends sessions, forgets devices and invalidates links that someone with the old password may have
/// obtained. Passkeys and linked identities stay unless `delete_credentials` is set. Then two-factor authentication ends if passkeys
/// were the only second factor. Links that restore a previous email address stay. Records the event.
pub(crate) async fn replace_password(
    connection: &mut PgConnection,
    account_id: i64,
    hash: &str,
    keep_session_id: Option<i64>,
    delete_credentials: bool,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "with changed as (update accounts set password_hash = $2 where id = $1 returning id, email),
              ended_sign_ins as (delete from pending_sign_ins using changed where pending_sign_ins.account_id = changed.id),
              ended_sessions as (delete from sessions using changed
                        where sessions.account_id = changed.id and sessions.id is distinct from $3),
              forgotten_devices as (delete from devices using changed where devices.account_id = changed.id)
         delete from tickets using changed
         where tickets.account_id = changed.id
            or (tickets.email collate \"C\" = changed.email and tickets.kind in ('reset', 'invite'))",
    )
    .bind(account_id)
    .bind(hash)
    .bind(keep_session_id)
    .execute(&mut *connection)
    .await?;
    if delete_credentials {
        let deleted: Vec<String> = sqlx::query_scalar("delete from passkeys where account_id = $1 returning name")
            .bind(account_id)
            .fetch_all(&mut *connection)
            .await?;
        for name in deleted {
            record_event(connection, account_id, SecurityEvent::PasskeyRemoved, Some(&name)).await?;
        }
        identities::unlink_all(connection, account_id).await?;
        personal_tokens::revoke_all(connection, account_id).await?;
        two_factor::end_without_factors(connection, account_id).await?;
    }
    record_event(connection, account_id, SecurityEvent::PasswordChanged, None).await
}

/// Sets the email address and invalidates pending email changes.
pub(crate) async fn replace_email(
    connection: &mut PgConnection,
    account_id: i64,
    email: &EmailAddress,
) -> Result<(), StoreError> {
    // Checked first, because PostgreSQL would log a duplicate address. The unique index still handles a race.
    let changed = sqlx::query(
        "with old_tokens as (delete from tickets where account_id = $1)
         update accounts set email = $2
         where id = $1 and not exists (select 1 from accounts where email collate \"C\" = $2 and id <> $1)",
    )
    .bind(account_id)
    .bind(email.as_str())
    .execute(connection)
    .await
    .map_err(|error| {
        if ["accounts_email", "accounts_email_bytes"].iter().any(|index| violates_constraint(&error, index)) {
            StoreRefusal::AccountExists.into()
        } else {
            StoreError::from(error)
        }
    })?;
    if changed.rows_affected() == 1 { Ok(()) } else { Err(StoreRefusal::AccountExists.into()) }
}
