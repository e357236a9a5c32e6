//! Reads key records.

use ipseity_domain::{
    DailyUsage, KeyChange, KeyDigest, KeyFlags, KeyId, KeyRecord, PreviousDigest, Scope, UtcDay, is_mutant,
};
use sqlx::{FromRow, PgConnection, PgExecutor};

use crate::access::Keys;
use crate::error::{StoreError, StoreRefusal};
use crate::keys::audit::Actor;
use crate::keys::restrictions_row::{RestrictionsRow, restriction_columns};

/// The daily limit of `keys k` with `account_limits l`: the operator's for the key or else for its account, or the lower one of its
/// owner.
macro_rules! key_daily_limit {
    () => {
        "least(coalesce(k.daily_limit, l.daily_limit), k.own_daily_limit)"
    };
}
pub(crate) use key_daily_limit;

/// Uses only primary keys and one index, because requests wait for it.
const SELECT_KEY_RECORD: &str = concat!(
    "
    select ",
    restriction_columns!(),
    ", k.id, k.digest, k.retired_digest, floor(extract(epoch from k.retired_until))::bigint as retired_until_s,
           k.scope, ",
    key_daily_limit!(),
    " as daily_limit, coalesce(k.burst_limit, l.burst_limit) as burst_limit,
           k.deactivated_at is not null as deactivated, k.paused_at is not null as paused,
           k.generation, k.burst_window, u.days, u.counts
    from keys k
    join account_limits l on l.account_id = k.account_id
    left join lateral (
        -- A clock that was ahead may have left rows of future days.
        select array_agg(newest.day - date '1970-01-01' order by newest.day desc) as days,
               array_agg(newest.admitted order by newest.day desc) as counts
        from (
            select day, admitted from usage
            where key_id = k.id and day <= (now() at time zone 'UTC')::date + 1
            order by day desc limit 2
        ) newest
    ) u on true
    where k.id = $1 and ($2::bigint is null or k.account_id = $2)"
);

#[derive(FromRow)]
struct KeyRecordRow {
    id: String,
    digest: Vec<u8>,
    retired_digest: Option<Vec<u8>>,
    retired_until_s: Option<i64>,
    scope: String,
    daily_limit: i64,
    burst_limit: i32,
    deactivated: bool,
    paused: bool,
    generation: i64,
    burst_window: i64,
    #[sqlx(flatten)]
    restrictions: RestrictionsRow,
    days: Option<Vec<i32>>,
    counts: Option<Vec<i64>>,
}

impl KeyRecordRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_key_record(self) -> Option<KeyRecord> {
        let previous = match (self.retired_digest, self.retired_until_s) {
            (Some(digest), Some(until)) => {
                Some(PreviousDigest { digest: parse_digest(&digest)?, expires_at_s: until.unsigned_abs() })
            }
            (None, _) | (_, None) => None,
        };
        let mut days = self.days.unwrap_or_default().into_iter().zip(self.counts.unwrap_or_default());
        let mut next_day = || {
            let (day, count) = days.next()?;
            Some(DailyUsage { day: UtcDay(day.unsigned_abs()), count: count.unsigned_abs() })
        };
        let (usage, previous_usage) = (next_day(), next_day());
        Some(KeyRecord {
            id: KeyId::parse(&self.id)?,
            digest: parse_digest(&self.digest)?,
            previous,
            scope: Scope::parse(&self.scope)?,
            daily_limit: self.daily_limit.unsigned_abs(),
            burst_limit: usize::try_from(self.burst_limit).ok()?,
            restrictions: self.restrictions.into_restrictions()?,
            flags: KeyFlags {
                deactivated: self.deactivated && !is_mutant("accepts-revoked-keys"),
                paused: self.paused,
            },
            generation: self.generation.unsigned_abs(),
            burst_epoch: self.burst_window.unsigned_abs(),
            usage,
            previous_usage,
        })
    }
}

fn parse_digest(bytes: &[u8]) -> Option<KeyDigest> {
    bytes.try_into().ok().map(KeyDigest::new)
}

pub(crate) async fn find_record(executor: impl PgExecutor<'_>, id: KeyId) -> Result<Option<KeyRecord>, sqlx::Error> {
    find_record_of_account(executor, None, id).await
}

/// The record of a key, if it belongs to the account. Without an account, of any key.
pub(crate) async fn find_record_of_account(
    executor: impl PgExecutor<'_>,
    account_id: Option<i64>,
    id: KeyId,
) -> Result<Option<KeyRecord>, sqlx::Error> {
    let row: Option<KeyRecordRow> =
        sqlx::query_as(SELECT_KEY_RECORD).bind(id.as_str()).bind(account_id).fetch_optional(executor).await?;
    Ok(row.and_then(KeyRecordRow::into_key_record))
}

/// A key after a change.
pub(crate) async fn load_updated_key(
    connection: &mut PgConnection,
    actor: Actor,
    id: KeyId,
) -> Result<KeyChange, StoreError> {
    let record = find_record_of_account(connection, actor.owner_account_id(), id).await?;
    record.map(KeyChange::Updated).ok_or(StoreRefusal::UnknownKey.into())
}

impl Keys<'_> {
    /// The current record of a key. `None` if it does not exist.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_record(self, id: KeyId) -> Result<Option<KeyRecord>, StoreError> {
        self.store.with_timeout(find_record(&self.store.pool, id)).await
    }
}
