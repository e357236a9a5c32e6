//! Usage, as pages show it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ipseity_domain::{KeyId, UtcDay};
use sqlx::FromRow;

use crate::access::Usage;
use crate::error::StoreError;
use crate::usage::columns::{day_number, reason_index};

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

/// The days of a key, in arrays: many rows cost more than their numbers.
#[derive(FromRow)]
struct KeyDays {
    key_id: String,
    days: Vec<i32>,
    admitted: Vec<i64>,
    refused_days: Vec<i32>,
    reasons: Vec<String>,
    refused: Vec<i64>,
}

impl Usage<'_> {
    /// The usage of an account's keys, or of one of them, on these days: a row for each key and day with requests.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(
        self,
        account_id: i64,
        key: Option<KeyId>,
        days: RangeInclusive<UtcDay>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let query = sqlx::query_as(
            "select k.id as key_id, coalesce(u.days, '{}') as days, coalesce(u.counts, '{}') as admitted,
                    coalesce(r.days, '{}') as refused_days, coalesce(r.reasons, '{}') as reasons, coalesce(r.counts, '{}') as refused
             from keys k
             cross join lateral (
                 select array_agg(day - date '1970-01-01') as days, array_agg(admitted) as counts from usage
                 where key_id = k.id and day between date '1970-01-01' + $2::int and date '1970-01-01' + $3::int
             ) u
             cross join lateral (
                 select array_agg(day - date '1970-01-01') as days, array_agg(reason) as reasons, array_agg(count) as counts from refusals
                 where key_id = k.id and day between date '1970-01-01' + $2::int and date '1970-01-01' + $3::int
             ) r
             where k.account_id = $1 and ($4::text is null or k.id = $4)",
        )
        .bind(account_id)
        .bind(day_number(*days.start()))
        .bind(day_number(*days.end()))
        .bind(key.as_ref().map(KeyId::as_str))
        .fetch_all(&self.store.pool);
        let keys: Vec<KeyDays> = self.store.with_timeout(query).await?;
        let mut rows: Vec<UsageRow> = keys.iter().flat_map(KeyDays::rows).collect();
        rows.sort_unstable_by_key(|row| (row.day, row.key));
        Ok(rows)
    }
}

impl KeyDays {
    /// Each day with requests. Empty only for a key that violates the checks of the schema.
    fn rows(&self) -> Vec<UsageRow> {
        let Some(key) = KeyId::parse(&self.key_id) else { return Vec::new() };
        let mut rows = BTreeMap::new();
        let empty_row = |day| UsageRow { key, day, admitted: 0, refused: [0; 6] };
        for (day, count) in self.days.iter().zip(&self.admitted) {
            let day = UtcDay(day.unsigned_abs());
            rows.entry(day).or_insert_with(|| empty_row(day)).admitted = count.unsigned_abs();
        }
        for ((day, reason), count) in self.refused_days.iter().zip(&self.reasons).zip(&self.refused) {
            if let Some(index) = reason_index(reason) {
                let day = UtcDay(day.unsigned_abs());
                rows.entry(day).or_insert_with(|| empty_row(day)).refused[index] = count.unsigned_abs();
            }
        }
        rows.into_values().collect()
    }
}
