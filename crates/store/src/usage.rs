//! Usage: what was answered and refused, per key and day.

use domain::{Day, KeyId, Used};

use crate::error::StoreError;
use crate::pool::Store;

/// A day's count of a key, absolute: merging it twice or late does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledUp {
    /// The key.
    pub key: KeyId,
    /// The day and its count.
    pub used: Used,
}

/// Why a request with a known key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusedReason {
    /// The key is deactivated.
    Inactive,
    /// The key is paused.
    Paused,
    /// The request paused the key.
    Burst,
    /// The day's quota is spent.
    Day,
    /// The id is known, the secret is not its.
    WrongSecret,
}

impl RefusedReason {
    /// The reason's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Paused => "paused",
            Self::Burst => "burst",
            Self::Day => "day",
            Self::WrongSecret => "wrong_secret",
        }
    }
}

/// Requests refused since the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The key.
    pub key: KeyId,
    /// The day.
    pub day: Day,
    /// Why.
    pub reason: RefusedReason,
    /// How many.
    pub count: u64,
}

/// Rows of one statement: a million keys at once would outlast any timeout.
const ROWS_MAX: usize = 5_000;

impl Store {
    /// Merges absolute counts; the greater one stays. Counts that near or reach their key's limit, of today or yesterday, raise an alert.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn roll_up(&self, counts: &[RolledUp]) -> Result<(), StoreError> {
        for counts in counts.chunks(ROWS_MAX) {
            let keys: Vec<&str> = counts.iter().map(|row| row.key.as_str()).collect();
            let days: Vec<i32> = counts.iter().map(|row| day_of(row.used.day)).collect();
            let admitted: Vec<i64> = counts.iter().map(|row| count_of(row.used.count)).collect();
            // Sorted, so that two nodes that roll up the same keys never wait for each other in a circle; locked, so that a key that is
            // deleted meanwhile fails nobody else's count. Few counts are as high as the lowest limit: the rest cost no further look.
            let merged = sqlx::query(
                "with merged as (
                     insert into usage (key_id, day, admitted)
                     select rolled.key_id, date '1970-01-01' + rolled.day, rolled.admitted
                     from unnest($1::text[], $2::int[], $3::bigint[]) rolled (key_id, day, admitted)
                     join keys on keys.id = rolled.key_id
                     order by rolled.key_id collate \"C\", rolled.day
                     for key share of keys
                     on conflict (key_id, day) do update set admitted = excluded.admitted
                     where usage.admitted < excluded.admitted
                     returning key_id, day, admitted
                 ), high as materialized (
                     select key_id, day, admitted from merged
                     where day between (now() at time zone 'UTC')::date - 1 and (now() at time zone 'UTC')::date
                         and admitted >= (select min(daily_limit - daily_limit / 5) from plans)
                 )
                 insert into alerts (key_id, day, kind)
                 select high.key_id, high.day, level.kind
                 from high
                 join keys k on k.id = high.key_id
                 join accounts a on a.id = k.account_id
                 join plans p on p.name = a.plan
                 cross join lateral (values
                     ('near', p.daily_limit - p.daily_limit / 5, a.alert_near), ('spent', p.daily_limit, a.alert_spent)
                 ) level (kind, count, wanted)
                 where level.wanted and high.admitted >= level.count
                 order by high.key_id, high.day, level.kind
                 on conflict do nothing",
            );
            self.within(merged.bind(keys).bind(days).bind(admitted).execute(&self.pool)).await?;
        }
        Ok(())
    }

    /// Adds refusals to their days: all of them or, on failure, none.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn add_refusals(&self, refusals: &[Refused]) -> Result<(), StoreError> {
        let mut refusals = refusals.to_vec();
        refusals.sort_unstable_by_key(|row| (row.key, row.day, row.reason.name()));
        let mut transaction = self.within(self.pool.begin()).await?;
        for refusals in refusals.chunks(ROWS_MAX) {
            let keys: Vec<&str> = refusals.iter().map(|row| row.key.as_str()).collect();
            let days: Vec<i32> = refusals.iter().map(|row| day_of(row.day)).collect();
            let reasons: Vec<&str> = refusals.iter().map(|row| row.reason.name()).collect();
            let counts: Vec<i64> = refusals.iter().map(|row| count_of(row.count)).collect();
            let added = sqlx::query(
                "insert into refusals (key_id, day, reason, count)
                 select refused.key_id, date '1970-01-01' + refused.day, refused.reason, refused.count
                 from unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) refused (key_id, day, reason, count)
                 join keys on keys.id = refused.key_id
                 order by refused.key_id collate \"C\", refused.day, refused.reason collate \"C\"
                 for key share of keys
                 on conflict (key_id, day, reason) do update set count = refusals.count + excluded.count",
            );
            let added = added.bind(keys).bind(days).bind(reasons).bind(counts);
            self.within(added.execute(&mut *transaction)).await?;
        }
        self.within(transaction.commit()).await
    }

    /// Merges the demo's absolute count and adds its refusals.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn roll_up_demo(&self, used: Used, refused: u64) -> Result<(), StoreError> {
        let merged = sqlx::query(
            "insert into demo_usage (day, admitted, refused) values (date '1970-01-01' + $1::int, $2, $3)
             on conflict (day) do update set admitted = greatest(demo_usage.admitted, excluded.admitted),
                                             refused = demo_usage.refused + excluded.refused",
        )
        .bind(day_of(used.day))
        .bind(count_of(used.count))
        .bind(count_of(refused))
        .execute(&self.pool);
        self.within(merged).await?;
        Ok(())
    }

    /// The newest day of the demo that was rolled up.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn find_demo_used(&self) -> Result<Option<Used>, StoreError> {
        let newest = sqlx::query_as(
            "select day - date '1970-01-01', admitted from demo_usage order by demo_usage.day desc limit 1",
        );
        let row: Option<(i32, i64)> = self.within(newest.fetch_optional(&self.pool)).await?;
        Ok(row.map(|(day, count)| Used { day: Day(day.unsigned_abs()), count: count.unsigned_abs() }))
    }
}

pub(crate) fn day_of(day: Day) -> i32 {
    i32::try_from(day.0).unwrap_or(i32::MAX)
}

fn count_of(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
