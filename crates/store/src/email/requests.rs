//! Requests for emails with a link: sign-up, password reset and email change. Requests above the limit of an address are
//! ignored, against email floods.
//!
//! A request does the same work whether the account exists or not, so its response and duration do not reveal it.

use ipseity_domain::account::EmailAddress;

use crate::access::EmailRequests;
use crate::email::tokens::EmailTokenKind;
use crate::error::StoreError;

struct EmailTokenRequest<'a> {
    kind: EmailTokenKind,
    email: &'a EmailAddress,
    account_id: Option<i64>,
    password_hash: Option<&'a str>,
    browser_digest: Option<&'a [u8; 32]>,
}

impl EmailRequests<'_> {
    /// Requests an email that confirms a sign-up.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn request_signup(
        self,
        email: &EmailAddress,
        password_hash: &str,
        browser_digest: &[u8; 32],
    ) -> Result<(), StoreError> {
        let (password_hash, browser_digest) = (Some(password_hash), Some(browser_digest));
        self.insert_request(EmailTokenRequest {
            kind: EmailTokenKind::SignUp,
            email,
            account_id: None,
            password_hash,
            browser_digest,
        })
        .await?;
        Ok(())
    }

    /// Requests an email that resets the password of the account with this address. Returns `false` if the limit of the address
    /// is reached, which only operators may learn.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn request_password_reset(self, email: &EmailAddress) -> Result<bool, StoreError> {
        let kind = EmailTokenKind::PasswordReset;
        self.insert_request(EmailTokenRequest {
            kind,
            email,
            account_id: None,
            password_hash: None,
            browser_digest: None,
        })
        .await
    }

    /// Requests an email that confirms an account's new address. Only the token of the last request is valid.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn request_email_change(self, account_id: i64, email: &EmailAddress) -> Result<(), StoreError> {
        let (kind, account_id) = (EmailTokenKind::EmailChange, Some(account_id));
        self.insert_request(EmailTokenRequest { kind, email, account_id, password_hash: None, browser_digest: None })
            .await?;
        Ok(())
    }

    async fn insert_request(self, token_request: EmailTokenRequest<'_>) -> Result<bool, StoreError> {
        let requested = async {
            let mut transaction = self.store.pool.begin().await?;
            // Concurrent requests for one address are counted one after the other.
            sqlx::query("select pg_advisory_xact_lock(hashtextextended($1::text || $2::text, 0))")
                .bind(token_request.kind.name())
                .bind(token_request.email.as_str())
                .execute(&mut *transaction)
                .await?;
            let is_stored = sqlx::query_scalar(
                "with added as (
                     insert into tickets (kind, email, account_id, password_hash, visit, expires_at)
                     select $1, $2, $3, $4, $5, now() + make_interval(hours => $6)
                     where (select count(*) from tickets where kind = $1 and email collate \"C\" = $2
                                and created_at > now() - interval '1 hour') < $7
                       and ($3::bigint is null or exists (select 1 from accounts where id = $3))
                     returning id
                 ), replaced as (
                     update tickets set expires_at = now()
                     where account_id = $3 and expires_at > now() and exists (select 1 from added)
                 )
                 select exists (select 1 from added)",
            )
            .bind(token_request.kind.name())
            .bind(token_request.email.as_str())
            .bind(token_request.account_id)
            .bind(token_request.password_hash)
            .bind(token_request.browser_digest.map(<[u8; 32]>::as_slice))
            .bind(token_request.kind.lifetime_hours())
            .bind(i64::from(self.per_hour_max))
            .fetch_one(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(is_stored)
        };
        self.store.with_timeout::<_, sqlx::Error>(requested).await
    }
}
