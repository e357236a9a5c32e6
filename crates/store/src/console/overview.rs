//! Counts for the first page of the console.

use sqlx::FromRow;

use crate::access::ConsoleQueries;
use crate::email::queue::ATTEMPTS_MAX;
use crate::error::StoreError;

/// Above this estimate, rows are not counted one by one.
const EXACT_COUNT_MAX: f32 = 10_000.0;
/// Maximum number of rows of each queue that are counted. A longer one needs the operator in any case.
const QUEUE_COUNT_MAX: i64 = 1_000;

/// A number of rows. Large ones are estimates of PostgreSQL, from when it last analyzed the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApproximateCount {
    /// The number.
    pub count: u64,
    /// Whether it was counted and not estimated.
    pub is_exact: bool,
}

/// How many accounts and keys there are, and what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleOverview {
    /// Accounts.
    pub accounts: ApproximateCount,
    /// Keys in any state.
    pub keys: ApproximateCount,
    /// Keys that are paused and not deactivated.
    pub paused_keys: ApproximateCount,
    /// Deactivated keys.
    pub deactivated_keys: ApproximateCount,
    /// Accounts that were created on the current UTC day.
    pub sign_ups_today: u64,
    /// Accounts that were created on the current UTC day or the six days before.
    pub sign_ups_7_days: u64,
    /// Open requests for higher limits.
    pub open_limit_requests: u64,
    /// Emails that are still to be sent; at most 1,000 of each queue are counted.
    pub queued_emails: u64,
    /// Emails that are not tried again; at most 1,000 of each queue are counted.
    pub failed_emails: u64,
    /// Changes of keys that are not applied to Redis yet; at most 1,000 are counted.
    pub outbox_rows: u64,
}

// A new or small table has no or an old estimate.
const SELECT_COUNTS: &str = "
    with estimates as (
        select relname, reltuples from pg_class
        where oid in ('accounts'::regclass, 'keys'::regclass, 'keys_paused'::regclass, 'keys_deactivated'::regclass)
    )
    select e.relname::text as name, e.reltuples <= $1 as is_exact,
           case when e.reltuples > $1 then round(e.reltuples)::bigint
               when e.relname = 'accounts' then (select count(*) from accounts)
               when e.relname = 'keys' then (select count(*) from keys)
               when e.relname = 'keys_paused' then
                   (select count(*) from keys where paused_at is not null and deactivated_at is null)
               else (select count(*) from keys where deactivated_at is not null)
           end as count
    from estimates e";

// Emails that failed are the first in the order of their attempts.
const SELECT_QUEUES: &str = "
    with emails as materialized (
        (select tries >= $1 as failed from tickets
         where mailed_at is null and expires_at > now() order by try_at limit $2)
        union all
        (select failed_at is not null from notices
         where mailed_at is null and coalesce(channel_id, 0) = 0 and expires_at > now() limit $2)
    )
    select (select count(*) from accounts where created_at >= date_trunc('day', now(), 'UTC')) as sign_ups_today,
           (select count(*) from accounts where created_at >= date_trunc('day', now(), 'UTC') - interval '6 days')
               as sign_ups_7_days,
           (select count(*) from limit_requests where state = 'open') as open_limit_requests,
           (select count(*) from emails where not failed) as queued_emails,
           (select count(*) from emails where failed) as failed_emails,
           (select count(*) from (select from outbox limit $2) waiting) as outbox_rows";

#[derive(FromRow)]
struct CountRow {
    name: String,
    is_exact: bool,
    count: i64,
}

#[derive(FromRow)]
struct QueuesRow {
    sign_ups_today: i64,
    sign_ups_7_days: i64,
    open_limit_requests: i64,
    queued_emails: i64,
    failed_emails: i64,
    outbox_rows: i64,
}

impl ConsoleQueries<'_> {
    /// How many accounts and keys there are, and what waits.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn overview(self) -> Result<ConsoleOverview, StoreError> {
        let counts = sqlx::query_as(SELECT_COUNTS).bind(EXACT_COUNT_MAX).fetch_all(&self.store.pool);
        let counts: Vec<CountRow> = self.store.with_timeout(counts).await?;
        let queues = sqlx::query_as(SELECT_QUEUES).bind(ATTEMPTS_MAX).bind(QUEUE_COUNT_MAX);
        let queues: QueuesRow = self.store.with_timeout(queues.fetch_one(&self.store.pool)).await?;
        let count_of = |name: &str| {
            let row = counts.iter().find(|row| row.name == name);
            ApproximateCount {
                count: row.map_or(0, |row| row.count.unsigned_abs()),
                is_exact: row.is_some_and(|row| row.is_exact),
            }
        };
        Ok(ConsoleOverview {
            accounts: count_of("accounts"),
            keys: count_of("keys"),
            paused_keys: count_of("keys_paused"),
            deactivated_keys: count_of("keys_deactivated"),
            sign_ups_today: queues.sign_ups_today.unsigned_abs(),
            sign_ups_7_days: queues.sign_ups_7_days.unsigned_abs(),
            open_limit_requests: queues.open_limit_requests.unsigned_abs(),
            queued_emails: queues.queued_emails.unsigned_abs(),
            failed_emails: queues.failed_emails.unsigned_abs(),
            outbox_rows: queues.outbox_rows.unsigned_abs(),
        })
    }
}
