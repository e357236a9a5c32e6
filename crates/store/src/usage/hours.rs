//! Requests per hour.
//!
//! Counts of a day only rise. So the count at the start of each hour is enough to know the requests of every hour: the
//! difference to the next hour that started, or to the count of the day. A row of `usage` or `refusals` notices the first
//! increase in an hour, and only then a row of `usage_hours` is written.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ipseity_domain::{KeyId, UtcDay};
use sqlx::FromRow;

use crate::access::Usage;
use crate::error::StoreError;
use crate::usage::columns::{day_number, reason_index};
use crate::usage::rows::UsageRow;

/// The hour that a count of `$day` belongs to, as the column `hour`: the current one, for today. Late counts belong to the
/// last hour of their day, and early ones to the first. Needs the row `clock`.
macro_rules! incoming_hour {
    ($day:literal) => {
        concat!(
            "case when ",
            $day,
            " < (select today from clock) then 23 when ",
            $day,
            " > (select today from clock) then 0 else (select hour from clock) end as hour"
        )
    };
}
pub(crate) use incoming_hour;

/// The columns that an increase of `$count` in `$table` sets. `$new` is the row with the increase. A transaction that waited
/// may be of an earlier hour than the row. Its increase belongs to the hour of the row.
macro_rules! hour_columns {
    ($table:literal, $count:literal, $new:literal) => {
        concat!(
            "hour = greatest(",
            $table,
            ".hour, ",
            $new,
            ".hour),
             hour_start = case when ",
            $table,
            ".hour >= ",
            $new,
            ".hour then ",
            $table,
            ".hour_start else ",
            $count,
            " end,
             starts_hour = (",
            $table,
            ".hour >= ",
            $new,
            ".hour) is not true"
        )
    };
}
pub(crate) use hour_columns;

/// Writes the hours that the increases `$changed` started.
macro_rules! hour_starts {
    ($outcome:literal, $changed:literal) => {
        concat!(
            "insert into usage_hours (key_id, day, outcome, starts)
             select key_id, day, ",
            $outcome,
            ", array_fill(hour_start, array[1], array[hour::int]) from ",
            $changed,
            " where starts_hour
             on conflict (key_id, day, outcome) do update
             set starts[array_lower(excluded.starts, 1)] = excluded.starts[array_lower(excluded.starts, 1)]"
        )
    };
}
pub(crate) use hour_starts;

/// A key's requests with one outcome in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourRow {
    /// The key.
    pub key: KeyId,
    /// The day.
    pub day: UtcDay,
    /// The hour, from 0 to 23.
    pub hour: u8,
    /// The position of the reason in [`UsageRow::refused`](crate::UsageRow::refused). `None` for admitted requests.
    pub refusal: Option<usize>,
    /// The number of requests, at least 1.
    pub count: u64,
}

/// The hours of one key, day and outcome.
#[derive(FromRow)]
struct HourStarts {
    key_id: String,
    day: i32,
    outcome: String,
    first_hour: i32,
    starts: Vec<Option<i64>>,
}

impl Usage<'_> {
    /// The requests per hour of an account's keys, or of one of them: a row for each key, hour and outcome with requests.
    /// Requests that a node of a version without hours counted first on a day are in no hour.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list_hours(
        self,
        account_id: i64,
        key: Option<KeyId>,
        days: RangeInclusive<UtcDay>,
    ) -> Result<Vec<HourRow>, StoreError> {
        let query = sqlx::query_as(
            "select h.key_id, h.day - date '1970-01-01' as day, h.outcome,
                    array_lower(h.starts, 1) as first_hour, h.starts[:] as starts
             from keys k join usage_hours h on h.key_id = k.id
             where k.account_id = $1 and ($4::text is null or k.id = $4)
                 and h.day between date '1970-01-01' + $2::int and date '1970-01-01' + $3::int
             order by h.day, h.key_id, h.outcome",
        )
        .bind(account_id)
        .bind(day_number(*days.start()))
        .bind(day_number(*days.end()))
        .bind(key.as_ref().map(KeyId::as_str))
        .fetch_all(&self.store.pool);
        let rows: Vec<HourStarts> = self.store.with_timeout(query).await?;
        // After the hours: a count may rise meanwhile, and must not be below the start of its last hour. Not joined in the query,
        // because its generic plan would read all refusals of a key for each of their rows.
        let totals: BTreeMap<_, _> =
            self.list(account_id, key, days).await?.into_iter().map(|row| ((row.key, row.day), row)).collect();
        Ok(rows.iter().flat_map(|row| row.hours(&totals)).collect())
    }
}

impl HourStarts {
    /// Each hour with requests. Empty for an unknown outcome, and without a count of the day.
    fn hours(&self, totals: &BTreeMap<(KeyId, UtcDay), UsageRow>) -> Vec<HourRow> {
        let day = UtcDay(self.day.unsigned_abs());
        let refusal = match self.outcome.as_str() {
            "admitted" => None,
            reason => {
                let Some(index) = reason_index(reason) else { return Vec::new() };
                Some(index)
            }
        };
        let Some(counts) = KeyId::parse(&self.key_id).and_then(|key| totals.get(&(key, day))) else {
            return Vec::new();
        };
        let total = refusal.map_or(counts.admitted, |reason| counts.refused[reason]);
        let started: Vec<(i32, u64)> = (self.first_hour..)
            .zip(&self.starts)
            .filter_map(|(hour, start)| Some((hour, (*start)?.unsigned_abs())))
            .collect();
        let ends = started.iter().skip(1).map(|(_, start)| *start).chain([total]);
        let to_row = |(&(hour, start), end): (&(i32, u64), u64)| {
            let count = end.saturating_sub(start);
            (count > 0).then_some(HourRow { key: counts.key, day, hour: u8::try_from(hour).ok()?, refusal, count })
        };
        started.iter().zip(ends).filter_map(to_row).collect()
    }
}
