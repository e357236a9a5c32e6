//! Usage: what was answered and refused, per key and day.

use std::collections::HashSet;

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

/// Waits for one's turn at the counts, which lasts to the end of the transaction. Who rolls up locks counts of many keys, and who deletes
/// keys locks counts of many days: one at a time, so that no two ever wait for each other in a circle.
macro_rules! turn {
    () => {
        "select pg_advisory_xact_lock(hashtextextended('ipseity: counts', 0))"
    };
}
pub(crate) use turn;

/// Merges counts by a statement on `rolled` that returns what it changed. Those that near or reach their key's limit, of today or yesterday,
/// raise an alert; few are as high as the lowest limit, and the rest cost no further look.
///
/// How many rows there are is hidden from the planner: it would read whole tables to find thousands of them, where each is found by its index at
/// once.
macro_rules! merging {
    ($statement:literal) => {
        concat!(
            "with turn as materialized (",
            turn!(),
            "), rolled as materialized (
                 select key_id, date '1970-01-01' + day as day, admitted
                 from turn, unnest((select $1::text[]), (select $2::int[]), (select $3::bigint[])) told (key_id, day, admitted)
                 order by key_id collate \"C\", day
             ), merged as (",
            $statement,
            "), high as materialized (
                 select key_id, day, admitted from merged
                 where day between (now() at time zone 'UTC')::date - 1 and (now() at time zone 'UTC')::date
                     and admitted >= (select min(daily_limit - daily_limit / 5) from plans)
             ), alerted as (
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
                 on conflict do nothing
             )
             -- Which they are is told only where some are left.
             select case when count(*) < cardinality($1::text[]) then coalesce(array_agg(key_id), '{}') end,
                 case when count(*) < cardinality($1::text[]) then coalesce(array_agg(day - date '1970-01-01'), '{}') end
             from merged"
        )
    };
}

/// Raises the counts that are there: nearly all of them, and each where it stands.
const RAISE: &str = merging!(
    "update usage set admitted = rolled.admitted from rolled
     where usage.key_id = rolled.key_id and usage.day = rolled.day and usage.admitted < rolled.admitted
     returning usage.key_id, usage.day, usage.admitted"
);

/// Writes the counts that are not. Keys are locked, so that one that is deleted meanwhile fails nobody else's.
const BEGIN: &str = merging!(
    "insert into usage (key_id, day, admitted)
     select rolled.key_id, rolled.day, rolled.admitted from rolled
     join keys on keys.id = rolled.key_id
     for key share of keys
     on conflict (key_id, day) do update set admitted = excluded.admitted
     where usage.admitted < excluded.admitted
     returning key_id, day, admitted"
);

impl Store {
    /// Merges absolute counts; the greater one stays. Counts that near or reach their key's limit, of today or yesterday, raise an alert.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn roll_up(&self, counts: &[RolledUp]) -> Result<(), StoreError> {
        for counts in counts.chunks(ROWS_MAX) {
            if let Some(raised) = self.merge(RAISE, counts.iter()).await? {
                let is_left = |row: &&RolledUp| !raised.contains(&(row.key.as_str().to_owned(), day_of(row.used.day)));
                self.merge(BEGIN, counts.iter().filter(is_left)).await?;
            }
        }
        Ok(())
    }

    /// Merges counts in one way; tells which of them it changed, unless it changed all.
    async fn merge(
        &self,
        statement: &'static str,
        counts: impl Iterator<Item = &RolledUp>,
    ) -> Result<Option<HashSet<(String, i32)>>, StoreError> {
        let (mut keys, mut days, mut admitted) = (Vec::new(), Vec::new(), Vec::new());
        for row in counts {
            keys.push(row.key.as_str());
            days.push(day_of(row.used.day));
            admitted.push(count_of(row.used.count));
        }
        let merged = sqlx::query_as(statement).bind(keys).bind(days).bind(admitted);
        let (keys, days): (Option<Vec<String>>, Option<Vec<i32>>) = self.within(merged.fetch_one(&self.pool)).await?;
        Ok(keys.zip(days).map(|(keys, days)| keys.into_iter().zip(days).collect()))
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
