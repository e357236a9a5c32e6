//! Usage, as pages show it.

use ipseity_domain::{KeyId, UtcDay};
use sqlx::FromRow;

use crate::access::Usage;
use crate::error::StoreError;
use crate::usage::day_number;

/// A key's requests on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The key.
    pub key: KeyId,
    /// The day.
    pub day: UtcDay,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests, by reason: burst, paused, inactive, daily quota, wrong secret, restrictions.
    pub refused: [u64; 6],
}

#[derive(FromRow)]
struct UsageCountsRow {
    key_id: String,
    day: i32,
    admitted: i64,
    burst: i64,
    paused: i64,
    inactive: i64,
    quota_exhausted: i64,
    wrong_secret: i64,
    restricted: i64,
}

impl Usage<'_> {
    /// The usage of an account's keys, or of one of them, since a day: a row for each key and day with requests.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64, key: Option<KeyId>, since: UtcDay) -> Result<Vec<UsageRow>, StoreError> {
        let query = sqlx::query_as(
            "select k.id as key_id, counted.day - date '1970-01-01' as day,
                    coalesce(max(counted.count) filter (where counted.outcome = 'admitted'), 0) as admitted,
                    coalesce(max(counted.count) filter (where counted.outcome = 'burst'), 0) as burst,
                    coalesce(max(counted.count) filter (where counted.outcome = 'paused'), 0) as paused,
                    coalesce(max(counted.count) filter (where counted.outcome = 'inactive'), 0) as inactive,
                    coalesce(max(counted.count) filter (where counted.outcome = 'day'), 0) as quota_exhausted,
                    coalesce(max(counted.count) filter (where counted.outcome = 'wrong_secret'), 0) as wrong_secret,
                    coalesce(max(counted.count) filter (where counted.outcome = 'restricted'), 0) as restricted
             from keys k
             cross join lateral (
                 select u.day, 'admitted' as outcome, u.admitted as count from usage u
                 where u.key_id = k.id and u.day >= date '1970-01-01' + $2::int
                 union all
                 select r.day, r.reason, r.count from refusals r
                 where r.key_id = k.id and r.day >= date '1970-01-01' + $2::int
             ) counted
             where k.account_id = $1 and ($3::text is null or k.id = $3)
             group by k.id, counted.day order by counted.day, k.id",
        )
        .bind(account_id)
        .bind(day_number(since))
        .bind(key.as_ref().map(KeyId::as_str))
        .fetch_all(&self.store.pool);
        let rows: Vec<UsageCountsRow> = self.store.with_timeout(query).await?;
        Ok(rows.into_iter().filter_map(UsageCountsRow::into_usage_row).collect())
    }
}

impl UsageCountsRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_usage_row(self) -> Option<UsageRow> {
        let refused =
            [self.burst, self.paused, self.inactive, self.quota_exhausted, self.wrong_secret, self.restricted];
        Some(UsageRow {
            key: KeyId::parse(&self.key_id)?,
            day: UtcDay(self.day.unsigned_abs()),
            admitted: self.admitted.unsigned_abs(),
            refused: refused.map(i64::unsigned_abs),
        })
    }
}
