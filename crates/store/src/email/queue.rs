//! The email queue: email tokens whose email is not sent yet.
//!
//! A claim is temporary. If its process dies or sending fails, the email becomes due again.

use sqlx::FromRow;

use crate::access::EmailQueue;
use crate::error::StoreError;

/// Attempts to send an email or an alert. Delays double, so the last attempt is more than two hours after the first.
pub(crate) const ATTEMPTS_MAX: i32 = 8;

/// The kind of an email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedEmailKind {
    /// Confirm a sign-up. Contains a link.
    ConfirmSignUp,
    /// A sign-up for an existing account. Contains no link.
    AlreadyRegistered,
    /// Reset a password. Contains a link.
    PasswordReset,
    /// Confirm a new email address. Contains a link.
    ConfirmEmailChange,
}

/// An email to be sent now.
#[derive(Clone)]
pub struct QueuedEmail {
    /// The id of the email token.
    pub token_id: i64,
    /// The recipient.
    pub email: String,
    /// The kind of email.
    pub kind: QueuedEmailKind,
}

#[derive(FromRow)]
struct ClaimedEmailRow {
    id: i64,
    email: String,
    kind: String,
    is_member: bool,
}

impl EmailQueue<'_> {
    /// Claims the oldest email that is due, and sets the digest of its token.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_next(self, digest: &[u8; 32]) -> Result<Option<QueuedEmail>, StoreError> {
        // A password reset for an unknown address is marked as sent and not deleted. It counts toward the hourly limit
        // like any other, so it does not reveal whether an account exists. An email about an account goes to the address of
        // the account, never to the one that was typed.
        let claimed = sqlx::query_as(
            "with unregistered as (
                 update tickets set mailed_at = now() where id in (
                     select id from tickets t where mailed_at is null and try_at <= now() and tries < $2 and kind = 'reset'
                         and not exists (select 1 from accounts a where a.email collate \"C\" = t.email)
                     for update skip locked
                 )
             ), due as (
                 select t.id, a.id is not null as is_member, a.email as account_email
                 from tickets t left join accounts a on a.email collate \"C\" = t.email
                 where t.mailed_at is null and t.try_at <= now() and t.tries < $2 and t.expires_at > now()
                     and (t.kind <> 'reset' or a.id is not null)
                 order by t.try_at, t.id limit 1
                 for update of t skip locked
             )
             update tickets t set
                 digest = case when t.kind = 'signup' and due.is_member then null else $1 end,
                 tries = t.tries + 1, try_at = now() + interval '1 minute' * (1 << t.tries)
             from due where t.id = due.id
             returning t.id, coalesce(due.account_email, t.email) as email, t.kind, due.is_member",
        )
        .bind(digest.as_slice())
        .bind(ATTEMPTS_MAX)
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedEmailRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.and_then(ClaimedEmailRow::into_queued_email))
    }

    /// Marks an email as sent. A token without a link stays until it expires, because it counts toward the hourly
    /// limit, but its password hash is removed.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn mark_sent(self, token_id: i64) -> Result<(), StoreError> {
        let sent = sqlx::query(
            "update tickets set mailed_at = now(), password_hash = case when digest is not null then password_hash end
             where id = $1",
        )
        .bind(token_id)
        .execute(&self.store.pool);
        self.store.with_timeout(sent).await?;
        Ok(())
    }
}

impl ClaimedEmailRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_queued_email(self) -> Option<QueuedEmail> {
        let kind = match (self.kind.as_str(), self.is_member) {
            ("signup", false) => QueuedEmailKind::ConfirmSignUp,
            ("signup", true) => QueuedEmailKind::AlreadyRegistered,
            ("reset", _) => QueuedEmailKind::PasswordReset,
            ("email", _) => QueuedEmailKind::ConfirmEmailChange,
            (_, _) => return None,
        };
        Some(QueuedEmail { token_id: self.id, email: self.email, kind })
    }
}
