//! Notices: emails that tell the owner of an account about security events. They share a table with alerts, whose channel is not null.

use ipseity_domain::account::EmailAddress;
use sqlx::{FromRow, PgConnection};

use crate::access::NoticeQueue;
use crate::accounts::security_log::SecurityEvent;
use crate::error::StoreError;

/// How long the previous address can be restored after a change.
pub const RESTORE_EMAIL_DAYS: i32 = 7;

/// A notice to be sent now.
#[derive(Clone)]
pub struct QueuedNotice {
    /// The notice's id.
    pub id: i64,
    /// The recipient.
    pub email: String,
    /// The event that it is about.
    pub event: SecurityEvent,
    /// What the event is about, such as the name of a key.
    pub subject: Option<String>,
}

#[derive(FromRow)]
struct ClaimedNoticeRow {
    id: i64,
    email: String,
    kind: String,
    subject: Option<String>,
}

impl NoticeQueue<'_> {
    /// Claims the oldest notice that is due, like an email of the email queue, but until it expires. Sets the digest of its token
    /// if it has a link.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_next(self, digest: &[u8; 32]) -> Result<Option<QueuedNotice>, StoreError> {
        let kinds = SecurityEvent::ALL.map(SecurityEvent::name);
        let claimed = sqlx::query_as(
            "with due as (
                 select id from notices
                 where channel_id is null and mailed_at is null and try_at <= now() and expires_at > now() and kind = any($2)
                 order by try_at, id limit 1
                 for update skip locked
             )
             update notices n set
                 digest = case when n.kind = 'email' then $1::bytea end,
                 tries = n.tries + 1, try_at = now() + interval '1 minute' * (1 << least(n.tries, 6))
             from due where n.id = due.id
             returning n.id, n.email, n.kind, n.subject",
        )
        .bind(digest.as_slice())
        .bind(kinds.as_slice())
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedNoticeRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.and_then(|ClaimedNoticeRow { id, email, kind, subject }| {
            Some(QueuedNotice { id, email, event: SecurityEvent::find(&kind)?, subject })
        }))
    }

    /// Marks a notice as sent. Deletes it unless it has a link.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_sent(self, id: i64) -> Result<(), StoreError> {
        let sent = sqlx::query(
            "with deleted as (delete from notices where id = $1 and digest is null)
             update notices set mailed_at = now() where id = $1 and digest is not null",
        )
        .bind(id)
        .execute(&self.store.pool);
        self.store.with_timeout(sent).await?;
        Ok(())
    }
}

/// Records the event of a new address, with a notice to the current one. Call it before the change. Links to earlier addresses work at least
/// as long as this one: of several addresses, the first can always be restored last.
pub(crate) async fn queue_email_notice(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "with logged as (
             insert into security_events (account_id, kind) values ($1, 'email')
         ), extended as (
             update notices set expires_at = now() + make_interval(days => $2)
             where account_id = $1 and kind = 'email' and expires_at > now()
         )
         insert into notices (account_id, kind, email, expires_at)
         select id, 'email', email, now() + make_interval(days => $2) from accounts where id = $1",
    )
    .bind(account_id)
    .bind(RESTORE_EMAIL_DAYS)
    .execute(connection)
    .await?;
    Ok(())
}

/// Replaces the links that restore a previous address by notices about `event`.
pub(crate) async fn replace_email_notices(
    connection: &mut PgConnection,
    account_id: i64,
    event: SecurityEvent,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "with links as (delete from notices where account_id = $1 and kind = 'email' returning email, expires_at)
         insert into notices (account_id, kind, email, expires_at)
         select distinct $1, $2, email, now() + interval '3 days' from links where expires_at > now()",
    )
    .bind(account_id)
    .bind(event.name())
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the links that restore this address or one that the account had after it. Returns whether this address had a link.
pub(crate) async fn delete_email_notices_from(
    connection: &mut PgConnection,
    account_id: i64,
    email: &EmailAddress,
) -> Result<bool, sqlx::Error> {
    let deleted = sqlx::query(
        "delete from notices where account_id = $1 and kind = 'email' and id >= (
             select min(id) from notices
             where account_id = $1 and kind = 'email' and email collate \"C\" = $2 and expires_at > now())",
    )
    .bind(account_id)
    .bind(email.as_str())
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected() > 0)
}
