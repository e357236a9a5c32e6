//! Personal tokens, which programs of an account's owner send to the management API.

use ipseity_domain::{KeyId, PersonalToken, TokenName, TokenScope};
use sqlx::{FromRow, PgConnection};

use crate::access::PersonalTokens;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{Account, account_columns, lock_account, require_session};
use crate::error::{StoreError, StoreRefusal};

/// A token to be created.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    /// The token's name.
    pub name: &'a TokenName,
    /// Its id and its digest.
    pub token: &'a PersonalToken,
    /// What it may do.
    pub scopes: &'a [TokenScope],
    /// Days until it expires. `None` for never.
    pub lifetime_days: Option<u32>,
}

/// A token, as its owner sees it.
#[derive(Clone, Debug)]
pub struct TokenSummary {
    /// The token's id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<TokenScope>,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
    /// When it expires, as Unix time in seconds.
    pub expires_at_s: Option<i64>,
    /// Whether it has expired.
    pub is_expired: bool,
    /// When it was used, as Unix time in seconds, up to an hour too early.
    pub last_used_s: Option<i64>,
}

/// A token that exists, and its account.
#[derive(Clone, Debug)]
pub struct AuthenticatedToken {
    /// The token's id.
    pub id: KeyId,
    /// The account.
    pub account: Account,
    /// What the token may do.
    pub scopes: Vec<TokenScope>,
    /// Whether it has expired.
    pub is_expired: bool,
    /// Whether the time of its last use is an hour old.
    pub is_use_stale: bool,
    /// Whether the owner lets tokens resume paused keys.
    pub may_resume: bool,
    /// Whether the account has two-factor authentication.
    pub has_two_factor: bool,
}

#[derive(FromRow)]
struct TokenRow {
    token_id: String,
    name: String,
    scopes: Vec<String>,
    created_s: i64,
    expires_at_s: Option<i64>,
    is_expired: bool,
    last_used_s: Option<i64>,
}

#[derive(FromRow)]
struct AuthenticatedTokenRow {
    #[sqlx(flatten)]
    account: Account,
    scopes: Vec<String>,
    is_expired: bool,
    is_use_stale: bool,
    may_resume: bool,
    has_two_factor: bool,
}

impl PersonalTokens<'_> {
    /// Creates a token.
    ///
    /// # Errors
    /// If the account has as many tokens as it may have, or the session has ended.
    pub async fn create(
        self,
        account_id: i64,
        session_id: i64,
        new: &NewToken<'_>,
        tokens_max: u32,
    ) -> Result<(), StoreError> {
        let created = async {
            let mut transaction = self.store.pool.begin().await?;
            // The lock serializes concurrent calls, which count the tokens.
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            let scopes: Vec<&str> = new.scopes.iter().map(|scope| scope.name()).collect();
            let inserted = sqlx::query(
                "insert into personal_tokens (id, account_id, name, digest, scopes, expires_at)
                 select $2, $1, $3, $4, $5, now() + make_interval(days => $6)
                 where (select count(*) from personal_tokens where account_id = $1) < $7",
            )
            .bind(account_id)
            .bind(new.token.id.as_str())
            .bind(new.name.as_str())
            .bind(new.token.digest.as_bytes().as_slice())
            .bind(scopes)
            .bind(new.lifetime_days.map(|days| i32::try_from(days).unwrap_or(i32::MAX)))
            .bind(i64::from(tokens_max))
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreRefusal::TokenLimitReached.into());
            }
            let name = Some(new.name.as_str());
            record_event(&mut transaction, account_id, SecurityEvent::TokenCreated, name).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(created).await
    }

    /// An account's tokens, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64) -> Result<Vec<TokenSummary>, StoreError> {
        let rows = sqlx::query_as(
            "select id as token_id, name, scopes, floor(extract(epoch from created_at))::bigint as created_s,
                    floor(extract(epoch from expires_at))::bigint as expires_at_s,
                    coalesce(expires_at <= now(), false) as is_expired,
                    floor(extract(epoch from last_used_at))::bigint as last_used_s
             from personal_tokens where account_id = $1 order by created_at, id",
        )
        .bind(account_id)
        .fetch_all(&self.store.pool);
        let rows: Vec<TokenRow> = self.store.with_timeout(rows).await?;
        Ok(rows.into_iter().filter_map(TokenRow::into_summary).collect())
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// If the account has no such token.
    pub async fn revoke(self, account_id: i64, id: KeyId) -> Result<(), StoreError> {
        let revoked = async {
            let mut transaction = self.store.pool.begin().await?;
            let name: Option<String> =
                sqlx::query_scalar("delete from personal_tokens where account_id = $1 and id = $2 returning name")
                    .bind(account_id)
                    .bind(id.as_str())
                    .fetch_optional(&mut *transaction)
                    .await?;
            let name = name.ok_or(StoreRefusal::UnknownToken)?;
            record_event(&mut transaction, account_id, SecurityEvent::TokenRevoked, Some(&name)).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(revoked).await
    }

    /// Finds the token with this id and secret, also if it has expired.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn authenticate(self, token: &PersonalToken) -> Result<Option<AuthenticatedToken>, StoreError> {
        let found = sqlx::query_as(concat!(
            "select ",
            account_columns!(),
            ",      t.scopes, coalesce(t.expires_at <= now(), false) as is_expired,
                    coalesce(t.last_used_at < now() - interval '1 hour', true) as is_use_stale,
                    a.tokens_may_resume as may_resume, a.two_factor_since is not null as has_two_factor
             from personal_tokens t join accounts a on a.id = t.account_id join account_limits l on l.account_id = a.id
             where t.id = $1 and t.digest = $2",
        ))
        .bind(token.id.as_str())
        .bind(token.digest.as_bytes().as_slice())
        .fetch_optional(&self.store.pool);
        let row: Option<AuthenticatedTokenRow> = self.store.with_timeout(found).await?;
        Ok(row.map(|row| AuthenticatedToken {
            id: token.id,
            account: row.account,
            scopes: parse_scopes(&row.scopes),
            is_expired: row.is_expired,
            is_use_stale: row.is_use_stale,
            may_resume: row.may_resume,
            has_two_factor: row.has_two_factor,
        }))
    }

    /// Records that a token was used, unless that was recorded within the last hour.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn record_use(self, id: KeyId) -> Result<(), StoreError> {
        let recorded = sqlx::query(
            "update personal_tokens set last_used_at = now()
             where id = $1 and coalesce(last_used_at < now() - interval '1 hour', true)",
        )
        .bind(id.as_str())
        .execute(&self.store.pool);
        self.store.with_timeout(recorded).await?;
        Ok(())
    }

    /// Whether an account's tokens can resume paused keys.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn may_resume(self, account_id: i64) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar("select tokens_may_resume from accounts where id = $1")
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        Ok(self.store.with_timeout(found).await?.unwrap_or(false))
    }

    /// Sets whether an account's tokens can resume paused keys. No effect if it is so already.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn set_may_resume(self, account_id: i64, may_resume: bool) -> Result<(), StoreError> {
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            let changed =
                sqlx::query("update accounts set tokens_may_resume = $2 where id = $1 and tokens_may_resume <> $2")
                    .bind(account_id)
                    .bind(may_resume)
                    .execute(&mut *transaction)
                    .await?;
            if changed.rows_affected() > 0 {
                let subject = if may_resume { "can now" } else { "can no longer" };
                let event = SecurityEvent::TokenResumeChanged;
                record_event(&mut transaction, account_id, event, Some(subject)).await?;
            }
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

/// Revokes all tokens of an account, and forbids later ones to resume keys: a stranger may have created and allowed them.
pub(crate) async fn revoke_all(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar("delete from personal_tokens where account_id = $1 returning name")
        .bind(account_id)
        .fetch_all(&mut *connection)
        .await?;
    for name in names {
        record_event(connection, account_id, SecurityEvent::TokenRevoked, Some(&name)).await?;
    }
    sqlx::query("update accounts set tokens_may_resume = false where id = $1 and tokens_may_resume")
        .bind(account_id)
        .execute(connection)
        .await?;
    Ok(())
}

fn parse_scopes(names: &[String]) -> Vec<TokenScope> {
    names.iter().filter_map(|name| TokenScope::find(name)).collect()
}

impl TokenRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_summary(self) -> Option<TokenSummary> {
        Some(TokenSummary {
            id: KeyId::parse(&self.token_id)?,
            name: self.name,
            scopes: parse_scopes(&self.scopes),
            created_s: self.created_s,
            expires_at_s: self.expires_at_s,
            is_expired: self.is_expired,
            last_used_s: self.last_used_s,
        })
    }
}
