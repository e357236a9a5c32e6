//! Admitted and refused requests per key per day and hour.

pub(crate) mod columns;
pub(crate) mod hours;
pub(crate) mod rows;

use std::collections::{BTreeMap, HashSet};

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use sqlx::PgConnection;

use crate::access::Usage;
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;
use crate::usage::columns::{RefusalReason, day_number};
use crate::usage::hours::{hour_columns, hour_starts, incoming_hour};

/// The absolute count of a key on a day. It can be merged twice or late without effect on the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyDailyUsage {
    /// The key.
    pub key: KeyId,
    /// The day and the count.
    pub usage: DailyUsage,
}

/// Refused requests since the last usage flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCount {
    /// The key.
    pub key: KeyId,
    /// The day.
    pub day: UtcDay,
    /// The reason.
    pub reason: RefusalReason,
    /// The number of requests.
    pub count: u64,
}

/// Maximum number of rows per statement. A statement for a million keys would exceed any timeout.
const MERGE_ROWS_MAX: usize = 5_000;
/// Number of rows that share the total of a day and reason.
const REFUSAL_TOTAL_SHARDS: i32 = 16;

/// Takes an exclusive lock on usage until the end of the transaction. A merge locks rows of many keys, and a deletion
/// locks rows of many days, so without the lock they could deadlock.
macro_rules! usage_lock {
    () => {
        "select pg_advisory_xact_lock(hashtextextended('ipseity: counts', 0))"
    };
}
pub(crate) use usage_lock;

/// Merges the rows of `incoming` with the given statement, which returns the changed rows. Counts of today or yesterday
/// that are near or at their key's limit create an alert. Counts below the lowest limit of all are skipped early.
///
/// The number of rows is hidden from the planner, which would otherwise scan whole tables instead of using the indexes.
macro_rules! merge_usage_sql {
    ($statement:expr) => {
        concat!(
            "with usage_lock as materialized (",
            usage_lock!(),
            "), clock as materialized (
                 select (now() at time zone 'UTC')::date as today, extract(hour from now() at time zone 'UTC')::int as hour
             ), incoming as materialized (
                 select key_id, date '1970-01-01' + day as day, admitted, ",
            incoming_hour!("date '1970-01-01' + day"),
            " from usage_lock, unnest((select $1::text[]), (select $2::int[]), (select $3::bigint[])) input (key_id, day, admitted)
                 where date '1970-01-01' + day <= (select today from clock) + 1
                 order by key_id collate \"C\", day
             ), merged as (",
            $statement,
            "), hours as (",
            hour_starts!("'admitted'", "merged"),
            "), near_limit as materialized (
                 select key_id, day, admitted from merged
                 where day between (select today from clock) - 1 and (select today from clock)
                     and admitted >= (select least(
                         (select min(daily_limit) from plans),
                         (select min(daily_limit) from accounts where daily_limit is not null),
                         (select min(least(daily_limit, own_daily_limit)) from keys
                          where least(daily_limit, own_daily_limit) is not null)) * 4 / 5)
             ), alerted as (
                 insert into alerts (key_id, day, kind)
                 select near_limit.key_id, near_limit.day, level.kind
                 from near_limit
                 join keys k on k.id = near_limit.key_id
                 join account_limits l on l.account_id = k.account_id
                 cross join lateral (select ",
            key_daily_limit!(),
            " as daily_limit) key_limit
                 cross join lateral (values
                     ('near', key_limit.daily_limit - key_limit.daily_limit / 5),
                     ('spent', key_limit.daily_limit)
                 ) level (kind, count)
                 where near_limit.admitted >= level.count
                 order by near_limit.key_id, near_limit.day, level.kind
                 on conflict do nothing
             )
             -- Null if all rows were merged.
             select case when count(*) < cardinality($1::text[]) then coalesce(array_agg(key_id), '{}') end,
                 case when count(*) < cardinality($1::text[]) then coalesce(array_agg(day - date '1970-01-01'), '{}') end,
                 (select cardinality($1::text[]) - count(*) from incoming)
             from merged"
        )
    };
}

/// Updates existing rows, which are nearly all, in place.
const UPDATE_EXISTING_COUNTS: &str = merge_usage_sql!(concat!(
    "update usage set admitted = incoming.admitted, ",
    hour_columns!("usage", "usage.admitted", "incoming"),
    " from incoming
     where usage.key_id = incoming.key_id and usage.day = incoming.day and usage.admitted < incoming.admitted
     returning usage.key_id, usage.day, usage.admitted, usage.hour, usage.hour_start, usage.starts_hour"
));

/// Inserts missing rows. Keys are locked, so that the concurrent deletion of one does not fail the statement.
const INSERT_MISSING_COUNTS: &str = merge_usage_sql!(concat!(
    "insert into usage (key_id, day, admitted, hour, hour_start, starts_hour)
     select incoming.key_id, incoming.day, incoming.admitted, incoming.hour, 0, true from incoming
     join keys on keys.id = incoming.key_id
     for key share of keys
     on conflict (key_id, day) do update set admitted = excluded.admitted, ",
    hour_columns!("usage", "usage.admitted", "excluded"),
    " where usage.admitted < excluded.admitted
     returning key_id, day, admitted, hour, hour_start, starts_hour"
));

/// Adds refusals, and returns those of existing keys per day and reason.
const ADD_REFUSALS: &str = concat!(
    "with clock as materialized (
         select (now() at time zone 'UTC')::date as today, extract(hour from now() at time zone 'UTC')::int as hour
     ), refused as materialized (
         select refused.key_id, date '1970-01-01' + refused.day as day, refused.reason, refused.count, ",
    incoming_hour!("date '1970-01-01' + refused.day"),
    " from unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) refused (key_id, day, reason, count)
         join keys on keys.id = refused.key_id
         where date '1970-01-01' + refused.day <= (select today from clock) + 1
         order by refused.key_id collate \"C\", refused.day, refused.reason collate \"C\"
         for key share of keys
     ), added as (
         insert into refusals (key_id, day, reason, count, hour, hour_start, starts_hour)
         select key_id, day, reason, count, hour, 0, true from refused
         on conflict (key_id, day, reason) do update set count = refusals.count + excluded.count, ",
    hour_columns!("refusals", "refusals.count", "excluded"),
    " returning key_id, day, reason, hour, hour_start, starts_hour
     ), hours as (",
    hour_starts!("reason", "added"),
    ")
     select day - date '1970-01-01', reason, sum(count)::bigint from refused group by day, reason"
);

impl Usage<'_> {
    /// Merges absolute counts. The higher count wins. Counts of today or yesterday that are near or at their key's
    /// limit create an alert. Counts of a day that is more than one ahead of PostgreSQL's come from a wrong clock and
    /// are ignored. Returns their number.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn merge_counts(self, counts: &[KeyDailyUsage]) -> Result<u64, StoreError> {
        let mut ignored_total = 0;
        for counts in counts.chunks(MERGE_ROWS_MAX) {
            let (updated, ignored_count) = self.execute_merge(UPDATE_EXISTING_COUNTS, counts.iter()).await?;
            ignored_total += ignored_count;
            if let Some(updated) = updated {
                let is_missing =
                    |row: &&KeyDailyUsage| !updated.contains(&(row.key.as_str().to_owned(), day_number(row.usage.day)));
                self.execute_merge(INSERT_MISSING_COUNTS, counts.iter().filter(is_missing)).await?;
            }
        }
        Ok(ignored_total)
    }

    /// Runs one merge statement. Returns the changed rows, or `None` if all were changed, and the number of ignored
    /// counts.
    async fn execute_merge(
        self,
        statement: &'static str,
        counts: impl Iterator<Item = &KeyDailyUsage>,
    ) -> Result<(Option<HashSet<(String, i32)>>, u64), StoreError> {
        let (mut keys, mut days, mut admitted) = (Vec::new(), Vec::new(), Vec::new());
        for row in counts {
            keys.push(row.key.as_str());
            days.push(day_number(row.usage.day));
            admitted.push(saturating_i64(row.usage.count));
        }
        let merged = sqlx::query_as(statement).bind(keys).bind(days).bind(admitted);
        let (keys, days, ignored_count): (Option<Vec<String>>, Option<Vec<i32>>, i64) =
            self.store.with_timeout(merged.fetch_one(&self.store.pool)).await?;
        let changed = keys.zip(days).map(|(keys, days)| keys.into_iter().zip(days).collect());
        Ok((changed, ignored_count.unsigned_abs()))
    }

    /// Adds refusals to their days, except days that are more than one ahead of PostgreSQL's. On failure, none is added.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn add_refusals(self, refusals: &[RefusalCount]) -> Result<(), StoreError> {
        let mut refusals = refusals.to_vec();
        refusals.sort_unstable_by_key(|row| (row.key, row.day, row.reason.name()));
        let mut transaction = self.store.with_timeout(self.store.pool.begin()).await?;
        let mut totals = BTreeMap::new();
        for refusals in refusals.chunks(MERGE_ROWS_MAX) {
            let keys: Vec<&str> = refusals.iter().map(|row| row.key.as_str()).collect();
            let days: Vec<i32> = refusals.iter().map(|row| day_number(row.day)).collect();
            let reasons: Vec<&str> = refusals.iter().map(|row| row.reason.name()).collect();
            let counts: Vec<i64> = refusals.iter().map(|row| saturating_i64(row.count)).collect();
            let added = sqlx::query_as(ADD_REFUSALS).bind(keys).bind(days).bind(reasons).bind(counts);
            let added: Vec<(i32, String, i64)> = self.store.with_timeout(added.fetch_all(&mut *transaction)).await?;
            for (day, reason, count) in added {
                *totals.entry((day, reason)).or_insert(0) += count;
            }
        }
        if !totals.is_empty() {
            self.store.with_timeout(add_to_totals(&mut transaction, &totals)).await?;
        }
        self.store.with_timeout(transaction.commit()).await
    }

    /// Merges the absolute count of the demo and adds its refusals, unless the day is more than one ahead of PostgreSQL's.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn merge_demo_count(self, usage: DailyUsage, refusal_count: u64) -> Result<(), StoreError> {
        let merged = sqlx::query(
            "insert into demo_usage (day, admitted, refused)
             select date '1970-01-01' + $1::int, $2, $3
             where date '1970-01-01' + $1::int <= (now() at time zone 'UTC')::date + 1
             on conflict (day) do update set admitted = greatest(demo_usage.admitted, excluded.admitted),
                                             refused = demo_usage.refused + excluded.refused",
        )
        .bind(day_number(usage.day))
        .bind(saturating_i64(usage.count))
        .bind(saturating_i64(refusal_count))
        .execute(&self.store.pool);
        self.store.with_timeout(merged).await?;
        Ok(())
    }

    /// The newest stored day of the demo that is at most one ahead of PostgreSQL's.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_demo_usage(self) -> Result<Option<DailyUsage>, StoreError> {
        let newest = sqlx::query_as(
            "select day - date '1970-01-01', admitted from demo_usage
             where day <= (now() at time zone 'UTC')::date + 1 order by demo_usage.day desc limit 1",
        );
        let row: Option<(i32, i64)> = self.store.with_timeout(newest.fetch_optional(&self.store.pool)).await?;
        Ok(row.map(|(day, count)| DailyUsage { day: UtcDay(day.unsigned_abs()), count: count.unsigned_abs() }))
    }
}

/// Adds refusals to the totals of all keys, as the last statement of a transaction: flushes of several nodes lock the same rows, and so
/// only for the time of a commit. The number of the connection's process spreads them over several rows.
async fn add_to_totals(
    connection: &mut PgConnection,
    totals: &BTreeMap<(i32, String), i64>,
) -> Result<(), sqlx::Error> {
    let days: Vec<i32> = totals.keys().map(|(day, _)| *day).collect();
    let reasons: Vec<&str> = totals.keys().map(|(_, reason)| reason.as_str()).collect();
    let counts: Vec<i64> = totals.values().copied().collect();
    sqlx::query(
        "insert into refusal_totals (day, reason, shard, count)
         select date '1970-01-01' + refused.day, refused.reason, pg_backend_pid() % $4, refused.count
         from unnest($1::int[], $2::text[], $3::bigint[]) refused (day, reason, count)
         order by refused.day, refused.reason collate \"C\"
         on conflict (day, reason, shard) do update set count = refusal_totals.count + excluded.count",
    )
    .bind(days)
    .bind(reasons)
    .bind(counts)
    .bind(REFUSAL_TOTAL_SHARDS)
    .execute(connection)
    .await?;
    Ok(())
}

fn saturating_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
