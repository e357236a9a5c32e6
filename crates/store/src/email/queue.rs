//! Letters: tickets that wait for their mail.
//!
//! To claim one is to hold it for a while; whoever dies over it, or cannot send it, leaves it to the next try.

use sqlx::FromRow;

use crate::access::EmailQueue;
use crate::error::StoreError;

/// Tries after which a letter, or an alert, is given up: over two hours, by doubling pauses.
pub(crate) const ATTEMPTS_MAX: i32 = 8;

/// What a letter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedEmailKind {
    /// Confirm your sign-up. Carries a link.
    ConfirmSignUp,
    /// You signed up, and are a member already. Carries no link.
    AlreadyRegistered,
    /// Choose another password. Carries a link.
    PasswordReset,
    /// Confirm your new address. Carries a link.
    ConfirmEmailChange,
}

/// A letter to be sent now.
#[derive(Clone)]
pub struct QueuedEmail {
    /// The ticket that it belongs to.
    pub token_id: i64,
    /// Whom it goes to.
    pub email: String,
    /// What it says.
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
    /// Claims the oldest letter that is due, and lets its link be known by this digest.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn claim_next(self, digest: &[u8; 32]) -> Result<Option<QueuedEmail>, StoreError> {
        // A reset for nobody's address is settled, not deleted: it counts against the next wish like anybody's, and so tells nothing.
        let claimed = sqlx::query_as(
            "with unregistered as (
                 update tickets set mailed_at = now() where id in (
                     select id from tickets t where mailed_at is null and try_at <= now() and tries < $2 and kind = 'reset'
                         and not exists (select 1 from accounts a where lower(a.email) = lower(t.email))
                     for update skip locked
                 )
             ), due as (
                 select t.id, a.id is not null as is_member
                 from tickets t left join accounts a on lower(a.email) = lower(t.email)
                 where t.mailed_at is null and t.try_at <= now() and t.tries < $2 and t.expires_at > now()
                     and (t.kind <> 'reset' or a.id is not null)
                 order by t.try_at, t.id limit 1
                 for update of t skip locked
             )
             update tickets t set
                 digest = case when t.kind = 'signup' and due.is_member then null else $1 end,
                 tries = t.tries + 1, try_at = now() + interval '1 minute' * (1 << t.tries)
             from due where t.id = due.id
             returning t.id, t.email, t.kind, due.is_member",
        )
        .bind(digest.as_slice())
        .bind(ATTEMPTS_MAX)
        .fetch_optional(&self.store.pool);
        let claimed: Option<ClaimedEmailRow> = self.store.with_timeout(claimed).await?;
        Ok(claimed.and_then(ClaimedEmailRow::into_queued_email))
    }

    /// Notes that a letter was sent. A ticket without a link stays until it expires, without its hash: it counts against further wishes.
    ///
    /// # Errors
    /// When PostgreSQL is away.
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
    /// `None` only for a row that the schema's checks do not let in.
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
