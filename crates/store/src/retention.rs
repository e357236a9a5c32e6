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
    /// Days to keep usage and refusals per hour.
    pub hourly_usage_days: i32,
    /// Days to keep the history of keys, the evidence of pauses, and security and audit events (at least 30).
    pub history_days: i32,
}

impl Store {
    /// Deletes sessions that have reached a limit, expired email tokens, WebAuthn states, sign-ins, notices and links of
    /// operators, sessions of operators older than 31 days, the log of alerts, and the rows that keep alerts from being repeated.
    /// Corrects the times of attempts that a wrong clock left behind.
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
        // Alerts that were not sent, because no node could, are attempted once more by the next that can within three days.
        let emails = "delete from notices where id in (
                      select id from notices where coalesce(channel_id, 0) = 0 and expires_at <= now()
                          and (channel_id is null or mailed_at is not null or failed_at is not null
                               or expires_at <= now() - interval '2 days')
                      limit $1 for update skip locked)";
        // A channel shows what was sent to it in the last 31 days.
        let old_deliveries = "delete from notices where id in (
                              select id from notices where channel_id > 0 and expires_at <= now() - interval '30 days'
                              limit $1 for update skip locked)";
        // Of channels and accounts that were deleted. Lanes that have changed meanwhile have a newer version.
        let empty_lanes = "delete from alert_lanes l using (
                               select channel_id, key_id, version from alert_lanes lane
                               where try_at <= now() and not exists (
                                   select from notices n where n.mailed_at is null and n.failed_at is null
                                       and n.channel_id = lane.channel_id and n.key_id = lane.key_id)
                               limit $1 for update skip locked) emptied
                           where l.channel_id = emptied.channel_id and l.key_id = emptied.key_id and l.version = emptied.version";
        // Attempts are at most about an hour apart. A later time is from a clock that was ahead.
        let late_lanes = "update alert_lanes set try_at = now(), version = version + 1 where (channel_id, key_id) in (
                              select channel_id, key_id from alert_lanes where try_at > now() + interval '2 hours'
                              limit $1 for update skip locked)";
        let late_emails = "update notices set try_at = now() where id in (
                               select id from notices
                               where channel_id is null and mailed_at is null and try_at > now() + interval '2 hours'
                               limit $1 for update skip locked)";
        let alerts = "delete from alerts where (key_id, day, kind) in (
                          select key_id, day, kind from alerts where day < (now() at time zone 'UTC')::date - 3
                          limit $1 for update skip locked)";
        let operator_links = "delete from operator_links where digest in (
                             select digest from operator_links where expires_at <= now() limit $1 for update skip locked)";
        // The longest that a session of an operator can last.
        let operator_sessions = "delete from operator_sessions where id in (
                                select id from operator_sessions where created_at <= now() - interval '31 days'
                                limit $1 for update skip locked)";
        for statement in [
            email_tokens,
            webauthn_states,
            sign_ins,
            emails,
            old_deliveries,
            empty_lanes,
            late_lanes,
            late_emails,
            alerts,
            operator_links,
            operator_sessions,
        ] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }

    /// Deletes usage, history and pauses that exceed their retention, and all but the newest 1,000 deliveries of channels, and
    /// creates the partitions of the next months.
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
        let hours = "delete from usage_hours where (key_id, day, outcome) in (
                         select key_id, day, outcome from usage_hours
                         where day < (now() at time zone 'UTC')::date - $2
                             or day > (now() at time zone 'UTC')::date + 1 limit $1)";
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
            (hours, policy.hourly_usage_days),
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
        // Of some channels per call, because it reads up to 1,000 deliveries of each. A channel with many more could not be deleted.
        let surplus_deliveries = "delete from notices where id in (
                                  select surplus.id
                                  from (select id from alert_channels order by random() limit 200) c
                                  cross join lateral (
                                      select n.id from notices n where n.channel_id = c.id and n.channel_id > 0
                                          and (n.mailed_at is not null or n.failed_at is not null)
                                      order by n.id desc offset 1000) surplus
                                  limit $1)";
        for statement in [future_usage, future_refusals, future_demo, surplus_deliveries] {
            self.with_timeout(sqlx::query(statement).bind(DELETE_ROWS_MAX).execute(&self.pool)).await?;
        }
        Ok(())
    }
}
