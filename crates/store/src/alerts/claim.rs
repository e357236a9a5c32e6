//! Claims of alerts: which of the pending ones are sent now. The table `alert_lanes` says when to look at which lane, and `notices` what
//! is pending. A lane that is looked at too early or twice has no effect.

use std::time::Duration;

use serde::Deserialize;
use sqlx::FromRow;
use uuid::Uuid;

use crate::access::AlertQueue;
use crate::alerts::kind::AlertKind;
use crate::error::StoreError;

/// How long an email may take. Then another node sends it.
pub const EMAIL_CLAIM: Duration = Duration::from_secs(60);
/// How long the outcome of an attempt may take to be stored. Then another node repeats the attempt.
const OUTCOME_MARGIN: Duration = Duration::from_secs(5);
/// The outcome of alerts that are pending when their channel is turned off.
pub(crate) const CHANNEL_OFF: &str = "the channel is off";

/// What an alert says about its key, as it was when the alert was queued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AlertDetails {
    /// The key's name.
    pub name: String,
    /// The UTC day, such as `2026-11-15`.
    pub day: String,
    /// Admitted requests of that day, as of the last usage flush.
    pub used: i64,
    /// Requests per day.
    pub daily_limit: i64,
    /// Requests in any 60 seconds.
    pub burst_limit: i64,
    /// The burst epoch that a pause ended.
    pub burst_epoch: Option<i64>,
    /// Requests in the 60 seconds before the pause.
    pub requests: Option<i64>,
    /// When the key expires, as Unix time in seconds.
    pub expires_at_s: Option<i64>,
    /// Who did it: `owner`, `operator` or `service`.
    pub actor: Option<String>,
}

/// Where an alert goes.
#[derive(Clone)]
pub enum AlertTarget {
    /// To the owner's address.
    Email(String),
    /// To a webhook. Each of the secrets signs it.
    Webhook {
        /// The webhook's URL.
        url: String,
        /// The current secret, and the previous one for a while.
        secrets: Vec<Vec<u8>>,
    },
    /// To Slack.
    Slack {
        /// The URL, which is a secret.
        url: String,
    },
}

impl AlertTarget {
    /// The URL of a channel.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Email(_) => None,
            Self::Webhook { url, .. } | Self::Slack { url } => Some(url),
        }
    }
}

/// An alert to be sent now.
#[derive(Clone)]
pub struct QueuedAlert {
    /// The id in the outbox.
    pub id: i64,
    /// The channel; 0 for email.
    pub channel_id: i64,
    /// The same for all channels and attempts.
    pub message_id: Uuid,
    /// The kind of alert.
    pub kind: AlertKind,
    /// The key's id. Empty for a test.
    pub key_id: String,
    /// What the alert says.
    pub details: AlertDetails,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// When it happened, as Unix time in milliseconds.
    pub created_ms: i64,
    /// Where it goes.
    pub target: AlertTarget,
}

/// The alerts that a call claims.
#[derive(Clone, Copy, Debug)]
pub enum AlertClaim<'a> {
    /// One that goes by email.
    Email,
    /// Those that go to channels.
    Channels {
        /// Maximum number of alerts.
        count_max: usize,
        /// Maximum number of those that were attempted before.
        retries_max: usize,
        /// Maximum number of attempts per channel at the same time.
        per_channel_max: usize,
        /// Maximum number of attempts for the channels of an account at the same time.
        per_account_max: usize,
        /// How long an attempt may take.
        attempt_max: Duration,
        /// The channels of all current attempts of this node, with their number.
        busy: &'a [(i64, usize)],
    },
}

#[derive(FromRow)]
struct ClaimedAlertRow {
    id: i64,
    channel_id: i64,
    message_id: Uuid,
    kind: String,
    key_id: String,
    tries: i32,
    details: String,
    created_ms: i64,
    email: Option<String>,
    channel_kind: Option<String>,
    url: Option<String>,
    secrets: Option<Vec<Vec<u8>>>,
    is_off: bool,
}

/// Claims the oldest alerts of the lanes of the CTE `due`. `$1` is how long the claim lasts, `$2` the known kinds, and `$3` the number of
/// alerts. A lane that has changed since the statement started is left for the next claim. Retries are at most an hour apart, so a later
/// time is from a clock that was ahead.
macro_rules! claim_sql {
    ($due:literal) => {
        concat!(
            "with recursive ",
            $due,
            ", locked as (
                 select l.channel_id, l.key_id, due.position, l.try_at
                 from due join alert_lanes l on l.channel_id = due.channel_id and l.key_id = due.key_id and l.version = due.version
                 order by due.position, l.try_at limit $3 + 16
                 for update of l skip locked
             ), heads as (
                 select locked.channel_id, locked.key_id, locked.position, locked.try_at, head.id, head.tries, case
                     when head.kind <> all ($2) then now() + interval '10 seconds'
                     when head.try_at > now() + interval '2 hours' then now()
                     else greatest(head.try_at, sent.at + interval '1 minute') end as due_at
                 from locked
                 left join lateral (
                     select n.id, n.kind, n.tries, n.try_at, n.message_id from notices n
                     where n.mailed_at is null and n.failed_at is null
                         and n.channel_id = locked.channel_id and n.key_id = locked.key_id
                     order by n.id limit 1) head on true
                 left join lateral (
                     select max(n.mailed_at) as at from notices n
                     where head.kind = 'alert_paused' and n.kind = 'alert_paused' and n.key_id = locked.key_id
                         and n.channel_id = locked.channel_id and n.message_id <> head.message_id
                         and n.mailed_at between now() - interval '1 minute' and now() + interval '1 minute') sent on true
             ), claimed as (
                 update notices n set tries = n.tries + 1, try_at = clock_timestamp() + make_interval(secs => $1)
                 from (select * from heads where due_at <= now() order by position, try_at limit $3) heads
                 where n.id = heads.id and n.tries = heads.tries and n.mailed_at is null and n.failed_at is null
                 returning n.*
             ), moved as (
                 update alert_lanes l
                 set version = l.version + 1, try_at = coalesce(claimed.try_at, heads.due_at),
                     is_retry = claimed.id is not null or heads.tries > 0
                 from heads left join claimed on claimed.id = heads.id
                 where l.channel_id = heads.channel_id and l.key_id = heads.key_id
                     and (claimed.id is not null or heads.due_at > now())
             ), emptied as (
                 delete from alert_lanes l using heads
                 where heads.id is null and l.channel_id = heads.channel_id and l.key_id = heads.key_id
             )
             select c.id, c.channel_id, c.message_id, c.kind, c.key_id, c.tries, c.details::text as details, account.email,
                 floor(extract(epoch from c.created_at) * 1000)::bigint as created_ms, channel.kind as channel_kind,
                 channel.url, case when channel.id is not null then array_remove(array[channel.secret,
                     case when channel.previous_until > now() then channel.previous_secret end], null) end as secrets,
                 channel.off_since is not null as is_off
             from claimed c left join alert_channels channel on channel.id = c.channel_id
             -- The address can have changed since the alert was queued.
             left join accounts account on account.id = c.account_id and c.channel_id = 0
             order by c.id"
        )
    };
}

const CLAIM_EMAIL: &str = claim_sql!(
    "due as (
         select lane.channel_id, lane.key_id, lane.version, 1 as position
         from (values (false), (true)) attempted (is_retry) cross join lateral (
             select l.* from alert_lanes l
             where l.channel_id = 0 and l.is_retry = attempted.is_retry and l.try_at <= now()
             order by l.try_at limit 16) lane)"
);

// The recursion steps from channel to channel in an index. Of the channels that waited longest, it reads as many lanes as may be sent. So
// the cost depends neither on the number of lanes nor of alerts. Accounts with the fewest attempts come first.
const CLAIM_FOR_CHANNELS: &str = claim_sql!(
    "groups as (
         (select channel_id, is_retry from alert_lanes where channel_id > 0 order by channel_id, is_retry limit 1)
         union all
         select next.channel_id, next.is_retry from groups cross join lateral (
             select l.channel_id, l.is_retry from alert_lanes l
             where (l.channel_id, l.is_retry) > (groups.channel_id, groups.is_retry)
             order by l.channel_id, l.is_retry limit 1) next
     ), busy as (
         select b.channel_id, b.count, c.account_id
         from unnest($4::bigint[], $5::bigint[]) b (channel_id, count) left join alert_channels c on c.id = b.channel_id
     ), account_busy as (
         select account_id, sum(count) as count from busy group by account_id
     ), waiting as (
         select groups.channel_id, groups.is_retry, coalesce(busy.count, 0) as busy, coalesce(account_busy.count, 0) as account_busy,
             row_number() over (partition by groups.is_retry order by coalesce(account_busy.count, 0), first.try_at) as position
         from groups cross join lateral (
             select l.account_id, l.try_at from alert_lanes l
             where l.channel_id = groups.channel_id and l.is_retry = groups.is_retry and l.try_at <= now()
             order by l.try_at limit 1) first
         left join busy on busy.channel_id = groups.channel_id
         left join account_busy on account_busy.account_id = first.account_id
         where coalesce(busy.count, 0) < $6 and coalesce(account_busy.count, 0) < $8 and (not groups.is_retry or $7 > 0)
     ), candidates as (
         select lane.*, waiting.account_busy, waiting.busy
             + row_number() over (partition by lane.channel_id order by lane.try_at, lane.key_id) as channel_position
         from waiting cross join lateral (
             select l.* from alert_lanes l
             where l.channel_id = waiting.channel_id and l.is_retry = waiting.is_retry and l.try_at <= now()
             order by l.try_at limit $6) lane
         where waiting.position <= 2 * $3 + 16
     ), ranked as (
         select candidates.*, account_busy
             + row_number() over (partition by account_id order by channel_position, try_at, key_id) as position
         from candidates where channel_position <= $6
     ), chosen as (
         select ranked.*, row_number() over (partition by is_retry order by position, try_at) as kind_position
         from ranked where position <= $8
     ), due as (
         select channel_id, key_id, version, position from chosen where not is_retry or kind_position <= $7
         -- Other nodes can have locked some, and some can have no alert that is due.
         order by position, try_at limit 2 * $3 + 16)"
);

impl AlertQueue<'_> {
    /// Claims alerts that are due. A claim ends, so the alerts of a node that was killed are sent by another.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim(self, claim: AlertClaim<'_>) -> Result<Vec<QueuedAlert>, StoreError> {
        let kinds = AlertKind::notice_kinds();
        let claimed = match claim {
            AlertClaim::Email => sqlx::query_as(CLAIM_EMAIL).bind(EMAIL_CLAIM.as_secs_f64()).bind(kinds).bind(1_i64),
            AlertClaim::Channels { count_max, retries_max, per_channel_max, per_account_max, attempt_max, busy } => {
                let (channels, counts): (Vec<i64>, Vec<i64>) =
                    busy.iter().map(|(channel, count)| (*channel, saturating(*count))).unzip();
                sqlx::query_as(CLAIM_FOR_CHANNELS)
                    .bind((attempt_max + OUTCOME_MARGIN).as_secs_f64())
                    .bind(kinds)
                    .bind(saturating(count_max))
                    .bind(channels)
                    .bind(counts)
                    .bind(saturating(per_channel_max))
                    .bind(saturating(retries_max))
                    .bind(saturating(per_account_max))
            }
        };
        let rows: Vec<ClaimedAlertRow> = self.store.with_timeout(claimed.fetch_all(&self.store.pool)).await?;
        let (mut alerts, mut undeliverable) = (Vec::new(), Vec::new());
        for row in rows {
            let (id, is_off) = (row.id, row.is_off);
            match row.into_queued_alert().filter(|_| !is_off) {
                Some(alert) => alerts.push(alert),
                None => undeliverable.push((id, if is_off { CHANNEL_OFF } else { "the channel was deleted" })),
            }
        }
        for (id, outcome) in undeliverable {
            self.give_up(id, outcome).await?;
        }
        Ok(alerts)
    }
}

fn saturating(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl ClaimedAlertRow {
    /// `None` for the alert of a channel that was deleted meanwhile, and for a row that violates the checks of the schema.
    fn into_queued_alert(self) -> Option<QueuedAlert> {
        let target = match (self.email, self.channel_kind.as_deref(), self.url, self.secrets) {
            (Some(email), None, ..) => AlertTarget::Email(email),
            (None, Some("webhook"), Some(url), Some(secrets)) => AlertTarget::Webhook { url, secrets },
            (None, Some("slack"), Some(url), _) => AlertTarget::Slack { url },
            _ => return None,
        };
        Some(QueuedAlert {
            id: self.id,
            channel_id: self.channel_id,
            message_id: self.message_id,
            kind: AlertKind::find_notice(&self.kind)?,
            key_id: self.key_id,
            details: serde_json::from_str(&self.details).ok()?,
            attempt: self.tries,
            created_ms: self.created_ms,
            target,
        })
    }
}
