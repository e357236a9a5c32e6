//! Forgetting what has served its time.

use std::time::Duration;

use crate::error::StoreError;
use crate::pool::Store;

/// Rows of each kind that one call forgets: the rest is left to the next call, so that none outlasts its time.
const DELETE_ROWS_MAX: i64 = 10_000;

/// How long the past is kept.
#[derive(Clone, Copy, Debug)]
pub struct RetentionPolicy {
    /// Days of usage and refusals; 31 at least.
    pub usage_days: i32,
    /// Days of what happened to keys, and of the evidence of pauses.
    pub history_days: i32,
}

impl Store {
    /// Deletes sessions that were idle too long, expired tickets and ceremonies, and alerts older than three days.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn delete_expired(&self, session_idle_timeout: Duration) -> Result<(), StoreError> {
        let sessions = sqlx::query(
            "delete from sessions where id in (
                 select id from sessions where seen_at <= now() - make_interval(secs => $2) limit $1
                 for update skip locked)",
        );
        self.with_timeout(sessions.bind(DELETE_ROWS_MAX).bind(session_idle_timeout.as_secs_f64()).execute(&self.pool))
            .await?;
        // Whether it has expired or not, a ticket counts against further wishes for an hour.
        let email_tokens = "delete from tickets where id in (
                           select id from tickets where expires_at <= now() and created_at <= now() - interval '1 hour'
                           limit $1 for update skip locked)";
        let webauthn_states = "delete from ceremonies where digest in (
                              select digest from ceremonies where expires_at <= now() limit $1 for update skip locked)";
        let alerts = "delete from alerts where (key_id, day, kind) in (
                          select key_id, day, kind from alerts where day < (now() at time zone 'UTC')::date - 3
                          limit $1 for update skip locked)";
        for statement in [email_tokens, webauthn_states, alerts] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }

    /// Lets go of usage and of what happened to keys once it is older than so many days, and makes the months to come. The evidence of a pause that
    /// still holds stays.
    ///
    /// # Errors
    /// When PostgreSQL is away, or somebody holds a table that is to go; the next call tries again.
    pub async fn apply_retention(&self, policy: RetentionPolicy) -> Result<(), StoreError> {
        self.with_timeout(sqlx::query("select tend_months($1)").bind(policy.usage_days).execute(&self.pool)).await?;
        // Whole months only, as above: this finds what is left in the parts that are no months.
        let usage = "delete from usage where (key_id, day) in (
                         select key_id, day from usage
                         where day < date_trunc('month', now() at time zone 'UTC' - make_interval(days => $2))::date limit $1)";
        let refusals = "delete from refusals where (key_id, day, reason) in (
                            select key_id, day, reason from refusals
                            where day < date_trunc('month', now() at time zone 'UTC' - make_interval(days => $2))::date limit $1)";
        let demo = "delete from demo_usage where day in (
                        select day from demo_usage where day < (now() at time zone 'UTC')::date - $2 limit $1)";
        let history = "delete from history where id in (
                           select id from history where at < now() - make_interval(days => $2) order by id limit $1)";
        let pauses = "delete from pauses where (key_id, burst_window) in (
                          select p.key_id, p.burst_window from pauses p join keys k on k.id = p.key_id
                          where p.paused_at < now() - make_interval(days => $2)
                              and (k.paused_at is null or k.burst_window <> p.burst_window) limit $1)";
        for (statement, days) in [
            (usage, policy.usage_days),
            (refusals, policy.usage_days),
            (demo, policy.usage_days),
            (history, policy.history_days),
            (pauses, policy.history_days),
        ] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).bind(days).execute(&self.pool)).await?;
        }
        Ok(())
    }
}
