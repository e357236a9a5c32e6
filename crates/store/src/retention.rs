//! Deletion of expired data.

use crate::accounts::sessions::SessionLimits;
use crate::error::StoreError;
use crate::pool::Store;

/// Maximum number of rows of each kind per call, so that no call exceeds the timeout. The next call continues.
const DELETE_ROWS_MAX: i64 = 10_000;

/// How long data is kept.
#[derive(Clone, Copy, Debug)]
pub struct RetentionPolicy {
    /// Days to keep usage and refusals, at least 31.
    pub usage_days: i32,
    /// Days to keep the history of keys, the evidence of pauses, and security and audit events (at least 30).
    pub history_days: i32,
}

impl Store {
    /// Deletes sessions that have reached a limit, expired email tokens, WebAuthn states, sign-ins, notices and links of
    /// operators, alerts older than three days, and sessions of operators older than 31 days.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn delete_expired(&self, limits: SessionLimits) -> Result<(), StoreError> {
        let sessions = sqlx::query(
            "delete from sessions where id in (
                 select id from sessions where seen_at <= now() - make_interval(secs => $2)
                     or created_at <= now() - make_interval(secs => $3) limit $1
                 for update skip locked)",
        )
        .bind(DELETE_ROWS_MAX)
        .bind(limits.idle_timeout.as_secs_f64())
        .bind(limits.lifetime_max.as_secs_f64());
        self.with_timeout(sessions.execute(&self.pool)).await?;
        // A token counts toward the hourly limit of requests even after it has expired.
        let email_tokens = "delete from tickets where id in (
                           select id from tickets where expires_at <= now() and created_at <= now() - interval '1 hour'
                           limit $1 for update skip locked)";
        let webauthn_states = "delete from ceremonies where digest in (
                              select digest from ceremonies where expires_at <= now() limit $1 for update skip locked)";
        let sign_ins = "delete from pending_sign_ins where digest in (
                       select digest from pending_sign_ins where expires_at <= now() limit $1 for update skip locked)";
        let notices = "delete from notices where id in (
                      select id from notices where expires_at <= now() limit $1 for update skip locked)";
        let alerts = "delete from alerts where (key_id, day, kind) in (
                          select key_id, day, kind from alerts where day < (now() at time zone 'UTC')::date - 3
                          limit $1 for update skip locked)";
        let operator_links = "delete from operator_links where digest in (
                             select digest from operator_links where expires_at <= now() limit $1 for update skip locked)";
        // The longest that a session of an operator can last.
        let operator_sessions = "delete from operator_sessions where id in (
                                select id from operator_sessions where created_at <= now() - interval '31 days'
                                limit $1 for update skip locked)";
        for statement in [email_tokens, webauthn_states, sign_ins, notices, alerts, operator_links, operator_sessions] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }

    /// Deletes usage, history and pauses that exceed their retention, and creates the partitions of the next months.
    /// The evidence of a pause that is still in effect stays. Usage of days that are more than one ahead, which a wrong
    /// clock left behind, is deleted too.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable, or another transaction locks a partition that is to be dropped. The next call
    /// tries again.
    pub async fn apply_retention(&self, policy: RetentionPolicy) -> Result<(), StoreError> {
        self.with_timeout(sqlx::query("select tend_months($1)").bind(policy.usage_days).execute(&self.pool)).await?;
        // Deletes whole months, like the call above, from the partitions that do not hold a single month.
        let usage = "delete from usage where (key_id, day) in (
                         select key_id, day from usage
                         where day < date_trunc('month', now() at time zone 'UTC' - make_interval(days => $2))::date limit $1)";
        let refusals = "delete from refusals where (key_id, day, reason) in (
                            select key_id, day, reason from refusals
                            where day < date_trunc('month', now() at time zone 'UTC' - make_interval(days => $2))::date limit $1)";
        let demo = "delete from demo_usage where day in (
                        select day from demo_usage where day < (now() at time zone 'UTC')::date - $2 limit $1)";
        let refusal_totals = "delete from refusal_totals where (day, reason, shard) in (
                                  select day, reason, shard from refusal_totals
                                  where day < (now() at time zone 'UTC')::date - $2
                                      or day > (now() at time zone 'UTC')::date + 1 limit $1)";
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
            (refusal_totals, policy.usage_days),
            (history, policy.history_days),
            (pauses, policy.history_days),
        ] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).bind(days).execute(&self.pool)).await?;
        }
        for function in ["select delete_security_events($1, $2)", "select delete_audit_events($1, $2)"] {
            let events = sqlx::query(function).bind(policy.history_days).bind(DELETE_ROWS_MAX);
            self.with_timeout(events.execute(&self.pool)).await?;
        }
        let future_usage = "delete from usage where (key_id, day) in (
                                select key_id, day from usage where day > (now() at time zone 'UTC')::date + 1 limit $1)";
        let future_refusals = "delete from refusals where (key_id, day, reason) in (
                                   select key_id, day, reason from refusals
                                   where day > (now() at time zone 'UTC')::date + 1 limit $1)";
        let future_demo = "delete from demo_usage where day in (
                               select day from demo_usage where day > (now() at time zone 'UTC')::date + 1 limit $1)";
        for statement in [future_usage, future_refusals, future_demo] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }
}
