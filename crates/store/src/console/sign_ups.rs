//! Sign-ups and invitations.

use sqlx::FromRow;

use crate::access::ConsoleQueries;
use crate::console::search::{FoundAccount, found_account_columns};
use crate::error::StoreError;

/// The accounts of a day that still exist.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct DailySignUps {
    /// The UTC day, such as `2026-11-15`.
    pub day: String,
    /// Accounts that were created on it.
    pub count: i64,
}

impl ConsoleQueries<'_> {
    /// Sign-ups of the current UTC day and the days before, `days` in total, newest first. Deleted accounts are not counted.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn sign_ups(self, days: u16) -> Result<Vec<DailySignUps>, StoreError> {
        let counted = sqlx::query_as(
            "select (d.start at time zone 'UTC')::date::text as day,
                    (select count(*) from accounts
                     where created_at >= d.start and created_at < d.start + interval '24 hours') as count
             from (select date_trunc('day', now(), 'UTC') - make_interval(hours => 24 * number) as start
                   from generate_series(0, $1 - 1) number) d
             order by d.start desc",
        )
        .bind(i32::from(days))
        .fetch_all(&self.store.pool);
        self.store.with_timeout(counted).await
    }

    /// The newest accounts, newest first. With `before_id`, those before this account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn newest_accounts(
        self,
        before_id: Option<i64>,
        count_max: i64,
    ) -> Result<Vec<FoundAccount>, StoreError> {
        let newest = sqlx::query_as(concat!(
            "select ",
            found_account_columns!(),
            " from accounts a where a.id < $1 order by a.id desc limit $2"
        ))
        .bind(before_id.unwrap_or(i64::MAX))
        .bind(count_max)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(newest).await
    }

    /// The number of invitations that are neither used nor expired.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn open_invitations(self) -> Result<u64, StoreError> {
        let counted = sqlx::query_scalar("select count(*) from tickets where kind = 'invite' and expires_at > now()");
        let count: i64 = self.store.with_timeout(counted.fetch_one(&self.store.pool)).await?;
        Ok(count.unsigned_abs())
    }
}
