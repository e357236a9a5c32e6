//! Usage as pages show it.

use domain::{Day, KeyId};
use sqlx::FromRow;

use crate::error::StoreError;
use crate::pool::Store;
use crate::usage::day_of;

/// What became of a key's requests on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The key.
    pub key: KeyId,
    /// The day.
    pub day: Day,
    /// Answered.
    pub admitted: u64,
    /// Refused: burst, paused, inactive, day, wrong secret.
    pub refused: [u64; 5],
}

#[derive(FromRow)]
struct Counted {
    key_id: String,
    day: i32,
    admitted: i64,
    burst: i64,
    paused: i64,
    inactive: i64,
    spent: i64,
    wrong_secret: i64,
}

impl Store {
    /// The usage of an account's keys, or of one of them, since a day: a row for each key and day that has any.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn usage(&self, account_id: i64, key: Option<KeyId>, since: Day) -> Result<Vec<UsageRow>, StoreError> {
        let counted = sqlx::query_as(
            "select k.id as key_id, counted.day - date '1970-01-01' as day,
                    coalesce(max(counted.count) filter (where counted.what = 'admitted'), 0) as admitted,
                    coalesce(max(counted.count) filter (where counted.what = 'burst'), 0) as burst,
                    coalesce(max(counted.count) filter (where counted.what = 'paused'), 0) as paused,
                    coalesce(max(counted.count) filter (where counted.what = 'inactive'), 0) as inactive,
                    coalesce(max(counted.count) filter (where counted.what = 'day'), 0) as spent,
                    coalesce(max(counted.count) filter (where counted.what = 'wrong_secret'), 0) as wrong_secret
             from keys k
             cross join lateral (
                 select u.day, 'admitted' as what, u.admitted as count from usage u
                 where u.key_id = k.id and u.day >= date '1970-01-01' + $2::int
                 union all
                 select r.day, r.reason, r.count from refusals r
                 where r.key_id = k.id and r.day >= date '1970-01-01' + $2::int
             ) counted
             where k.account_id = $1 and ($3::text is null or k.id = $3)
             group by k.id, counted.day order by counted.day, k.id",
        )
        .bind(account_id)
        .bind(day_of(since))
        .bind(key.as_ref().map(KeyId::as_str))
        .fetch_all(&self.pool);
        let rows: Vec<Counted> = self.within(counted).await?;
        Ok(rows.into_iter().filter_map(Counted::row).collect())
    }
}

impl Counted {
    /// `None` only for a row that the schema's checks do not let in.
    fn row(self) -> Option<UsageRow> {
        let refused = [self.burst, self.paused, self.inactive, self.spent, self.wrong_secret];
        Some(UsageRow {
            key: KeyId::parse(&self.key_id)?,
            day: Day(self.day.unsigned_abs()),
            admitted: self.admitted.unsigned_abs(),
            refused: refused.map(i64::unsigned_abs),
        })
    }
}
