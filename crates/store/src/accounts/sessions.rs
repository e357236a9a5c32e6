//! Sessions and known devices. Both are identified by the digest of a cookie. No client address is stored.

use std::time::Duration;

use ipseity_domain::account::EmailAddress;
use sqlx::{FromRow, PgConnection};

use crate::access::{Devices, Sessions};
use crate::accounts::identities::require_identity;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{Account, account_columns};
use crate::error::{StoreError, StoreRefusal};

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
    /// Whether the owner confirmed the session in the last five minutes.
    pub is_confirmed: bool,
    /// Whether the owner signed in or confirmed the session recently.
    pub is_recent: bool,
    /// Whether the account has two-factor authentication.
    pub has_two_factor: bool,
}

/// How long sessions last.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Without use.
    pub idle_timeout: Duration,
    /// In total.
    pub lifetime_max: Duration,
    /// How long a sign-in or a confirmation is recent enough for changes of keys.
    pub recent_period: Duration,
}

/// How a session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStart {
    /// A sign-in. An email reports a new device to the owner.
    SignIn,
    /// The same with a password alone, which the account must still allow.
    OneFactor,
    /// The same with the identity that has this id alone. It must still be linked to the account.
    Identity(i64),
    /// A sign-up, an invitation or a password reset, which have separate emails.
    Link,
}

/// A session to be opened.
#[derive(Clone, Copy)]
pub struct NewSession<'a> {
    /// The account.
    pub account_id: i64,
    /// The digest of the session cookie.
    pub digest: &'a [u8; 32],
    /// The browser, such as `Firefox on Linux`. Truncated to 60 characters.
    pub label: &'a str,
    /// The digest of the device cookie.
    pub device_digest: &'a [u8; 32],
    /// How it starts.
    pub start: SessionStart,
}

/// A known device, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct DeviceSummary {
    /// The device's id.
    pub id: i64,
    /// The browser, such as `Firefox on Linux`.
    pub label: String,
    /// When it last signed in, as Unix time in seconds.
    pub signed_in_s: i64,
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
    /// Records that a form of a session was sent. Returns `false` if it was sent before.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn use_form(self, session_id: i64, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let used = sqlx::query(
            "insert into used_forms (session_id, digest) select id, $2 from sessions where id = $1 on conflict do nothing",
        )
        .bind(session_id)
        .bind(digest.as_slice())
        .execute(&self.store.pool);
        Ok(self.store.with_timeout(used).await?.rows_affected() > 0)
    }

    /// Opens a session, remembers its device, records the events, and returns the session's id.
    ///
    /// # Errors
    /// If the account does not exist, now needs a second factor, or no longer has the identity.
    pub async fn open(self, session: &NewSession<'_>) -> Result<i64, StoreError> {
        let opened = async {
            let mut transaction = self.store.pool.begin().await?;
            // Two-factor authentication may have been turned on since the first factor was verified.
            let has_two_factor: Option<bool> =
                sqlx::query_scalar("select two_factor_since is not null from accounts where id = $1 for update")
                    .bind(session.account_id)
                    .fetch_optional(&mut *transaction)
                    .await?;
            let is_one_factor = matches!(session.start, SessionStart::OneFactor | SessionStart::Identity(_));
            if has_two_factor.is_none_or(|has| has && is_one_factor) {
                return Err(StoreRefusal::SessionEnded.into());
            }
            if let SessionStart::Identity(id) = session.start {
                require_identity(&mut transaction, session.account_id, id).await?;
            }
            let id = sqlx::query_scalar(
                "with surplus as (
                     delete from sessions where id in (
                         select id from sessions where account_id = $1 order by seen_at desc, id desc offset $4 - 1
                         for update skip locked
                     )
                 )
                 insert into sessions (account_id, digest, label) values ($1, $2, left($3, 60)) returning id",
            )
            .bind(session.account_id)
            .bind(session.digest.as_slice())
            .bind(session.label)
            .bind(SESSIONS_MAX)
            .fetch_one(&mut *transaction)
            .await?;
            let is_new =
                remember_device(&mut transaction, session.account_id, session.device_digest, session.label).await?;
            if is_new && session.start != SessionStart::Link {
                let (event, label) = (SecurityEvent::NewDevice, Some(session.label));
                record_event(&mut transaction, session.account_id, event, label).await?;
            }
            record_event(&mut transaction, session.account_id, SecurityEvent::SignedIn, None).await?;
            transaction.commit().await?;
            Ok(id)
        };
        self.store.with_timeout::<_, StoreError>(opened).await
    }

    /// Finds the signed-in account, unless the session has reached a limit.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn authenticate(
        self,
        digest: &[u8; 32],
        limits: SessionLimits,
    ) -> Result<Option<AuthenticatedAccount>, StoreError> {
        // With a short idle timeout, the last use must be updated more often than hourly.
        let found = sqlx::query_as(concat!(
            "select ",
            account_columns!(),
            ",      s.id as session_id, coalesce(s.confirmed_at > now() - interval '5 minutes', false) as is_confirmed,
                    greatest(s.created_at, s.confirmed_at) > now() - make_interval(secs => $4) as is_recent,
                    a.two_factor_since is not null as has_two_factor,
                    s.seen_at < now() - least(interval '1 hour', make_interval(secs => $2) / 2) as is_stale
             from sessions s join accounts a on a.id = s.account_id
                  join account_limits l on l.account_id = a.id
             where s.digest = $1 and s.seen_at > now() - make_interval(secs => $2)
                 and s.created_at > now() - make_interval(secs => $3)",
        ))
        .bind(digest.as_slice())
        .bind(limits.idle_timeout.as_secs_f64())
        .bind(limits.lifetime_max.as_secs_f64())
        .bind(limits.recent_period.as_secs_f64())
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

    /// Records that the owner confirmed a session.
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
    pub async fn list(self, account_id: i64, limits: SessionLimits) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = sqlx::query_as(
            "select id, label, floor(extract(epoch from created_at))::bigint as created_s,
                    floor(extract(epoch from seen_at))::bigint as last_seen_s
             from sessions where account_id = $1 and seen_at > now() - make_interval(secs => $2)
                 and created_at > now() - make_interval(secs => $3) order by id desc",
        )
        .bind(account_id)
        .bind(limits.idle_timeout.as_secs_f64())
        .bind(limits.lifetime_max.as_secs_f64())
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
    /// Remembers a device that gets a new cookie.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn remember(self, account_id: i64, digest: &[u8; 32], label: &str) -> Result<(), StoreError> {
        let remembered = async {
            let mut connection = self.store.pool.acquire().await?;
            remember_device(&mut connection, account_id, digest, label).await
        };
        self.store.with_timeout::<_, sqlx::Error>(remembered).await?;
        Ok(())
    }

    /// An account's known devices, newest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64) -> Result<Vec<DeviceSummary>, StoreError> {
        let rows = sqlx::query_as(
            "select id, label, floor(extract(epoch from created_at))::bigint as signed_in_s
             from devices where account_id = $1 order by created_at desc, id desc",
        )
        .bind(account_id)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }

    /// Forgets one of an account's devices. Returns false if the account has no such device.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn forget(self, account_id: i64, id: i64) -> Result<bool, StoreError> {
        let forgotten = sqlx::query("delete from devices where account_id = $1 and id = $2")
            .bind(account_id)
            .bind(id)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(forgotten).await?.rows_affected() == 1)
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

/// Returns whether the device is new.
async fn remember_device(
    connection: &mut PgConnection,
    account_id: i64,
    digest: &[u8; 32],
    label: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "with surplus as (
             delete from devices where account_id = $1 and digest in (
                 select digest from devices where account_id = $1 and digest <> $2
                 order by created_at desc, digest offset $3 - 1
                 for update skip locked
             )
         )
         insert into devices (account_id, digest, label) values ($1, $2, left($4, 60))
         on conflict (account_id, digest) do update set created_at = now(), label = excluded.label
         returning xmax = 0",
    )
    .bind(account_id)
    .bind(digest.as_slice())
    .bind(DEVICES_MAX)
    .bind(label)
    .fetch_one(connection)
    .await
}
