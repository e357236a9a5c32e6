//! Emails that are not sent yet, of all queues. Neither links nor their tokens are readable: only digests are stored.

use sqlx::FromRow;

use crate::access::ConsoleQueries;
use crate::email::queue::ATTEMPTS_MAX;
use crate::error::StoreError;

/// The queue of an email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsentQueue {
    /// Emails with a link: sign-up, password reset, change of the address.
    Links,
    /// Emails about security events and alerts.
    Notices,
}

impl UnsentQueue {
    const ALL: [Self; 2] = [Self::Links, Self::Notices];

    /// The queue with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| queue.name() == name)
    }

    /// The queue's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Notices => "notices",
        }
    }
}

/// Whether an email is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsentEmailState {
    /// It is tried again.
    Queued,
    /// Every attempt failed.
    Failed,
    /// Its link or event is too old.
    Expired,
}

impl UnsentEmailState {
    const ALL: [Self; 3] = [Self::Queued, Self::Failed, Self::Expired];

    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}

/// An email that is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentEmail {
    /// Its queue.
    pub queue: UnsentQueue,
    /// Its id in the queue.
    pub id: String,
    /// What it is about, such as `signup`, `passkey` or `paused`.
    pub kind: String,
    /// The recipient.
    pub email: String,
    /// When it was queued, as Unix time in seconds.
    pub created_s: i64,
    /// How often it was tried.
    pub attempts: i32,
    /// When it is tried again, as Unix time in seconds. `None` if it is not.
    pub next_attempt_s: Option<i64>,
    /// Whether it is tried again.
    pub state: UnsentEmailState,
}

#[derive(FromRow)]
struct UnsentEmailRow {
    queue: String,
    id: String,
    kind: String,
    email: String,
    created_s: i64,
    attempts: i32,
    next_attempt_s: i64,
    state: String,
}

impl ConsoleQueries<'_> {
    /// Emails that are not sent yet, those that failed or are due first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn unsent_emails(self, count_max: i64) -> Result<Vec<UnsentEmail>, StoreError> {
        let unsent = sqlx::query_as(
            "with unsent as (
                 (select 'links' as queue, id::text, kind, email, created_at, tries, try_at,
                         case when expires_at <= now() then 'expired' when tries >= $1 then 'failed' else 'queued' end as state
                  from tickets where mailed_at is null order by tickets.try_at, tickets.id limit $2)
                 union all
                 (select 'notices', id::text, kind, email, created_at, tries, try_at,
                         case when expires_at <= now() then 'expired' when failed_at is not null then 'failed' else 'queued' end
                  from notices where mailed_at is null and coalesce(channel_id, 0) = 0 order by notices.try_at, notices.id limit $2)
             )
             select queue, id, kind, email, floor(extract(epoch from created_at))::bigint as created_s, tries as attempts,
                    floor(extract(epoch from try_at))::bigint as next_attempt_s, state
             from unsent order by try_at, queue, id limit $2",
        )
        .bind(ATTEMPTS_MAX)
        .bind(count_max)
        .fetch_all(&self.store.pool);
        let rows: Vec<UnsentEmailRow> = self.store.with_timeout(unsent).await?;
        Ok(rows.into_iter().filter_map(UnsentEmailRow::into_unsent_email).collect())
    }

    /// Makes an email due now, with all attempts left. Returns `false` if it is sent, expired or deleted. An attempt that is in
    /// progress may still succeed, and then the email is sent twice.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn retry_email(self, queue: UnsentQueue, id: &str) -> Result<bool, StoreError> {
        let statement = match queue {
            UnsentQueue::Links => {
                "with retried as (
                     update tickets set tries = 0, try_at = now()
                     where id::text = $1 and mailed_at is null and expires_at > now() returning id)
                 select pg_notify('ipseity_mail', '') from retried"
            }
            UnsentQueue::Notices => {
                "with retried as (
                     update notices set tries = 0, try_at = now()
                     where id::text = $1 and mailed_at is null and failed_at is null and expires_at > now() returning id)
                 select pg_notify('ipseity_mail', '') from retried"
            }
        };
        let retried = sqlx::query(statement).bind(id).execute(&self.store.pool);
        let is_retried = self.store.with_timeout(retried).await?.rows_affected() == 1;
        if let (true, UnsentQueue::Notices, Ok(id)) = (is_retried, queue, id.parse()) {
            self.store.alert_queue().refresh_lane(id).await?;
        }
        Ok(is_retried)
    }
}

impl UnsentEmailRow {
    /// `None` never: the names are those of the statement.
    fn into_unsent_email(self) -> Option<UnsentEmail> {
        let state = UnsentEmailState::ALL.into_iter().find(|state| state.name() == self.state)?;
        Some(UnsentEmail {
            queue: UnsentQueue::find(&self.queue)?,
            id: self.id,
            kind: self.kind,
            email: self.email,
            created_s: self.created_s,
            attempts: self.attempts,
            next_attempt_s: Some(self.next_attempt_s).filter(|_| state == UnsentEmailState::Queued),
            state,
        })
    }
}
