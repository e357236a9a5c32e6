//! Notices: emails that warn the owner of an account about a change.

use ipseity_domain::account::EmailAddress;
use sqlx::{FromRow, PgConnection};

use crate::access::NoticeQueue;
use crate::email::queue::ATTEMPTS_MAX;
use crate::error::StoreError;

/// How long the previous address can be restored after a change.
pub const RESTORE_EMAIL_DAYS: i32 = 7;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// A passkey was added.
    PasskeyAdded,
    /// The email address was changed. Goes to the previous address, with a link that restores it.
    EmailChanged,
    /// A previous email address was restored. Goes to the one that it replaced.
    EmailRestored,
}

impl NoticeKind {
    const ALL: [Self; 3] = [Self::PasskeyAdded, Self::EmailChanged, Self::EmailRestored];

    const fn name(self) -> &'static str {
        match self {
            Self::PasskeyAdded => "passkey",
            Self::EmailChanged => "email",
            Self::EmailRestored => "email_restored",
        }
    }
}

/// A notice to be sent now.
#[derive(Clone)]
pub struct QueuedNotice {
    /// The notice's id.
    pub id: i64,
    /// The recipient.
    pub email: String,
    /// What it is about.
    pub kind: NoticeKind,
}

#[derive(FromRow)]
struct ClaimedNoticeRow {
    id: i64,
    email: String,
    kind: String,
}

impl NoticeQueue<'_> {
    /// Claims the oldest notice that is due, like an email of the email queue. Sets the digest of its token if it has a link.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_next(self, digest: &[u8; 32]) -> Result<Option<QueuedNotice>, StoreError> {
        let kinds = NoticeKind::ALL.map(NoticeKind::name);
        let claimed = sqlx::query_as(
            "with due as (
                 select id from notices
                 where mailed_at is null and try_at <= now() and tries < $2 and expires_at > now() and kind = any($3)
                 order by try_at, id limit 1
                 for update skip locked
             )
             update notices n set
                 digest = case when n.kind = 'email' then $1::bytea end,
                 tries = n.tries + 1, try_at = now() + interval '1 minute' * (1 << n.tries)
             from due where n.id = due.id
             returning n.id, n.email, n.kind",
        )
        .bind(digest.as_slice())
        .bind(ATTEMPTS_MAX)
        .bind(kinds.as_slice())
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedNoticeRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.and_then(|ClaimedNoticeRow { id, email, kind }| {
            let kind = NoticeKind::ALL.into_iter().find(|known| known.name() == kind)?;
            Some(QueuedNotice { id, email, kind })
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

/// Queues a notice without a link, to the current address of the account.
pub(crate) async fn queue_notice(
    connection: &mut PgConnection,
    account_id: i64,
    kind: NoticeKind,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into notices (account_id, kind, email, expires_at)
         select id, $2, email, now() + interval '3 days' from accounts where id = $1",
    )
    .bind(account_id)
    .bind(kind.name())
    .execute(connection)
    .await?;
    Ok(())
}

/// Queues a notice about a new address, to the current one. Call it before the change. Links to earlier addresses work at least
/// as long as this one: of several addresses, the first can always be restored last.
pub(crate) async fn queue_email_notice(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "with extended as (
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
