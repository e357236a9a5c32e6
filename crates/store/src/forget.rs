//! Forgetting what has served its time.

use std::time::Duration;

use crate::error::StoreError;
use crate::pool::Store;

/// Rows of each kind that one call forgets: the rest is left to the next call, so that none outlasts its time.
const ROWS_MAX: i64 = 10_000;

impl Store {
    /// Deletes sessions that were idle too long, expired tickets and ceremonies, and alerts older than three days.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn forget_expired(&self, session_idle_max: Duration) -> Result<(), StoreError> {
        let sessions = sqlx::query(
            "delete from sessions where id in (
                 select id from sessions where seen_at <= now() - make_interval(secs => $2) limit $1
                 for update skip locked)",
        );
        self.within(sessions.bind(ROWS_MAX).bind(session_idle_max.as_secs_f64()).execute(&self.pool)).await?;
        // Whether it has expired or not, a ticket counts against further wishes for an hour.
        let tickets = "delete from tickets where id in (
                           select id from tickets where expires_at <= now() and created_at <= now() - interval '1 hour'
                           limit $1 for update skip locked)";
        let ceremonies = "delete from ceremonies where digest in (
                              select digest from ceremonies where expires_at <= now() limit $1 for update skip locked)";
        let alerts = "delete from alerts where (key_id, day, kind) in (
                          select key_id, day, kind from alerts where day < (now() at time zone 'UTC')::date - 3
                          limit $1 for update skip locked)";
        for statement in [tickets, ceremonies, alerts] {
            self.within(sqlx::query(statement).bind(ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }
}
