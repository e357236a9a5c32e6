//! Two-factor authentication: a code of an authenticator app, a passkey or a recovery code next to the password.

use sqlx::{FromRow, PgConnection};

use crate::access::TwoFactor;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{lock_account, require_session};
use crate::email::notices::RESTORE_EMAIL_DAYS;
use crate::error::{StoreError, StoreRefusal};

/// How long a sign-in waits for its second factor.
const PENDING_SIGN_IN_MINUTES: i32 = 10;

/// The second factors of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct SecondFactors {
    /// Whether a password or a linked identity alone is not enough to sign in.
    pub is_enabled: bool,
    /// Whether the account has an authenticator app.
    pub has_totp: bool,
    /// Number of recovery codes that are left.
    pub recovery_codes: i64,
    /// Number of passkeys.
    pub passkeys: i64,
}

/// The authenticator app of an account.
#[derive(Clone, FromRow)]
pub struct TotpState {
    /// The shared secret.
    pub secret: Vec<u8>,
    /// The time step of the last accepted code.
    pub last_step: i64,
}

impl TwoFactor<'_> {
    /// The second factors of an account.
    ///
    /// # Errors
    /// If the account does not exist.
    pub async fn factors(self, account_id: i64) -> Result<SecondFactors, StoreError> {
        let found = sqlx::query_as(
            "select two_factor_since is not null as is_enabled, totp_secret is not null as has_totp,
                    (select count(*) from recovery_codes where account_id = $1) as recovery_codes,
                    (select count(*) from passkeys where account_id = $1) as passkeys
             from accounts where id = $1",
        )
        .bind(account_id)
        .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await?.ok_or(StoreRefusal::UnknownAccount.into())
    }

    /// Turns two-factor authentication on, with a new authenticator app or with the passkeys of the account, and replaces the
    /// recovery codes. Other sessions, sign-ins and links end, because they began without a second factor.
    ///
    /// # Errors
    /// If the session has ended, or the account has no second factor.
    pub async fn enable(
        self,
        account_id: i64,
        session_id: i64,
        totp: Option<&TotpState>,
        recovery_digests: &[[u8; 32]],
    ) -> Result<(), StoreError> {
        let enabled = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            sqlx::query(
                "with old_links as (
                     delete from tickets using accounts a
                     where a.id = $1 and (tickets.account_id = a.id
                         or tickets.email collate \"C\" = a.email and tickets.kind in ('reset', 'invite'))
                 ), old_sign_ins as (
                     delete from pending_sign_ins where account_id = $1
                 ), old_sessions as (
                     delete from sessions where account_id = $1 and id <> $4
                 ), unconfirmed as (
                     update sessions set confirmed_at = null where id = $4
                 )
                 update accounts set two_factor_since = now(),
                     totp_secret = coalesce($2, totp_secret), totp_step = coalesce($3, totp_step)
                 where id = $1",
            )
            .bind(account_id)
            .bind(totp.map(|totp| totp.secret.as_slice()))
            .bind(totp.map(|totp| totp.last_step))
            .bind(session_id)
            .execute(&mut *transaction)
            .await?;
            require_factor(&mut transaction, account_id).await?;
            insert_recovery_codes(&mut transaction, account_id, recovery_digests).await?;
            record_event(&mut transaction, account_id, SecurityEvent::TwoFactorEnabled, None).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(enabled).await
    }

    /// Turns two-factor authentication off, and removes the authenticator app and the recovery codes. The session of its owner
    /// is `None` for an operator.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn disable(self, account_id: i64, session_id: Option<i64>) -> Result<(), StoreError> {
        let disabled = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            if let Some(session_id) = session_id {
                require_session(&mut transaction, account_id, session_id).await?;
            }
            if end(&mut transaction, account_id).await? {
                record_event(&mut transaction, account_id, SecurityEvent::TwoFactorDisabled, None).await?;
            }
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(disabled).await
    }

    /// Replaces the recovery codes.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn replace_recovery_codes(
        self,
        account_id: i64,
        session_id: i64,
        digests: &[[u8; 32]],
    ) -> Result<(), StoreError> {
        let replaced = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            insert_recovery_codes(&mut transaction, account_id, digests).await?;
            record_event(&mut transaction, account_id, SecurityEvent::RecoveryCodesReplaced, None).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(replaced).await
    }

    /// The authenticator app of an account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn totp(self, account_id: i64) -> Result<Option<TotpState>, StoreError> {
        let found = sqlx::query_as(
            "select totp_secret as secret, totp_step as last_step from accounts where id = $1 and totp_secret is not null",
        )
        .bind(account_id)
        .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Accepts the code of a time step. Returns false if a code of this step or a later one was accepted before.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn accept_totp_step(self, account_id: i64, step: i64) -> Result<bool, StoreError> {
        let accepted = sqlx::query("update accounts set totp_step = $2 where id = $1 and totp_step < $2")
            .bind(account_id)
            .bind(step)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(accepted).await?.rows_affected() == 1)
    }

    /// Uses a recovery code up, and notifies the owner. Returns false if the account has no such code.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn use_recovery_code(self, account_id: i64, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let used = async {
            let mut transaction = self.store.pool.begin().await?;
            let deleted = sqlx::query("delete from recovery_codes where account_id = $1 and digest = $2")
                .bind(account_id)
                .bind(digest.as_slice())
                .execute(&mut *transaction)
                .await?;
            if deleted.rows_affected() == 0 {
                return Ok(false);
            }
            record_event(&mut transaction, account_id, SecurityEvent::RecoveryCodeUsed, None).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.store.with_timeout::<_, StoreError>(used).await
    }

    /// Stores that a browser has shown the first factor of an account: its password or a linked identity. Replaces a previous sign-in of the browser.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn save_pending(self, digest: &[u8; 32], account_id: i64) -> Result<(), StoreError> {
        let saved = sqlx::query(
            "insert into pending_sign_ins (digest, account_id, expires_at)
             values ($1, $2, now() + make_interval(mins => $3))
             on conflict (digest) do update set account_id = excluded.account_id, expires_at = excluded.expires_at",
        )
        .bind(digest.as_slice())
        .bind(account_id)
        .bind(PENDING_SIGN_IN_MINUTES)
        .execute(&self.store.pool);
        self.store.with_timeout(saved).await?;
        Ok(())
    }

    /// The account whose first factor a browser has shown.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_pending(self, digest: &[u8; 32]) -> Result<Option<i64>, StoreError> {
        let found =
            sqlx::query_scalar("select account_id from pending_sign_ins where digest = $1 and expires_at > now()")
                .bind(digest.as_slice())
                .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Ends a sign-in that waits for its second factor. Of two concurrent calls, one returns false.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn take_pending(self, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let taken = sqlx::query("delete from pending_sign_ins where digest = $1 and expires_at > now()")
            .bind(digest.as_slice())
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(taken).await?.rows_affected() == 1)
    }
}

/// Turns two-factor authentication off if it was turned on, or its factor replaced, after a notice or less than
/// [`RESTORE_EMAIL_DAYS`] before it: an attacker may have done both.
pub(crate) async fn end_if_newer(
    connection: &mut PgConnection,
    account_id: i64,
    notice_digest: &[u8; 32],
) -> Result<(), sqlx::Error> {
    let is_newer: bool = sqlx::query_scalar(
        "select exists (select 1 from accounts a join notices n on n.account_id = a.id
                        where a.id = $1 and n.digest = $2 and a.two_factor_since >= n.created_at - make_interval(days => $3))",
    )
    .bind(account_id)
    .bind(notice_digest.as_slice())
    .bind(RESTORE_EMAIL_DAYS)
    .fetch_one(&mut *connection)
    .await?;
    if is_newer && end(connection, account_id).await? {
        record_event(connection, account_id, SecurityEvent::TwoFactorDisabled, None).await?;
    }
    Ok(())
}

/// Rejects a change that leaves an account with two-factor authentication without a second factor.
pub(crate) async fn require_factor(connection: &mut PgConnection, account_id: i64) -> Result<(), StoreError> {
    if lacks_factor(connection, account_id).await? { Err(StoreRefusal::LastSecondFactor.into()) } else { Ok(()) }
}

/// Turns two-factor authentication off if no second factor is left. Its owner has proved access with one before.
pub(crate) async fn end_without_factors(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    if lacks_factor(connection, account_id).await? && end(connection, account_id).await? {
        record_event(connection, account_id, SecurityEvent::TwoFactorDisabled, None).await?;
    }
    Ok(())
}

async fn lacks_factor(connection: &mut PgConnection, account_id: i64) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "select exists (select 1 from accounts where id = $1 and two_factor_since is not null and totp_secret is null
                            and not exists (select 1 from passkeys where account_id = $1))",
    )
    .bind(account_id)
    .fetch_one(connection)
    .await
}

/// Returns whether two-factor authentication was on.
async fn end(connection: &mut PgConnection, account_id: i64) -> Result<bool, sqlx::Error> {
    let ended = sqlx::query(
        "with codes as (delete from recovery_codes where account_id = $1)
         update accounts set two_factor_since = null, totp_secret = null
         where id = $1 and two_factor_since is not null",
    )
    .bind(account_id)
    .execute(connection)
    .await?;
    Ok(ended.rows_affected() == 1)
}

async fn insert_recovery_codes(
    connection: &mut PgConnection,
    account_id: i64,
    digests: &[[u8; 32]],
) -> Result<(), sqlx::Error> {
    sqlx::query("delete from recovery_codes where account_id = $1").bind(account_id).execute(&mut *connection).await?;
    let digests: Vec<&[u8]> = digests.iter().map(<[u8; 32]>::as_slice).collect();
    sqlx::query("insert into recovery_codes (account_id, digest) select $1, unnest($2::bytea[])")
        .bind(account_id)
        .bind(digests)
        .execute(connection)
        .await?;
    Ok(())
}
