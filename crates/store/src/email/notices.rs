//! Notices: emails that warn the owner of an account about a change.

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
    has_link: bool,
}

impl NoticeQueue<'_> {
    /// Claims the oldest notice that is due, like an email of the email queue. Sets the digest of its token if it has a link.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_next(self, digest: &[u8; 32]) -> Result<Option<QueuedNotice>, StoreError> {
        let claimed = sqlx::query_as(
            "with due as (
                 select id from notices
                 where mailed_at is null and try_at <= now() and tries < $2 and expires_at > now()
                 order by try_at, id limit 1
                 for update skip locked
             )
             update notices n set
                 digest = case when n.kind = 'email' then $1::bytea end,
                 tries = n.tries + 1, try_at = now() + interval '1 minute' * (1 << n.tries)
             from due where n.id = due.id
             returning n.id, n.email, n.kind = 'email' as has_link",
        )
        .bind(digest.as_slice())
        .bind(ATTEMPTS_MAX)
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedNoticeRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.map(|ClaimedNoticeRow { id, email, has_link }| QueuedNotice {
            id,
            email,
            kind: if has_link { NoticeKind::EmailChanged } else { NoticeKind::PasskeyAdded },
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

/// Queues a notice about a new passkey.
pub(crate) async fn queue_passkey_notice(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into notices (account_id, kind, email, expires_at)
         select id, 'passkey', email, now() + interval '3 days' from accounts where id = $1",
    )
    .bind(account_id)
    .execute(connection)
    .await?;
    Ok(())
}

/// Queues a notice about a new address, to the previous one.
pub(crate) async fn queue_email_notice(
    connection: &mut PgConnection,
    account_id: i64,
    previous_email: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into notices (account_id, kind, email, expires_at)
         values ($1, 'email', $2, now() + make_interval(days => $3))",
    )
    .bind(account_id)
    .bind(previous_email)
    .bind(RESTORE_EMAIL_DAYS)
    .execute(connection)
    .await?;
    Ok(())
}
