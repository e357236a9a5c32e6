//! Admitted and refused requests per key per day.

pub(crate) mod rows;

use std::collections::{BTreeMap, HashSet};

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use sqlx::PgConnection;

use crate::access::Usage;
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;

/// The absolute count of a key on a day. It can be merged twice or late without effect on the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyDailyUsage {
    /// The key.
    pub key: KeyId,
    /// The day and the count.
    pub usage: DailyUsage,
}

/// Why a request with a known key id was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    /// The key is deactivated.
    Inactive,
    /// The key is paused.
    Paused,
    /// The request paused the key.
    Burst,
    /// The daily quota is exhausted.
    QuotaExhausted,
    /// The secret is wrong.
    WrongSecret,
    /// The restrictions of the key refuse the request.
    Restricted,
}

impl RefusalReason {
    /// The name in the database and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Paused => "paused",
            Self::Burst => "burst",
            Self::QuotaExhausted => "day",
            Self::WrongSecret => "wrong_secret",
            Self::Restricted => "restricted",
        }
    }
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
    ($statement:literal) => {
        concat!(
            "with usage_lock as materialized (",
            usage_lock!(),
            "), incoming as materialized (
                 select key_id, date '1970-01-01' + day as day, admitted
                 from usage_lock, unnest((select $1::text[]), (select $2::int[]), (select $3::bigint[])) input (key_id, day, admitted)
                 where date '1970-01-01' + day <= (now() at time zone 'UTC')::date + 1
                 order by key_id collate \"C\", day
             ), merged as (",
            $statement,
            "), near_limit as materialized (
                 select key_id, day, admitted from merged
                 where day between (now() at time zone 'UTC')::date - 1 and (now() at time zone 'UTC')::date
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
                 join accounts a on a.id = k.account_id
                 join account_limits l on l.account_id = a.id
                 cross join lateral (select ",
            key_daily_limit!(),
            " as daily_limit) key_limit
                 cross join lateral (values
                     ('near', key_limit.daily_limit - key_limit.daily_limit / 5, a.alert_near),
                     ('spent', key_limit.daily_limit, a.alert_spent)
                 ) level (kind, count, wanted)
                 where level.wanted and near_limit.admitted >= level.count
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
const UPDATE_EXISTING_COUNTS: &str = merge_usage_sql!(
    "update usage set admitted = incoming.admitted from incoming
     where usage.key_id = incoming.key_id and usage.day = incoming.day and usage.admitted < incoming.admitted
     returning usage.key_id, usage.day, usage.admitted"
);

/// Inserts missing rows. Keys are locked, so that the concurrent deletion of one does not fail the statement.
const INSERT_MISSING_COUNTS: &str = merge_usage_sql!(
    "insert into usage (key_id, day, admitted)
     select incoming.key_id, incoming.day, incoming.admitted from incoming
     join keys on keys.id = incoming.key_id
     for key share of keys
     on conflict (key_id, day) do update set admitted = excluded.admitted
     where usage.admitted < excluded.admitted
     returning key_id, day, admitted"
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
            let added = sqlx::query_as(
                "with refused as materialized (
                     select refused.key_id, date '1970-01-01' + refused.day as day, refused.reason, refused.count
                     from unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) refused (key_id, day, reason, count)
                     join keys on keys.id = refused.key_id
                     where date '1970-01-01' + refused.day <= (now() at time zone 'UTC')::date + 1
                     order by refused.key_id collate \"C\", refused.day, refused.reason collate \"C\"
                     for key share of keys
                 ), added as (
                     insert into refusals (key_id, day, reason, count)
                     select key_id, day, reason, count from refused
                     on conflict (key_id, day, reason) do update set count = refusals.count + excluded.count
                 )
                 select day - date '1970-01-01', reason, sum(count)::bigint from refused group by day, reason",
            );
            let added = added.bind(keys).bind(days).bind(reasons).bind(counts);
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

pub(crate) fn day_number(day: UtcDay) -> i32 {
    i32::try_from(day.0).unwrap_or(i32::MAX)
}

fn saturating_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
