//! Letters: tickets that wait for their mail.
//!
//! To claim one is to hold it for a while; whoever dies over it, or cannot send it, leaves it to the next try.

use sqlx::FromRow;

use crate::error::StoreError;
use crate::pool::Store;

/// Tries after which a letter, or an alert, is given up: over two hours, by doubling pauses.
pub(crate) const TRIES_MAX: i32 = 8;

/// What a letter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterKind {
    /// Confirm your sign-up. Carries a link.
    SignUp,
    /// You signed up, and are a member already. Carries no link.
    AlreadyMember,
    /// Choose another password. Carries a link.
    Reset,
    /// Confirm your new address. Carries a link.
    NewEmail,
}

/// A letter to be sent now.
#[derive(Clone)]
pub struct Letter {
    /// The ticket that it belongs to.
    pub ticket: i64,
    /// Whom it goes to.
    pub email: String,
    /// What it says.
    pub kind: LetterKind,
}

#[derive(FromRow)]
struct Claimed {
    id: i64,
    email: String,
    kind: String,
    is_member: bool,
}

impl Store {
    /// Claims the oldest letter that is due, and lets its link be known by this digest.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn next_letter(&self, digest: &[u8; 32]) -> Result<Option<Letter>, StoreError> {
        // A reset for nobody's address is settled, not deleted: it counts against the next wish like anybody's, and so tells nothing.
        let claimed = sqlx::query_as(
            "with settled as (
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
        .bind(TRIES_MAX)
        .fetch_optional(&self.pool);
        let claimed: Option<Claimed> = self.within(claimed).await?;
        Ok(claimed.and_then(Claimed::letter))
    }

    /// Notes that a letter was sent. A ticket without a link stays until it expires, without its hash: it counts against further wishes.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn letter_sent(&self, ticket: i64) -> Result<(), StoreError> {
        let sent = sqlx::query(
            "update tickets set mailed_at = now(), password_hash = case when digest is not null then password_hash end
             where id = $1",
        )
        .bind(ticket)
        .execute(&self.pool);
        self.within(sent).await?;
        Ok(())
    }
}

impl Claimed {
    /// `None` only for a row that the schema's checks do not let in.
    fn letter(self) -> Option<Letter> {
        let kind = match (self.kind.as_str(), self.is_member) {
            ("signup", false) => LetterKind::SignUp,
            ("signup", true) => LetterKind::AlreadyMember,
            ("reset", _) => LetterKind::Reset,
            ("email", _) => LetterKind::NewEmail,
            (_, _) => return None,
        };
        Some(Letter { ticket: self.id, email: self.email, kind })
    }
}
