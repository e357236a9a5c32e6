//! Email tokens: single-use links. Only digests are stored. The token is generated when its email is sent.

use ipseity_domain::account::EmailAddress;
use ipseity_domain::plan::FREE_PLAN;
use sqlx::{FromRow, PgConnection};

use crate::access::EmailTokens;
use crate::accounts::credentials::{replace_email, replace_password};
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{self, Account, two_factor};
use crate::email::notices::{RESTORE_EMAIL_DAYS, delete_email_notices_from, queue_email_notice};
use crate::error::{StoreError, StoreRefusal};

/// The purpose of an email token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailTokenKind {
    /// Confirms a sign-up.
    SignUp,
    /// Resets a password.
    PasswordReset,
    /// Confirms a new email address.
    EmailChange,
    /// Accepts an operator's invitation.
    Invite,
    /// Restores the email address from before a change, and sets a new password.
    RestoreEmail,
}

impl EmailTokenKind {
    const ALL: [Self; 5] = [Self::SignUp, Self::PasswordReset, Self::EmailChange, Self::Invite, Self::RestoreEmail];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::PasswordReset => "reset",
            Self::EmailChange => "email",
            Self::Invite => "invite",
            Self::RestoreEmail => "restore",
        }
    }

    pub(crate) const fn lifetime_hours(self) -> i32 {
        match self {
            Self::PasswordReset => 1,
            Self::SignUp | Self::EmailChange => 24,
            Self::Invite => 7 * 24,
            Self::RestoreEmail => RESTORE_EMAIL_DAYS * 24,
        }
    }
}

/// A valid email token.
#[derive(Clone)]
pub struct EmailToken {
    /// The purpose.
    pub kind: EmailTokenKind,
    /// The email address.
    pub email: EmailAddress,
    /// The account of an email change or its reversal. `None` for other kinds.
    pub account_id: Option<i64>,
    /// The digest of the requesting browser's cookie. `None` if any browser may use the token.
    pub browser_digest: Option<[u8; 32]>,
    /// The hash of the password from the sign-up.
    pub password_hash: Option<String>,
    /// The account whose second factor is needed. An attacker may have turned two-factor authentication on after a change of the
    /// address, or shortly before it, so restoring it does not need that.
    pub second_factor_account: Option<i64>,
}

#[derive(FromRow)]
struct EmailTokenRow {
    kind: String,
    email: String,
    account_id: Option<i64>,
    visit: Option<Vec<u8>>,
    password_hash: Option<String>,
    second_factor_account: Option<i64>,
}

impl EmailTokens<'_> {
    /// Creates an invitation, which an operator passes on.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn create_invite(self, email: &EmailAddress, digest: &[u8; 32]) -> Result<(), StoreError> {
        let invited = sqlx::query(
            "insert into tickets (kind, email, digest, expires_at, mailed_at)
             values ($1, $2, $3, now() + make_interval(hours => $4), now())",
        )
        .bind(EmailTokenKind::Invite.name())
        .bind(email.as_str())
        .bind(digest.as_slice())
        .bind(EmailTokenKind::Invite.lifetime_hours())
        .execute(&self.store.pool);
        self.store.with_timeout(invited).await?;
        Ok(())
    }

    /// Creates an invitation for a person without an account. Returns `false` if there is an account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn create_first_invite(self, email: &EmailAddress, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let invited = sqlx::query(
            "insert into tickets (kind, email, digest, expires_at, mailed_at)
             select $1, $2, $3, now() + make_interval(hours => $4), now()
             where not exists (select from accounts where email collate \"C\" = $2)",
        )
        .bind(EmailTokenKind::Invite.name())
        .bind(email.as_str())
        .bind(digest.as_slice())
        .bind(EmailTokenKind::Invite.lifetime_hours())
        .execute(&self.store.pool);
        Ok(self.store.with_timeout(invited).await?.rows_affected() == 1)
    }

    /// Finds a token by digest, unless it was used or has expired.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find(self, digest: &[u8; 32]) -> Result<Option<EmailToken>, StoreError> {
        let found = sqlx::query_as(
            "select t.kind, t.email, t.account_id, t.visit, t.password_hash, a.id as second_factor_account
             from tickets t left join accounts a
                 on (t.kind in ('reset', 'invite') and a.email collate \"C\" = t.email or a.id = t.account_id)
                     and a.two_factor_since is not null
             where t.digest = $1 and t.expires_at > now()
             union all
             select 'restore', n.email, n.account_id, null, null, a.id
             from notices n left join accounts a on a.id = n.account_id
                 and a.two_factor_since < n.created_at - make_interval(days => $2)
             where n.digest = $1 and n.kind = 'email' and n.expires_at > now()",
        )
        .bind(digest.as_slice())
        .bind(RESTORE_EMAIL_DAYS)
        .fetch_optional(&self.store.pool);
        let found: Option<EmailTokenRow> = self.store.with_timeout(found).await?;
        Ok(found.and_then(EmailTokenRow::into_email_token))
    }

    /// Creates the account of a sign-up, and consumes the token.
    ///
    /// # Errors
    /// If the token is invalid, or the address has been taken since.
    pub async fn redeem_signup(self, digest: &[u8; 32]) -> Result<Account, StoreError> {
        let confirmed = async {
            let mut transaction = self.store.pool.begin().await?;
            let token = consume_token(&mut transaction, digest, &[EmailTokenKind::SignUp]).await?;
            let created =
                accounts::insert_account(&mut *transaction, &token.email, FREE_PLAN, token.password_hash.as_deref())
                    .await;
            if let Ok(_) | Err(StoreError::Refused(_)) = created {
                transaction.commit().await?;
            }
            created
        };
        self.store.with_timeout(confirmed).await
    }

    /// Sets the password of a reset or an invitation, and returns the account's id. Creates the account of an
    /// invitation if needed. Ends all sessions, forgets devices, deletes passkeys and linked identities, and invalidates other tokens
    /// that set a password.
    ///
    /// # Errors
    /// If the token is invalid.
    pub async fn redeem_password(self, digest: &[u8; 32], hash: &str) -> Result<i64, StoreError> {
        let taken = async {
            let mut transaction = self.store.pool.begin().await?;
            let token =
                consume_token(&mut transaction, digest, &[EmailTokenKind::PasswordReset, EmailTokenKind::Invite])
                    .await?;
            if token.kind == EmailTokenKind::Invite {
                sqlx::query("insert into accounts (email) values ($1) on conflict do nothing")
                    .bind(token.email.as_str())
                    .execute(&mut *transaction)
                    .await?;
            }
            let found = sqlx::query_scalar("select id from accounts where email collate \"C\" = $1 for update")
                .bind(token.email.as_str())
                .fetch_optional(&mut *transaction)
                .await?;
            if let Some(account_id) = found {
                replace_password(&mut transaction, account_id, hash, None, true).await?;
            }
            transaction.commit().await?;
            found.ok_or(StoreRefusal::InvalidEmailToken.into())
        };
        self.store.with_timeout::<_, StoreError>(taken).await
    }

    /// Restores the email address from before a change, sets a new password, and returns the account's id. Ends all other
    /// access, like a password reset. Links that restore an address of a later change stop working, those of an earlier one do
    /// not: after several changes, the first address is the owner's.
    ///
    /// # Errors
    /// If the token is invalid. If another account has the address now; the token then stays valid.
    pub async fn restore_email(self, digest: &[u8; 32], hash: &str) -> Result<i64, StoreError> {
        let restored = async {
            let mut transaction = self.store.pool.begin().await?;
            let token: Option<(i64, String)> = sqlx::query_as(
                "select account_id, email from notices where digest = $1 and kind = 'email' and expires_at > now()
                 for update",
            )
            .bind(digest.as_slice())
            .fetch_optional(&mut *transaction)
            .await?;
            let (account_id, email) = token.ok_or(StoreRefusal::InvalidEmailToken)?;
            let email = EmailAddress::parse(&email).ok_or(StoreRefusal::InvalidEmailToken)?;
            two_factor::end_if_newer(&mut transaction, account_id, digest).await?;
            delete_email_notices_from(&mut transaction, account_id, &email).await?;
            record_event(&mut transaction, account_id, SecurityEvent::EmailRestored, None).await?;
            replace_email(&mut transaction, account_id, &email).await?;
            replace_password(&mut transaction, account_id, hash, None, true).await?;
            transaction.commit().await?;
            Ok(account_id)
        };
        self.store.with_timeout::<_, StoreError>(restored).await
    }

    /// Sets the new email address of an account, and returns its id. Queues a notice to the previous address.
    ///
    /// # Errors
    /// If the token is invalid, or the address has been taken since.
    pub async fn redeem_email_change(self, digest: &[u8; 32]) -> Result<i64, StoreError> {
        let taken = async {
            let mut transaction = self.store.pool.begin().await?;
            let token = consume_token(&mut transaction, digest, &[EmailTokenKind::EmailChange]).await?;
            let account_id = token.account_id.ok_or(StoreRefusal::InvalidEmailToken)?;
            let previous: Option<String> = sqlx::query_scalar("select email from accounts where id = $1 for update")
                .bind(account_id)
                .fetch_optional(&mut *transaction)
                .await?;
            if previous.as_deref() != Some(token.email.as_str()) {
                // An owner who takes an address back restores it: the address in between gets no link.
                if delete_email_notices_from(&mut transaction, account_id, &token.email).await? {
                    record_event(&mut transaction, account_id, SecurityEvent::EmailRestored, None).await?;
                } else {
                    queue_email_notice(&mut transaction, account_id).await?;
                }
            }
            replace_email(&mut transaction, account_id, &token.email).await?;
            transaction.commit().await?;
            Ok(account_id)
        };
        self.store.with_timeout::<_, StoreError>(taken).await
    }
}

impl EmailTokenRow {
    /// `None` only for a row that violates the checks of the schema, or with an address that only an older version
    /// accepts.
    fn into_email_token(self) -> Option<EmailToken> {
        Some(EmailToken {
            kind: EmailTokenKind::ALL.into_iter().find(|kind| kind.name() == self.kind)?,
            email: EmailAddress::parse(&self.email)?,
            account_id: self.account_id,
            browser_digest: self.visit.map(TryInto::try_into).transpose().ok()?,
            password_hash: self.password_hash,
            second_factor_account: self.second_factor_account,
        })
    }
}

/// Consumes a token. Of two concurrent calls, one fails.
async fn consume_token(
    connection: &mut PgConnection,
    digest: &[u8; 32],
    kinds: &[EmailTokenKind],
) -> Result<EmailToken, StoreError> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let row: Option<EmailTokenRow> = sqlx::query_as(
        "delete from tickets where digest = $1 and kind = any($2) and expires_at > now()
         returning kind, email, account_id, visit, password_hash, null::bigint as second_factor_account",
    )
    .bind(digest.as_slice())
    .bind(kinds)
    .fetch_optional(connection)
    .await?;
    row.and_then(EmailTokenRow::into_email_token).ok_or(StoreRefusal::InvalidEmailToken.into())
}
