//! Tickets: the links that mails carry, from the wish to the use. The clear token is never here: it is minted when its mail is written.
//!
//! Wishes do the same work whether an account exists or not, so that neither an answer nor its time tells who is a member.

use domain::account::Email;
use domain::plan::FREE;
use sqlx::{FromRow, PgConnection};

use crate::accounts::{self, Account};
use crate::error::{Refused, StoreError};
use crate::members::{replace_email, replace_password};
use crate::pool::Store;

/// Tickets of a kind that an address can be sent in an hour; further wishes are quietly dropped, so that nobody's mailbox is flooded.
const TICKETS_HOURLY_MAX: i64 = 5;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketKind {
    /// Confirms a sign-up.
    SignUp,
    /// Gives an account another password.
    Reset,
    /// Gives an account another e-mail address.
    NewEmail,
    /// Lets someone in whom an operator invited.
    Invite,
}

impl TicketKind {
    const ALL: [Self; 4] = [Self::SignUp, Self::Reset, Self::NewEmail, Self::Invite];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Reset => "reset",
            Self::NewEmail => "email",
            Self::Invite => "invite",
        }
    }

    const fn valid_hours(self) -> i32 {
        match self {
            Self::Reset => 1,
            Self::SignUp | Self::NewEmail => 24,
            Self::Invite => 7 * 24,
        }
    }
}

/// A link that can be used.
#[derive(Clone)]
pub struct Ticket {
    /// What it is for.
    pub kind: TicketKind,
    /// The address that it was made for.
    pub email: String,
    /// The account that asked for another address; `None` for other kinds.
    pub account_id: Option<i64>,
    /// The digest of the cookie of the browser that asked; `None` when that does not matter.
    pub visit: Option<[u8; 32]>,
    /// The hash of the password that was chosen at sign-up.
    pub password_hash: Option<String>,
}

#[derive(FromRow)]
struct Found {
    kind: String,
    email: String,
    account_id: Option<i64>,
    visit: Option<Vec<u8>>,
    password_hash: Option<String>,
}

struct Wish<'a> {
    kind: TicketKind,
    email: &'a Email,
    account_id: Option<i64>,
    password_hash: Option<&'a str>,
    visit: Option<&'a [u8; 32]>,
}

impl Store {
    /// Asks for a mail that confirms a sign-up.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn request_signup(&self, email: &Email, password_hash: &str, visit: &[u8; 32]) -> Result<(), StoreError> {
        let (password_hash, visit) = (Some(password_hash), Some(visit));
        self.request(Wish { kind: TicketKind::SignUp, email, account_id: None, password_hash, visit }).await
    }

    /// Asks for a mail that lets the owner of this address choose another password.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn request_reset(&self, email: &Email) -> Result<(), StoreError> {
        let kind = TicketKind::Reset;
        self.request(Wish { kind, email, account_id: None, password_hash: None, visit: None }).await
    }

    /// Asks for a mail to an account's new address; only the link of the account's last wish holds.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn request_email(&self, account_id: i64, email: &Email) -> Result<(), StoreError> {
        let (kind, account_id) = (TicketKind::NewEmail, Some(account_id));
        self.request(Wish { kind, email, account_id, password_hash: None, visit: None }).await
    }

    /// Makes a link that lets someone in; an operator hands it over.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn invite(&self, email: &Email, digest: &[u8; 32]) -> Result<(), StoreError> {
        let invited = sqlx::query(
            "insert into tickets (kind, email, digest, expires_at, mailed_at)
             values ($1, $2, $3, now() + make_interval(hours => $4), now())",
        )
        .bind(TicketKind::Invite.name())
        .bind(email.as_str())
        .bind(digest.as_slice())
        .bind(TicketKind::Invite.valid_hours())
        .execute(&self.pool);
        self.within(invited).await?;
        Ok(())
    }

    async fn request(&self, wish: Wish<'_>) -> Result<(), StoreError> {
        let requested = async {
            let mut transaction = self.pool.begin().await?;
            // Racing wishes for one address are counted one after the other.
            sqlx::query("select pg_advisory_xact_lock(hashtextextended($1 || lower($2), 0))")
                .bind(wish.kind.name())
                .bind(wish.email.as_str())
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "with added as (
                     insert into tickets (kind, email, account_id, password_hash, visit, expires_at)
                     select $1, $2, $3, $4, $5, now() + make_interval(hours => $6)
                     where (select count(*) from tickets where kind = $1 and lower(email) = lower($2)
                                and created_at > now() - interval '1 hour') < $7
                       and ($3::bigint is null or exists (select 1 from accounts where id = $3))
                     returning id
                 )
                 update tickets set expires_at = now()
                 where account_id = $3 and expires_at > now() and exists (select 1 from added)",
            )
            .bind(wish.kind.name())
            .bind(wish.email.as_str())
            .bind(wish.account_id)
            .bind(wish.password_hash)
            .bind(wish.visit.map(<[u8; 32]>::as_slice))
            .bind(wish.kind.valid_hours())
            .bind(TICKETS_HOURLY_MAX)
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await
        };
        self.within(requested).await
    }

    /// Finds the link with this digest, unless it was used or has expired.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn find_ticket(&self, digest: &[u8; 32]) -> Result<Option<Ticket>, StoreError> {
        let found = sqlx::query_as(
            "select kind, email, account_id, visit, password_hash from tickets
             where digest = $1 and expires_at > now()",
        )
        .bind(digest.as_slice())
        .fetch_optional(&self.pool);
        let found: Option<Found> = self.within(found).await?;
        Ok(found.and_then(Found::ticket))
    }

    /// Makes the account that a confirmed sign-up asked for; its link is used up.
    ///
    /// # Errors
    /// When the link is gone, or the address was taken meanwhile.
    pub async fn confirm_signup(&self, digest: &[u8; 32]) -> Result<Account, StoreError> {
        let confirmed = async {
            let mut transaction = self.pool.begin().await?;
            let ticket = take(&mut transaction, digest, &[TicketKind::SignUp]).await?;
            let made = accounts::create(&mut *transaction, &ticket.email, FREE, ticket.password_hash.as_deref()).await;
            if let Ok(_) | Err(StoreError::Refused(_)) = made {
                transaction.commit().await?;
            }
            made
        };
        self.within(confirmed).await
    }

    /// Gives the account of a reset or an invitation its new password, makes the account if an invited one is missing, and says its number.
    /// All its sessions end, and other links to a new password with them.
    ///
    /// # Errors
    /// When the link is gone.
    pub async fn take_new_password(&self, digest: &[u8; 32], hash: &str) -> Result<i64, StoreError> {
        let taken = async {
            let mut transaction = self.pool.begin().await?;
            let ticket = take(&mut transaction, digest, &[TicketKind::Reset, TicketKind::Invite]).await?;
            if ticket.kind == TicketKind::Invite {
                sqlx::query("insert into accounts (email) values ($1) on conflict (lower(email)) do nothing")
                    .bind(&ticket.email)
                    .execute(&mut *transaction)
                    .await?;
            }
            let found = sqlx::query_scalar("select id from accounts where lower(email) = lower($1) for update")
                .bind(&ticket.email)
                .fetch_optional(&mut *transaction)
                .await?;
            if let Some(account_id) = found {
                replace_password(&mut transaction, account_id, hash, None).await?;
            }
            transaction.commit().await?;
            found.ok_or(Refused::LinkGone.into())
        };
        self.within::<_, StoreError>(taken).await
    }

    /// Gives an account the address that its owner asked for, and says its number.
    ///
    /// # Errors
    /// When the link is gone, or the address was taken meanwhile.
    pub async fn take_new_email(&self, digest: &[u8; 32]) -> Result<i64, StoreError> {
        let taken = async {
            let mut transaction = self.pool.begin().await?;
            let ticket = take(&mut transaction, digest, &[TicketKind::NewEmail]).await?;
            let account_id = ticket.account_id.ok_or(Refused::LinkGone)?;
            let changed = replace_email(&mut transaction, account_id, &ticket.email).await;
            if let Ok(()) | Err(StoreError::Refused(_)) = changed {
                transaction.commit().await?;
            }
            changed.map(|()| account_id)
        };
        self.within(taken).await
    }
}

impl Found {
    /// `None` only for a row that the schema's checks do not let in.
    fn ticket(self) -> Option<Ticket> {
        Some(Ticket {
            kind: TicketKind::ALL.into_iter().find(|kind| kind.name() == self.kind)?,
            email: self.email,
            account_id: self.account_id,
            visit: self.visit.map(TryInto::try_into).transpose().ok()?,
            password_hash: self.password_hash,
        })
    }
}

/// Uses up a link: of two who race with it, one finds it gone.
async fn take(connection: &mut PgConnection, digest: &[u8; 32], kinds: &[TicketKind]) -> Result<Ticket, StoreError> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let taken: Option<Found> = sqlx::query_as(
        "delete from tickets where digest = $1 and kind = any($2) and expires_at > now()
         returning kind, email, account_id, visit, password_hash",
    )
    .bind(digest.as_slice())
    .bind(kinds)
    .fetch_optional(connection)
    .await?;
    taken.and_then(Found::ticket).ok_or(Refused::LinkGone.into())
}
