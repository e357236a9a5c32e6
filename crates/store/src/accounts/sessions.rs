//! Sessions and known devices. Both are identified by the digest of a cookie. No client address is stored.

use std::time::Duration;

use ipseity_domain::account::EmailAddress;
use sqlx::FromRow;

use crate::access::{Devices, Sessions};
use crate::accounts::Account;
use crate::error::StoreError;

/// Maximum number of sessions per account. The least recently used ones are removed.
const SESSIONS_MAX: i64 = 100;
/// Maximum number of known devices per account. The oldest ones are removed.
const DEVICES_MAX: i64 = 20;

/// A signed-in account.
#[derive(Clone, Debug, FromRow)]
pub struct AuthenticatedAccount {
    /// The account.
    #[sqlx(flatten)]
    pub account: Account,
    /// The id of the session.
    pub session_id: i64,
    /// Whether the session was confirmed with a passkey in the last five minutes.
    pub is_confirmed: bool,
}

/// A session, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct SessionSummary {
    /// The session's id.
    pub id: i64,
    /// The browser, such as `Firefox on Linux`.
    pub label: String,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
    /// When it was last used, as Unix time in seconds. Updated at most hourly.
    pub last_seen_s: i64,
}

#[derive(FromRow)]
struct AuthenticatedRow {
    #[sqlx(flatten)]
    authenticated: AuthenticatedAccount,
    is_stale: bool,
}

impl Sessions<'_> {
    /// Opens a session and returns its id. The label is truncated to 60 characters.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn open(self, account_id: i64, digest: &[u8; 32], label: &str) -> Result<i64, StoreError> {
        let opened = sqlx::query_scalar(
            "with surplus as (
                 delete from sessions where id in (
                     select id from sessions where account_id = $1 order by seen_at desc, id desc offset $4 - 1
                     for update skip locked
                 )
             )
             insert into sessions (account_id, digest, label) values ($1, $2, left($3, 60)) returning id",
        )
        .bind(account_id)
        .bind(digest.as_slice())
        .bind(label)
        .bind(SESSIONS_MAX)
        .fetch_one(&self.store.pool);
        self.store.with_timeout(opened).await
    }

    /// Finds the signed-in account, unless the session was idle for longer than `idle_timeout`.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn authenticate(
        self,
        digest: &[u8; 32],
        idle_timeout: Duration,
    ) -> Result<Option<AuthenticatedAccount>, StoreError> {
        // With a short idle timeout, the last use must be updated more often than hourly.
        let found = sqlx::query_as(
            "select a.id, a.email, a.plan, p.daily_limit, floor(extract(epoch from a.created_at))::bigint as created_s,
                    s.id as session_id, coalesce(s.confirmed_at > now() - interval '5 minutes', false) as is_confirmed,
                    s.seen_at < now() - least(interval '1 hour', make_interval(secs => $2) / 2) as is_stale
             from sessions s join accounts a on a.id = s.account_id join plans p on p.name = a.plan
             where s.digest = $1 and s.seen_at > now() - make_interval(secs => $2)",
        )
        .bind(digest.as_slice())
        .bind(idle_timeout.as_secs_f64())
        .fetch_optional(&self.store.pool);
        let Some(AuthenticatedRow { authenticated, is_stale }) = self.store.with_timeout(found).await? else {
            return Ok(None);
        };
        if is_stale {
            let touch = sqlx::query("update sessions set seen_at = now() where id = $1").bind(authenticated.session_id);
            self.store.with_timeout(touch.execute(&self.store.pool)).await?;
        }
        Ok(Some(authenticated))
    }

    /// Records that the owner confirmed a session with a passkey.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn confirm(self, session_id: i64) -> Result<(), StoreError> {
        let confirmed = sqlx::query("update sessions set confirmed_at = now() where id = $1").bind(session_id);
        self.store.with_timeout(confirmed.execute(&self.store.pool)).await?;
        Ok(())
    }

    /// An account's sessions, newest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64, idle_timeout: Duration) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = sqlx::query_as(
            "select id, label, floor(extract(epoch from created_at))::bigint as created_s,
                    floor(extract(epoch from seen_at))::bigint as last_seen_s
             from sessions where account_id = $1 and seen_at > now() - make_interval(secs => $2) order by id desc",
        )
        .bind(account_id)
        .bind(idle_timeout.as_secs_f64())
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }

    /// Ends one of an account's sessions. Returns false if the account has no such session.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn end(self, account_id: i64, session_id: i64) -> Result<bool, StoreError> {
        let ended = sqlx::query("delete from sessions where account_id = $1 and id = $2")
            .bind(account_id)
            .bind(session_id)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(ended).await?.rows_affected() == 1)
    }

    /// Ends the session with this digest, if it exists.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn end_by_digest(self, digest: &[u8; 32]) -> Result<(), StoreError> {
        let ended =
            sqlx::query("delete from sessions where digest = $1").bind(digest.as_slice()).execute(&self.store.pool);
        self.store.with_timeout(ended).await?;
        Ok(())
    }

    /// Ends all of an account's sessions except one, and returns their number.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn end_others(self, account_id: i64, keep_session_id: i64) -> Result<u64, StoreError> {
        let ended = sqlx::query("delete from sessions where account_id = $1 and id <> $2")
            .bind(account_id)
            .bind(keep_session_id)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(ended).await?.rows_affected())
    }
}

impl Devices<'_> {
    /// Records that a device has signed in to an account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn remember(self, account_id: i64, digest: &[u8; 32]) -> Result<(), StoreError> {
        let upsert = sqlx::query(
            "with surplus as (
                 delete from devices where account_id = $1 and digest in (
                     select digest from devices where account_id = $1 and digest <> $2
                     order by created_at desc, digest offset $3 - 1
                     for update skip locked
                 )
             )
             insert into devices (account_id, digest) values ($1, $2)
             on conflict (account_id, digest) do update set created_at = now()",
        )
        .bind(account_id)
        .bind(digest.as_slice())
        .bind(DEVICES_MAX)
        .execute(&self.store.pool);
        self.store.with_timeout(upsert).await?;
        Ok(())
    }

    /// Whether a device has signed in to the account with this email address before.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn is_known(self, email: &EmailAddress, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let is_known = sqlx::query_scalar(
            "select exists (select 1 from devices d join accounts a on a.id = d.account_id
                            where a.email collate \"C\" = $1 and d.digest = $2)",
        )
        .bind(email.as_str())
        .bind(digest.as_slice())
        .fetch_one(&self.store.pool);
        self.store.with_timeout(is_known).await
    }
}
