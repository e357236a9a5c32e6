//! Search for accounts and keys, for operators.

use ipseity_domain::{KeyFlags, KeyId, KeyState, Scope};
use sqlx::FromRow;

use crate::access::{Accounts, Keys};
use crate::accounts::{Account, account_columns, select_accounts};
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;

/// A key and its owner.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// The key's id.
    pub id: KeyId,
    /// The key's name.
    pub name: String,
    /// The key's scope.
    pub scope: Scope,
    /// The key's state.
    pub state: KeyState,
    /// Whether its time is over, in any state.
    pub is_expired: bool,
    /// Admitted requests of the current UTC day, as of the last usage flush.
    pub used_today: u64,
    /// Requests per day.
    pub daily_limit: u64,
    /// Requests in any 60 seconds.
    pub burst_limit: usize,
    /// The id of the account.
    pub account_id: i64,
    /// The owner's email address.
    pub email: String,
}

#[derive(FromRow)]
pub(crate) struct FoundKeyRow {
    id: String,
    name: String,
    scope: String,
    deactivated: bool,
    paused: bool,
    is_expired: bool,
    used_today: i64,
    daily_limit: i64,
    burst_limit: i32,
    account_id: i64,
    email: String,
}

/// The columns of [`FoundKeyRow`], from `keys k` and `accounts a`.
macro_rules! found_key_columns {
    () => {
        concat!(
            "k.id, k.name, k.scope, k.deactivated_at is not null as deactivated, k.paused_at is not null as paused,
             coalesce(k.expires_at <= now(), false) as is_expired, k.account_id, a.email,
             coalesce((select u.admitted from usage u
                 where u.key_id = k.id and u.day = (now() at time zone 'UTC')::date), 0) as used_today,
             (select ",
            key_daily_limit!(),
            " from account_limits l where l.account_id = k.account_id) as daily_limit,
             (select coalesce(k.burst_limit, l.burst_limit) from account_limits l
                 where l.account_id = k.account_id) as burst_limit"
        )
    };
}
pub(crate) use found_key_columns;

impl Accounts<'_> {
    /// Accounts whose email address contains the text, ignoring case, ordered by id.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn search(self, text: &str, count_max: i64) -> Result<Vec<Account>, StoreError> {
        let found = sqlx::query_as(select_accounts!("where position($1 in a.email) > 0 order by a.id limit $2"))
            .bind(text.to_ascii_lowercase())
            .bind(count_max)
            .fetch_all(&self.store.pool);
        self.store.with_timeout(found).await
    }
}

impl Keys<'_> {
    /// Keys with this id, and keys whose name or owner's email address contains the text, ignoring case.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn search(self, text: &str, count_max: i64) -> Result<Vec<FoundKey>, StoreError> {
        let found = sqlx::query_as(concat!(
            "select ",
            found_key_columns!(),
            " from keys k join accounts a on a.id = k.account_id
             where k.id = $1 or position(lower($1) in lower(k.name)) > 0 or position($3 in a.email) > 0
             order by k.account_id, k.created_at, k.id limit $2",
        ))
        .bind(text)
        .bind(count_max)
        .bind(text.to_ascii_lowercase())
        .fetch_all(&self.store.pool);
        let rows: Vec<FoundKeyRow> = self.store.with_timeout(found).await?;
        Ok(rows.into_iter().filter_map(FoundKeyRow::into_found_key).collect())
    }
}

impl FoundKeyRow {
    /// `None` only for a row that violates the checks of the schema.
    pub(crate) fn into_found_key(self) -> Option<FoundKey> {
        Some(FoundKey {
            id: KeyId::parse(&self.id)?,
            scope: Scope::parse(&self.scope)?,
            state: KeyFlags { deactivated: self.deactivated, paused: self.paused }.state(),
            is_expired: self.is_expired,
            used_today: self.used_today.unsigned_abs(),
            daily_limit: self.daily_limit.unsigned_abs(),
            burst_limit: usize::try_from(self.burst_limit).ok()?,
            name: self.name,
            account_id: self.account_id,
            email: self.email,
        })
    }
}
