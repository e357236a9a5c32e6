//! Alerts: emails about a key. Each pause creates one, of which a key sends at most one per minute. Usage merges create at
//! most one of each other kind per key per day.

use ipseity_domain::KeyId;
use sqlx::FromRow;

use crate::access::AlertQueue;
use crate::email::queue::ATTEMPTS_MAX;
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;

/// The kind of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertKind {
    /// The key has used four fifths of its daily quota.
    NearQuota,
    /// The key has used its daily quota.
    QuotaExhausted,
    /// The key was paused.
    Paused,
}

impl AlertKind {
    const ALL: [Self; 3] = [Self::NearQuota, Self::QuotaExhausted, Self::Paused];

    /// The kind's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NearQuota => "near",
            Self::QuotaExhausted => "spent",
            Self::Paused => "paused",
        }
    }
}

/// An alert to be sent now.
#[derive(Clone)]
pub struct QueuedAlert {
    /// The key.
    pub key: KeyId,
    /// The key's name.
    pub key_name: String,
    /// The kind of alert.
    pub kind: AlertKind,
    /// The day, such as `2026-11-15`.
    pub day: String,
    /// The burst epoch that a pause ended; 0 for other kinds.
    pub burst_epoch: i64,
    /// The recipient.
    pub email: String,
    /// Admitted requests of that day, as of the last usage flush.
    pub used: i64,
    /// The daily limit.
    pub limit: i64,
}

#[derive(FromRow)]
struct ClaimedAlertRow {
    key_id: String,
    name: String,
    kind: String,
    day: String,
    burst_window: i64,
    email: String,
    used: i64,
    daily_limit: i64,
}

impl AlertQueue<'_> {
    /// Claims the oldest alert that is due and still enabled.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_next(self) -> Result<Option<QueuedAlert>, StoreError> {
        let claimed = sqlx::query_as(concat!(
            "with due as (
                 select q.key_id, q.day, q.kind, q.burst_window, k.name, a.email, ",
            key_daily_limit!(),
            " as daily_limit
                 from alerts q
                 join keys k on k.id = q.key_id
                 join accounts a on a.id = k.account_id
                 join account_limits l on l.account_id = a.id
                 where q.mailed_at is null and q.try_at <= now() and q.tries < $1
                     and case q.kind when 'near' then a.alert_near when 'spent' then a.alert_spent else a.alert_paused end
                     -- A pause waits for a minute after another of the key was sent, or was claimed to be sent.
                     and (q.kind <> 'paused' or not exists (
                         select from alerts o
                         where o.key_id = q.key_id and o.kind = 'paused' and o.burst_window <> q.burst_window
                             and case when o.mailed_at is not null then o.mailed_at
                                 when o.tries > 0 then o.try_at - interval '1 minute' * (1 << (o.tries - 1)) end
                                 > now() - interval '1 minute'))
                 order by q.try_at limit 1
                 for update of q skip locked
             ), claimed as (
                 update alerts q set tries = q.tries + 1, try_at = now() + interval '1 minute' * (1 << q.tries)
                 from due where (q.key_id, q.day, q.kind, q.burst_window) = (due.key_id, due.day, due.kind, due.burst_window)
                 returning due.*
             )
             select c.key_id, c.name, c.kind, c.day::text as day, c.burst_window, c.email, coalesce(u.admitted, 0) as used, c.daily_limit
             from claimed c left join usage u on u.key_id = c.key_id and u.day = c.day",
        ))
        .bind(ATTEMPTS_MAX)
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedAlertRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.and_then(ClaimedAlertRow::into_queued_alert))
    }

    /// Marks an alert as sent.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_sent(self, alert: &QueuedAlert) -> Result<(), StoreError> {
        let sent = sqlx::query(
            "update alerts set mailed_at = now()
             where key_id = $1 and day = $2::text::date and kind = $3 and burst_window = $4",
        )
        .bind(alert.key.as_str())
        .bind(&alert.day)
        .bind(alert.kind.name())
        .bind(alert.burst_epoch)
        .execute(&self.store.pool);
        self.store.with_timeout(sent).await?;
        Ok(())
    }
}

impl ClaimedAlertRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_queued_alert(self) -> Option<QueuedAlert> {
        Some(QueuedAlert {
            key: KeyId::parse(&self.key_id)?,
            key_name: self.name,
            kind: AlertKind::ALL.into_iter().find(|kind| kind.name() == self.kind)?,
            day: self.day,
            burst_epoch: self.burst_window,
            email: self.email,
            used: self.used,
            limit: self.daily_limit,
        })
    }
}
