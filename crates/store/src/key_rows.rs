//! Keys as lists and pages show them.

use domain::{KeyId, Marks, Scope, State};
use sqlx::FromRow;

use crate::error::StoreError;
use crate::pool::Store;

/// A key as lists show it.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// Its state.
    pub state: State,
    /// Unix time of its creation, in seconds.
    pub created_s: i64,
    /// The newest day on which it was answered, such as `2026-11-15`, and how often.
    pub last_used: Option<(String, i64)>,
    /// How often it was answered today, by UTC, as far as that is rolled up.
    pub today: u64,
    /// Unix time until which its old secret holds, in seconds; `None` when there is none that still does.
    pub retired_until_s: Option<i64>,
    /// Why it is paused; `None` when it is not.
    pub pause: Option<PauseRow>,
}

/// The evidence of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseRow {
    /// Unix time in milliseconds.
    pub at_ms: i64,
    /// Requests in each of the 60 seconds before, oldest first.
    pub counts: Vec<u16>,
}

/// The keys of the account $1: all, or the one with the id $2.
const ROWS: &str = "
    select k.id, k.name, k.scope, floor(extract(epoch from k.created_at))::bigint as created_s,
           k.deactivated_at is not null as deactivated, k.paused_at is not null as paused,
           newest.day, newest.admitted, today.admitted as today,
           case when k.retired_until > now() then floor(extract(epoch from k.retired_until))::bigint end as retired_until_s,
           floor(extract(epoch from p.paused_at) * 1000)::bigint as pause_ms, p.counts
    from keys k
    left join lateral (
        select day::text as day, admitted from usage where key_id = k.id order by usage.day desc limit 1
    ) newest on true
    left join usage today on today.key_id = k.id and today.day = (now() at time zone 'UTC')::date
    left join pauses p on p.key_id = k.id and p.burst_window = k.burst_window and k.paused_at is not null
    where k.account_id = $1 and ($2::text is null or k.id = $2)
    order by k.created_at, k.id";

#[derive(FromRow)]
struct Listed {
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
    pause_ms: Option<i64>,
    counts: Option<Vec<i16>>,
}

impl Store {
    /// An account's keys, oldest first.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn keys(&self, account_id: i64) -> Result<Vec<KeyRow>, StoreError> {
        let listed = sqlx::query_as(ROWS).bind(account_id).bind(None::<&str>).fetch_all(&self.pool);
        let rows: Vec<Listed> = self.within(listed).await?;
        Ok(rows.into_iter().filter_map(Listed::row).collect())
    }

    /// One of an account's keys; `None` when it has no such key, whoever else may have.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn find_key(&self, account_id: i64, id: KeyId) -> Result<Option<KeyRow>, StoreError> {
        let listed = sqlx::query_as(ROWS).bind(account_id).bind(id.as_str()).fetch_optional(&self.pool);
        let row: Option<Listed> = self.within(listed).await?;
        Ok(row.and_then(Listed::row))
    }
}

impl Listed {
    /// `None` only for a row that the schema's checks do not let in.
    fn row(self) -> Option<KeyRow> {
        Some(KeyRow {
            id: KeyId::parse(&self.id)?,
            scope: Scope::parse(&self.scope)?,
            state: Marks { deactivated: self.deactivated, paused: self.paused }.state(),
            name: self.name,
            created_s: self.created_s,
            last_used: self.day.zip(self.admitted),
            today: self.today.unwrap_or_default().unsigned_abs(),
            retired_until_s: self.retired_until_s,
            pause: self
                .pause_ms
                .zip(self.counts)
                .map(|(at_ms, counts)| PauseRow { at_ms, counts: counts.into_iter().map(i16::unsigned_abs).collect() }),
        })
    }
}
