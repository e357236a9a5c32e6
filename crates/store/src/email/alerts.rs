//! Alerts: emails about a key, at most one of each kind per key per day. Pauses and usage merges create them.

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
                 select q.key_id, q.day, q.kind, k.name, a.email, ",
            key_daily_limit!(),
            " as daily_limit
                 from alerts q
                 join keys k on k.id = q.key_id
                 join accounts a on a.id = k.account_id
                 join account_limits l on l.account_id = a.id
                 where q.mailed_at is null and q.try_at <= now() and q.tries < $1
                     and case q.kind when 'near' then a.alert_near when 'spent' then a.alert_spent else a.alert_paused end
                 order by q.try_at limit 1
                 for update of q skip locked
             ), claimed as (
                 update alerts q set tries = q.tries + 1, try_at = now() + interval '1 minute' * (1 << q.tries)
                 from due where (q.key_id, q.day, q.kind) = (due.key_id, due.day, due.kind)
                 returning due.*
             )
             select c.key_id, c.name, c.kind, c.day::text as day, c.email, coalesce(u.admitted, 0) as used, c.daily_limit
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
    pub async fn mark_sent(self, key: KeyId, day: &str, kind: AlertKind) -> Result<(), StoreError> {
        let sent =
            sqlx::query("update alerts set mailed_at = now() where key_id = $1 and day = $2::text::date and kind = $3")
                .bind(key.as_str())
                .bind(day)
                .bind(kind.name())
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
            email: self.email,
            used: self.used,
            limit: self.daily_limit,
        })
    }
}
