//! Where alerts go next to email: webhooks and Slack.

use sqlx::{FromRow, PgConnection};

use crate::access::AlertChannels;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::alerts::kind::AlertKind;
use crate::error::{StoreError, StoreRefusal};

/// How long the previous secret of a channel signs too.
pub const PREVIOUS_SECRET_HOURS: i32 = 24;

/// The kind of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertChannelKind {
    /// JSON with a signature.
    Webhook,
    /// A text, as Slack and compatible services expect it.
    Slack,
}

impl AlertChannelKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Slack];

    /// The kind's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A webhook or a Slack channel of an account.
#[derive(Clone)]
pub struct AlertChannel {
    /// The channel's id.
    pub id: i64,
    /// The kind of channel.
    pub kind: AlertChannelKind,
    /// Where requests are sent.
    pub url: String,
    /// The alerts that it receives.
    pub alerts: Vec<AlertKind>,
    /// Signs webhooks.
    pub secret: [u8; 32],
    /// Until when the previous secret signs too, as Unix time in seconds.
    pub previous_until_s: Option<i64>,
    /// Since when every attempt has failed, as Unix time in seconds.
    pub failing_since_s: Option<i64>,
    /// Since when the channel is off, because its receiver is gone, as Unix time in seconds.
    pub off_since_s: Option<i64>,
    /// Alerts that are not delivered yet.
    pub pending: i64,
}

#[derive(FromRow)]
struct AlertChannelRow {
    id: i64,
    kind: String,
    url: String,
    alerts: Vec<String>,
    secret: Vec<u8>,
    previous_until_s: Option<i64>,
    failing_since_s: Option<i64>,
    off_since_s: Option<i64>,
    pending: i64,
}

impl AlertChannels<'_> {
    /// The channels of an account, or the one with this id.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64, id: Option<i64>) -> Result<Vec<AlertChannel>, StoreError> {
        let rows = sqlx::query_as(
            "select c.id, c.kind, c.url, c.alerts, c.secret, pending.count as pending,
                 floor(extract(epoch from case when c.previous_until > now() then c.previous_until end))::bigint
                     as previous_until_s,
                 floor(extract(epoch from pending.failing_since))::bigint as failing_since_s,
                 floor(extract(epoch from c.off_since))::bigint as off_since_s
             from alert_channels c
             cross join lateral (
                 -- An attempt that failed has an outcome, and the alert is still pending.
                 select count(*) as count, min(n.created_at) filter (where n.outcome is not null) as failing_since
                 from notices n
                 where n.channel_id = c.id and n.mailed_at is null and n.failed_at is null
             ) pending
             where c.account_id = $1 and ($2::bigint is null or c.id = $2)
             order by c.id",
        )
        .bind(account_id)
        .bind(id)
        .fetch_all(&self.store.pool);
        let rows: Vec<AlertChannelRow> = self.store.with_timeout(rows).await?;
        Ok(rows.into_iter().filter_map(AlertChannelRow::into_channel).collect())
    }

    /// Adds a channel. Returns its id.
    ///
    /// # Errors
    /// If the account has as many channels as it may have.
    pub async fn create(
        self,
        account_id: i64,
        kind: AlertChannelKind,
        url: &str,
        alerts: &[AlertKind],
        secret: &[u8; 32],
        channels_max: u32,
    ) -> Result<i64, StoreError> {
        let created = async {
            let mut transaction = self.store.pool.begin().await?;
            // The lock serializes concurrent calls, which count the channels.
            crate::accounts::lock_account(&mut transaction, account_id).await?;
            let id: Option<i64> = sqlx::query_scalar(
                "insert into alert_channels (account_id, kind, url, alerts, secret)
                 select id, $2, $3, $4, $5 from accounts
                 where id = $1 and (select count(*) from alert_channels where account_id = $1) < $6
                 returning id",
            )
            .bind(account_id)
            .bind(kind.name())
            .bind(url)
            .bind(names(alerts))
            .bind(secret.as_slice())
            .bind(i64::from(channels_max))
            .fetch_optional(&mut *transaction)
            .await?;
            let id = id.ok_or(StoreRefusal::ChannelLimitReached)?;
            record_event(&mut transaction, account_id, SecurityEvent::AlertChannelChanged, Some(&origin(url))).await?;
            transaction.commit().await?;
            Ok(id)
        };
        self.store.with_timeout::<_, StoreError>(created).await
    }

    /// Changes the URL of a channel or the alerts that it receives; `None` stays as it is. Pending alerts go to the new URL,
    /// without a delay. A new URL turns the channel on.
    ///
    /// # Errors
    /// If the account has no such channel.
    pub async fn update(
        self,
        account_id: i64,
        id: i64,
        url: Option<&str>,
        alerts: Option<&[AlertKind]>,
    ) -> Result<(), StoreError> {
        let updated = async {
            let mut transaction = self.store.pool.begin().await?;
            let previous: Option<String> = sqlx::query_scalar(
                "update alert_channels c
                 set url = coalesce($3, previous.url), alerts = coalesce($4, c.alerts),
                     off_since = case when previous.url = coalesce($3, previous.url) then c.off_since end
                 from (select id, url from alert_channels where account_id = $1 and id = $2 for update) previous
                 where c.id = previous.id returning previous.url",
            )
            .bind(account_id)
            .bind(id)
            .bind(url)
            .bind(alerts.map(names))
            .fetch_optional(&mut *transaction)
            .await?;
            let previous = previous.ok_or(StoreRefusal::UnknownChannel)?;
            if let Some(url) = url.filter(|url| *url != previous) {
                let (event, origin) = (SecurityEvent::AlertChannelChanged, origin(url));
                record_event(&mut transaction, account_id, event, Some(&origin)).await?;
                make_due(&mut transaction, id, None).await?;
            }
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(updated).await
    }

    /// Replaces the secret of a channel. The previous one signs too for [`PREVIOUS_SECRET_HOURS`].
    ///
    /// # Errors
    /// If the account has no such channel.
    pub async fn rotate_secret(self, account_id: i64, id: i64, secret: &[u8; 32]) -> Result<(), StoreError> {
        let rotated = sqlx::query(
            "update alert_channels
             set secret = $3, previous_secret = secret, previous_until = now() + make_interval(hours => $4)
             where account_id = $1 and id = $2",
        )
        .bind(account_id)
        .bind(id)
        .bind(secret.as_slice())
        .bind(PREVIOUS_SECRET_HOURS)
        .execute(&self.store.pool);
        require_channel(self.store.with_timeout(rotated).await?.rows_affected())
    }

    /// Turns a channel on again whose receiver was gone.
    ///
    /// # Errors
    /// If the account has no such channel.
    pub async fn turn_on(self, account_id: i64, id: i64) -> Result<(), StoreError> {
        let turned_on = async {
            let mut transaction = self.store.pool.begin().await?;
            let channel = sqlx::query("update alert_channels set off_since = null where account_id = $1 and id = $2")
                .bind(account_id)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            require_channel(channel.rows_affected())?;
            make_due(&mut transaction, id, None).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(turned_on).await
    }

    /// Deletes a channel with its pending alerts and its log.
    ///
    /// # Errors
    /// If the account has no such channel.
    pub async fn delete(self, account_id: i64, id: i64) -> Result<(), StoreError> {
        let deleted = sqlx::query("delete from alert_channels where account_id = $1 and id = $2")
            .bind(account_id)
            .bind(id)
            .execute(&self.store.pool);
        require_channel(self.store.with_timeout(deleted).await?.rows_affected())
    }
}

/// Ends the delays after failed attempts of a channel, or of one of its keys: the reason may be gone.
pub(crate) async fn make_due(
    connection: &mut PgConnection,
    channel_id: i64,
    key_id: Option<&str>,
) -> Result<(), sqlx::Error> {
    // Lanes first, in the order of the triggers, so that nothing deadlocks.
    for statement in [
        "update alert_lanes set try_at = now(), version = version + 1 where (channel_id, key_id) in (
             select channel_id, key_id from alert_lanes
             where channel_id = $1 and ($2::text is null or key_id = $2) order by key_id for update)",
        "update notices set try_at = now()
         where channel_id = $1 and ($2::text is null or key_id = $2)
             and mailed_at is null and failed_at is null and outcome is not null",
    ] {
        sqlx::query(statement).bind(channel_id).bind(key_id).execute(&mut *connection).await?;
    }
    Ok(())
}

/// The part of a URL that is no secret.
pub(crate) fn origin(url: &str) -> String {
    url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
}

fn names(alerts: &[AlertKind]) -> Vec<&'static str> {
    alerts.iter().map(|kind| kind.name()).collect()
}

pub(crate) fn require_channel(rows_affected: u64) -> Result<(), StoreError> {
    if rows_affected == 0 { Err(StoreRefusal::UnknownChannel.into()) } else { Ok(()) }
}

impl AlertChannelRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_channel(self) -> Option<AlertChannel> {
        Some(AlertChannel {
            id: self.id,
            kind: AlertChannelKind::find(&self.kind)?,
            url: self.url,
            alerts: self.alerts.iter().filter_map(|name| AlertKind::find(name)).collect(),
            secret: self.secret.try_into().ok()?,
            previous_until_s: self.previous_until_s,
            failing_since_s: self.failing_since_s,
            off_since_s: self.off_since_s,
            pending: self.pending,
        })
    }
}
