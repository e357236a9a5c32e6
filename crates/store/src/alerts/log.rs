//! The delivery log of a channel.

use sqlx::FromRow;
use uuid::Uuid;

use crate::access::AlertChannels;
use crate::alerts::channels::{make_due, require_channel};
use crate::alerts::kind::AlertKind;
use crate::error::StoreError;

/// The delivery of an alert to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertDelivery {
    /// The id in the outbox.
    pub id: i64,
    /// The same for all channels, attempts and redeliveries.
    pub message_id: Uuid,
    /// The kind of alert.
    pub kind: AlertKind,
    /// The key's id. Empty for a test.
    pub key_id: String,
    /// The key's name when it happened.
    pub key_name: String,
    /// When it happened, as Unix time in seconds.
    pub created_s: i64,
    /// Number of attempts.
    pub attempts: i32,
    /// The outcome of the last attempt, such as `HTTP 503`.
    pub outcome: Option<String>,
    /// Whether it is delivered or tried again.
    pub state: AlertDeliveryState,
}

/// Whether an alert is delivered or tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertDeliveryState {
    /// Delivered, at this Unix time in seconds.
    Delivered(i64),
    /// The next attempt is made at this Unix time in seconds, or when the alerts of the key before it are sent.
    Pending(i64),
    /// Every attempt of a day failed.
    Failed,
}

#[derive(FromRow)]
struct AlertDeliveryRow {
    id: i64,
    message_id: Uuid,
    kind: String,
    key_id: String,
    key_name: String,
    created_s: i64,
    attempts: i32,
    outcome: Option<String>,
    delivered_s: Option<i64>,
    next_attempt_s: Option<i64>,
}

impl AlertChannels<'_> {
    /// The newest deliveries of a channel.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn deliveries(self, account_id: i64, id: i64, count_max: i64) -> Result<Vec<AlertDelivery>, StoreError> {
        let rows = sqlx::query_as(
            "select id, message_id, kind, key_id, details ->> 'name' as key_name, tries as attempts, outcome,
                 floor(extract(epoch from created_at))::bigint as created_s,
                 floor(extract(epoch from mailed_at))::bigint as delivered_s,
                 floor(extract(epoch from case when failed_at is null then try_at end))::bigint as next_attempt_s
             from notices
             where channel_id = (select id from alert_channels where id = $2 and account_id = $1) and channel_id > 0
             order by id desc limit $3",
        )
        .bind(account_id)
        .bind(id)
        .bind(count_max)
        .fetch_all(&self.store.pool);
        let rows: Vec<AlertDeliveryRow> = self.store.with_timeout(rows).await?;
        Ok(rows.into_iter().filter_map(AlertDeliveryRow::into_delivery).collect())
    }

    /// Sends an alert again, with the same id, after those that are pending. Does nothing if it is pending already.
    ///
    /// # Errors
    /// If the channel of the account has no such delivery.
    pub async fn redeliver(self, account_id: i64, channel_id: i64, id: i64) -> Result<(), StoreError> {
        let queued = async {
            let mut transaction = self.store.pool.begin().await?;
            // The lock serializes concurrent calls.
            let found = sqlx::query(
                "select 1 from notices n join alert_channels c on c.id = n.channel_id
                 where n.id = $3 and c.id = $2 and c.account_id = $1 for update of c",
            )
            .bind(account_id)
            .bind(channel_id)
            .bind(id)
            .execute(&mut *transaction)
            .await?;
            require_channel(found.rows_affected())?;
            sqlx::query(
                "insert into notices (account_id, kind, key_id, channel_id, message_id, details, created_at, expires_at)
                 select n.account_id, n.kind, n.key_id, n.channel_id, n.message_id, n.details, n.created_at, now() + interval '1 day'
                 from notices n where n.id = $1 and not exists (
                     select from notices pending
                     where pending.channel_id = n.channel_id and pending.key_id = n.key_id and pending.message_id = n.message_id
                         and pending.mailed_at is null and pending.failed_at is null)",
            )
            .bind(id)
            .execute(&mut *transaction)
            .await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(queued).await
    }

    /// Queues a test alert for a channel, after tests that failed, which are tried again at the same time.
    ///
    /// # Errors
    /// If the account has no such channel.
    pub async fn queue_test(self, account_id: i64, id: i64) -> Result<(), StoreError> {
        let queued = async {
            let mut transaction = self.store.pool.begin().await?;
            make_due(&mut transaction, id, Some("")).await?;
            let inserted = sqlx::query(
            "insert into notices (account_id, kind, key_id, channel_id, message_id, details, expires_at)
             select account_id, 'alert_test', '', id, gen_random_uuid(),
                 jsonb_build_object('name', '', 'day', (now() at time zone 'UTC')::date, 'used', 0, 'daily_limit', 0, 'burst_limit', 0),
                 now() + interval '1 day'
             from alert_channels where id = $2 and account_id = $1",
        )
        .bind(account_id)
        .bind(id)
        .execute(&mut *transaction)
        .await?;
            require_channel(inserted.rows_affected())?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(queued).await
    }
}

impl AlertDeliveryRow {
    /// `None` for the kind of a newer version.
    fn into_delivery(self) -> Option<AlertDelivery> {
        let state = match (self.delivered_s, self.next_attempt_s) {
            (Some(delivered_s), _) => AlertDeliveryState::Delivered(delivered_s),
            (None, Some(next_attempt_s)) => AlertDeliveryState::Pending(next_attempt_s),
            (None, None) => AlertDeliveryState::Failed,
        };
        Some(AlertDelivery {
            id: self.id,
            message_id: self.message_id,
            kind: AlertKind::find_notice(&self.kind)?,
            key_id: self.key_id,
            key_name: self.key_name,
            created_s: self.created_s,
            attempts: self.attempts,
            outcome: self.outcome,
            state,
        })
    }
}
