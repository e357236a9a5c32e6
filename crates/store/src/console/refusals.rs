//! Refused requests of all keys per day.

use sqlx::FromRow;

use crate::access::ConsoleQueries;
use crate::error::StoreError;

/// The refused requests of a day for one reason.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct DailyRefusals {
    /// The UTC day, such as `2026-11-15`.
    pub day: String,
    /// The name of a [`RefusalReason`](crate::RefusalReason).
    pub reason: String,
    /// The number of requests, also of keys that were deleted since.
    pub count: i64,
}

impl ConsoleQueries<'_> {
    /// The refused requests of the current UTC day and the days before, `days` in total, by day and reason, newest first. Those that
    /// nodes of older versions wrote are missing.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn refusals(self, days: u16) -> Result<Vec<DailyRefusals>, StoreError> {
        let summed = sqlx::query_as(
            "select day::text as day, reason, sum(count)::bigint as count from refusal_totals
             where day > (now() at time zone 'UTC')::date - $1
             group by refusal_totals.day, reason order by refusal_totals.day desc, reason",
        )
        .bind(i32::from(days))
        .fetch_all(&self.store.pool);
        self.store.with_timeout(summed).await
    }
}
