//! The outbox of alerts. Those of a channel and key are a lane: the oldest is sent, or has failed for a day, before the next.

use std::time::Duration;

use ipseity_domain::KeyId;

use crate::access::AlertQueue;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::alerts::channels::origin;
use crate::alerts::claim::{CHANNEL_OFF, QueuedAlert};
use crate::error::StoreError;
use crate::usage::usage_lock;

/// The delay before the second attempt. It doubles, up to an hour.
const RETRY_DELAY_MIN_S: i32 = 1;
const RETRY_DELAY_MAX_S: i32 = 3600;
/// How long before its expiry a key sends an alert.
pub const EXPIRY_ALERT_DAYS: i32 = 3;
/// So that no call exceeds the timeout.
const EXPIRY_ALERTS_PER_CALL: i64 = 500;

// A lane that has changed since the statement started is looked at again, because it can have an alert that the statement does not see.
const REFRESH_LANE: &str = "with lane as materialized (
         select l.channel_id, l.key_id, l.version from alert_lanes l
         where (l.channel_id, l.key_id) = (select n.channel_id, n.key_id from notices n where n.id = $1)
         for update
     ), state as materialized (
         select lane.channel_id, lane.key_id, lane.version = seen.version as is_current, head.id, head.tries, head.try_at
         from lane join alert_lanes seen on seen.channel_id = lane.channel_id and seen.key_id = lane.key_id
         left join lateral (
             select n.id, n.tries, n.try_at from notices n
             where n.mailed_at is null and n.failed_at is null and n.channel_id = lane.channel_id and n.key_id = lane.key_id
             order by n.id limit 1) head on true
     ), emptied as (
         delete from alert_lanes l using state
         where state.is_current and state.id is null and l.channel_id = state.channel_id and l.key_id = state.key_id
     )
     update alert_lanes l
     set version = l.version + 1, try_at = case when state.is_current then state.try_at else now() end,
         is_retry = coalesce(state.tries > 0, false)
     from state
     where not (state.is_current and state.id is null) and l.channel_id = state.channel_id and l.key_id = state.key_id";

impl AlertQueue<'_> {
    /// Marks an alert as sent.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_sent(self, id: i64, outcome: &str) -> Result<(), StoreError> {
        // The address of an email is not needed any more.
        let sent =
            sqlx::query("update notices set mailed_at = now(), email = '', outcome = left($2, 200) where id = $1")
                .bind(id)
                .bind(outcome)
                .execute(&self.store.pool);
        self.store.with_timeout(sent).await?;
        self.refresh_lane(id).await
    }

    /// Records a failed attempt. The next one follows after a delay that doubles up to an hour, and not before `delay_min`. After a
    /// day there is none. Returns whether there is another attempt. Does nothing if another node has made an attempt since.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_attempt_failed(
        self,
        alert: &QueuedAlert,
        outcome: &str,
        delay_min: Duration,
    ) -> Result<bool, StoreError> {
        let failed = sqlx::query_scalar(
            "update notices n set outcome = left($2, 200), try_at = retry.at,
                 failed_at = case when retry.at >= n.expires_at then now() end
             from (select id, now() + make_interval(secs => least(greatest($3, $4 * power(2, least(tries - 1, 20))), $5)) as at
                   from notices where id = $1) retry
             where n.id = retry.id and n.mailed_at is null and n.failed_at is null and n.tries = $6
             returning n.failed_at is null",
        )
        .bind(alert.id)
        .bind(outcome)
        .bind(delay_min.as_secs_f64())
        .bind(f64::from(RETRY_DELAY_MIN_S))
        .bind(f64::from(RETRY_DELAY_MAX_S))
        .bind(alert.attempt)
        .fetch_optional(&self.store.pool);
        let is_repeated = self.store.with_timeout(failed).await?.unwrap_or(false);
        self.refresh_lane(alert.id).await?;
        Ok(is_repeated)
    }

    /// Records that the receiver of an alert is gone. Turns its channel off, unless it got another URL meanwhile, and sends the owner a
    /// security email. Its pending alerts are not sent.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_gone(self, alert: &QueuedAlert, url: &str, outcome: &str) -> Result<(), StoreError> {
        let turned_off = async {
            let mut transaction = self.store.pool.begin().await?;
            let channel: Option<(i64, bool)> = sqlx::query_as(
                "update alert_channels set off_since = coalesce(off_since, now()) where id = $1 and url = $2
                 returning account_id, off_since = now()",
            )
            .bind(alert.channel_id)
            .bind(url)
            .fetch_optional(&mut *transaction)
            .await?;
            if let Some((account_id, true)) = channel {
                // Those that are being claimed follow with their own attempts.
                sqlx::query(
                    "update notices set failed_at = now(), outcome = $2 where id in (
                         select id from notices
                         where channel_id = $1 and mailed_at is null and failed_at is null and id <> $3
                         for update skip locked)",
                )
                .bind(alert.channel_id)
                .bind(CHANNEL_OFF)
                .bind(alert.id)
                .execute(&mut *transaction)
                .await?;
                let (event, origin) = (SecurityEvent::AlertChannelOff, origin(url));
                record_event(&mut transaction, account_id, event, Some(&origin)).await?;
            }
            transaction.commit().await?;
            Ok(channel.is_some())
        };
        if self.store.with_timeout::<_, StoreError>(turned_off).await? {
            self.give_up(alert.id, outcome).await
        } else {
            self.mark_attempt_failed(alert, outcome, Duration::ZERO).await.map(drop)
        }
    }

    /// Queues an alert for each of these keys, which are near their burst limits. At most one per key per hour, on any number of nodes.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn queue_near_burst_limit(self, keys: &[KeyId]) -> Result<(), StoreError> {
        // Nodes take turns with usage flushes and deletions, which lock the same keys in another order. The number of the hour makes an alert
        // unique if two nodes read a key at the same time. It is never a burst epoch: a key would reach it after a year of resumptions, one
        // per minute.
        let queued = sqlx::query(concat!(
            "with usage_lock as materialized (",
            usage_lock!(),
            "), near as materialized (
                 select k.id from usage_lock, keys k
                 where k.id = any ($1) and not exists (
                     select from alerts a
                     where a.key_id = k.id and a.kind = 'near_burst_limit' and a.created_at > now() - interval '1 hour'
                         and a.day >= (now() at time zone 'UTC')::date - 1)
                 order by k.id collate \"C\"
                 for key share of k
             )
             insert into alerts (key_id, day, kind, burst_window)
             select id, (now() at time zone 'UTC')::date, 'near_burst_limit', floor(extract(epoch from now()) / 3600)
             from near
             on conflict do nothing",
        ))
        .bind(keys.iter().map(KeyId::as_str).collect::<Vec<_>>())
        .execute(&self.store.pool);
        self.store.with_timeout(queued).await?;
        Ok(())
    }

    /// Records that an alert cannot be delivered, so that later alerts of its key do not wait for it.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn give_up(self, id: i64, outcome: &str) -> Result<(), StoreError> {
        let failed = sqlx::query(
            "update notices set failed_at = now(), outcome = left($2, 200)
             where id = $1 and mailed_at is null and failed_at is null",
        )
        .bind(id)
        .bind(outcome)
        .execute(&self.store.pool);
        self.store.with_timeout(failed).await?;
        self.refresh_lane(id).await
    }

    /// Sets when the lane of an alert is looked at: when its oldest alert is due. Not in the statement that changes the alert, because
    /// claims lock lanes first. Without this call, it is looked at when the claim ends.
    pub(crate) async fn refresh_lane(self, id: i64) -> Result<(), StoreError> {
        let refreshed = sqlx::query(REFRESH_LANE).bind(id).execute(&self.store.pool);
        self.store.with_timeout(refreshed).await?;
        Ok(())
    }

    /// Queues alerts for keys that expire within [`EXPIRY_ALERT_DAYS`], once per key and date. Returns whether there may be more.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn queue_expiring(self) -> Result<bool, StoreError> {
        let queued = sqlx::query(
            "insert into alerts (key_id, day, kind)
             select k.id, (k.expires_at at time zone 'UTC')::date, 'expiring' from keys k
             where k.expires_at > now() and k.expires_at <= now() + make_interval(days => $1) and k.deactivated_at is null
                 and not exists (select from alerts a where a.key_id = k.id and a.kind = 'expiring'
                                     and a.day = (k.expires_at at time zone 'UTC')::date)
             order by k.expires_at limit $2
             on conflict do nothing",
        )
        .bind(EXPIRY_ALERT_DAYS)
        .bind(EXPIRY_ALERTS_PER_CALL)
        .execute(&self.store.pool);
        let queued = self.store.with_timeout(queued).await?.rows_affected();
        Ok(i64::try_from(queued) == Ok(EXPIRY_ALERTS_PER_CALL))
    }
}
