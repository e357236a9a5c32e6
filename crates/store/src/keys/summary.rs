//! Keys, as lists and pages show them.

use ipseity_domain::{KeyFlags, KeyId, KeyState, Restrictions, Scope};
use sqlx::FromRow;

use crate::access::Keys;
use crate::accounts::{Account, account_columns, select_accounts};
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;
use crate::keys::restrictions_row::{RestrictionsRow, restriction_columns};

/// A key, as lists show it.
#[derive(Clone, Debug)]
pub struct KeySummary {
    /// The key's id.
    pub id: KeyId,
    /// The key's name.
    pub name: String,
    /// The key's scope.
    pub scope: Scope,
    /// The key's state.
    pub state: KeyState,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
    /// The last day with admitted requests, such as `2026-11-15`, and their number.
    pub last_used: Option<(String, i64)>,
    /// Admitted requests of the current UTC day, as of the last usage flush.
    pub used_today: u64,
    /// When the previous secret expires, as Unix time in seconds. `None` if there is no valid one.
    pub previous_until_s: Option<i64>,
    /// Who may use the key, and for how long.
    pub restrictions: Restrictions,
    /// Their version, 0 if the key was never restricted.
    pub restriction_version: u64,
    /// Why the key is paused. `None` if it is not.
    pub pause: Option<PauseEvidence>,
    /// Requests per day.
    pub daily_limit: u64,
    /// Requests in any 60 seconds.
    pub burst_limit: usize,
}

/// The evidence of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseEvidence {
    /// When the key was paused, as Unix time in milliseconds.
    pub paused_at_ms: i64,
    /// Requests in each of the 60 seconds before, oldest first.
    pub counts: Vec<u16>,
}

impl PauseEvidence {
    pub(crate) fn from_row(paused_at_ms: i64, counts: Vec<i16>) -> Self {
        Self { paused_at_ms, counts: counts.into_iter().map(i16::unsigned_abs).collect() }
    }
}

/// All keys of the account $1, or the one with the id $2.
const SELECT_KEY_SUMMARIES: &str = concat!("
    select ", restriction_columns!(), ", k.id, k.name, k.scope, floor(extract(epoch from k.created_at))::bigint as created_s,
           k.deactivated_at is not null as deactivated, k.paused_at is not null as paused,
           newest.day, newest.admitted, today.admitted as today,
           case when k.retired_until > now() then floor(extract(epoch from k.retired_until))::bigint end as retired_until_s,
           floor(extract(epoch from p.paused_at) * 1000)::bigint as pause_ms, p.counts,
           ", key_daily_limit!(), " as daily_limit,
           coalesce(k.burst_limit, l.burst_limit) as burst_limit
    from keys k
    join account_limits l on l.account_id = k.account_id
    left join lateral (
        select day::text as day, admitted from usage where key_id = k.id order by usage.day desc limit 1
    ) newest on true
    left join usage today on today.key_id = k.id and today.day = (now() at time zone 'UTC')::date
    left join pauses p on p.key_id = k.id and p.burst_window = k.burst_window and k.paused_at is not null
    where k.account_id = $1 and ($2::text is null or k.id = $2)
    order by k.created_at, k.id");

#[derive(FromRow)]
struct KeySummaryRow {
    id: String,
    name: String,
    scope: String,
    created_s: i64,
    deactivated: bool,
    paused: bool,
    day: Option<String>,
    admitted: Option<i64>,
    today: Option<i64>,
    retired_until_s: Option<i64>,
    #[sqlx(flatten)]
    restrictions: RestrictionsRow,
    pause_ms: Option<i64>,
    counts: Option<Vec<i16>>,
    daily_limit: i64,
    burst_limit: i32,
}

impl Keys<'_> {
    /// An account's keys, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64) -> Result<Vec<KeySummary>, StoreError> {
        let query =
            sqlx::query_as(SELECT_KEY_SUMMARIES).bind(account_id).bind(None::<&str>).fetch_all(&self.store.pool);
        let rows: Vec<KeySummaryRow> = self.store.with_timeout(query).await?;
        Ok(rows.into_iter().filter_map(KeySummaryRow::into_summary).collect())
    }

    /// The account of a key. `None` if there is no such key.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_account(self, id: KeyId) -> Result<Option<Account>, StoreError> {
        let found = sqlx::query_as(select_accounts!("where a.id = (select account_id from keys where id = $1)"))
            .bind(id.as_str())
            .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// One of an account's keys. `None` if the account has no such key.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find(self, account_id: i64, id: KeyId) -> Result<Option<KeySummary>, StoreError> {
        let query =
            sqlx::query_as(SELECT_KEY_SUMMARIES).bind(account_id).bind(id.as_str()).fetch_optional(&self.store.pool);
        let row: Option<KeySummaryRow> = self.store.with_timeout(query).await?;
        Ok(row.and_then(KeySummaryRow::into_summary))
    }
}

impl KeySummaryRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_summary(self) -> Option<KeySummary> {
        let versioned = self.restrictions.into_restrictions()?;
        Some(KeySummary {
            id: KeyId::parse(&self.id)?,
            scope: Scope::parse(&self.scope)?,
            state: KeyFlags { deactivated: self.deactivated, paused: self.paused }.state(),
            name: self.name,
            created_s: self.created_s,
            last_used: self.day.zip(self.admitted),
            used_today: self.today.unwrap_or_default().unsigned_abs(),
            previous_until_s: self.retired_until_s,
            restriction_version: versioned.as_ref().map_or(0, |versioned| versioned.version),
            restrictions: versioned.map(|versioned| versioned.restrictions.clone()).unwrap_or_default(),
            daily_limit: self.daily_limit.unsigned_abs(),
            burst_limit: usize::try_from(self.burst_limit).ok()?,
            pause: self.pause_ms.zip(self.counts).map(|(at_ms, counts)| PauseEvidence::from_row(at_ms, counts)),
        })
    }
}
