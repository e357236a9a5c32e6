//! Errors of pages and forms. `error_page` renders them.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use ipseity_domain::causes;
use ipseity_ledger::LedgerError;
use ipseity_store::{StoreError, StoreRefusal};

use crate::auth::next_path::NextPath;
use crate::auth::password::PasswordQueueFull;
use crate::auth::throttle::RetryAfter;

/// Why a page could not be shown or a form was rejected.
#[derive(Debug)]
pub(crate) enum PortalError {
    /// The visitor is not signed in.
    NotSignedIn,
    /// The visitor is not signed in, and returns to this page afterwards.
    SignInNeeded(NextPath),
    /// The session must be confirmed, on the way to this path.
    ConfirmationNeeded(String),
    /// The operator requires two-factor authentication, and the account has none.
    TwoFactorRequired,
    /// The account needs a second factor and has no other.
    LastSecondFactor,
    /// The CSRF token is missing, from another session, or from before the last sign-in.
    StaleForm,
    /// Another site submitted the form.
    CrossOrigin,
    /// The resource does not exist or belongs to another account.
    NotFound,
    /// No route has this path.
    PathNotFound,
    /// The documentation has no such page.
    DocsPageNotFound,
    /// The link was used or has expired.
    LinkExpired,
    /// Sign-up is by invitation only.
    SignupClosed,
    /// The passkey is unknown or its verification failed.
    PasskeyRefused,
    /// The sign-in with another provider failed, for this reason. The page to try again.
    ProviderFailed { reason: String, retry_path: &'static str },
    /// No account signs in with this account of the named provider.
    IdentityNotLinked(String),
    /// This account of the named provider is linked to another account.
    IdentityTaken(String),
    /// The account has ten linked identities.
    IdentityLimitReached,
    /// The current password is wrong.
    WrongPassword,
    /// The account has ten passkeys.
    PasskeyLimitReached,
    /// Too many attempts to sign in.
    Throttled(RetryAfter),
    /// Too many wrong codes of a second factor.
    CodesThrottled(RetryAfter),
    /// Too many changes of the account.
    AccountChangesThrottled(RetryAfter),
    /// Too many changes of keys.
    KeyActionsThrottled(RetryAfter),
    /// Too many requests for emails from this network.
    EmailsThrottled(RetryAfter),
    /// Too many requests for emails on this node.
    EmailLimitReached(RetryAfter),
    /// The account has the maximum number of event streams.
    StreamLimitReached,
    /// The password queue or the number of event streams is at its limit.
    Busy,
    /// PostgreSQL or Redis failed. The cause is logged where it occurs.
    Unavailable,
}

impl From<StoreError> for PortalError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Refused(
                StoreRefusal::UnknownKey | StoreRefusal::UnknownChannel | StoreRefusal::UnknownToken,
            ) => Self::NotFound,
            StoreError::Refused(StoreRefusal::InvalidEmailToken) => Self::LinkExpired,
            StoreError::Refused(StoreRefusal::UnknownAccount | StoreRefusal::SessionEnded) => Self::NotSignedIn,
            StoreError::Refused(StoreRefusal::PasskeyExists) => Self::PasskeyRefused,
            StoreError::Refused(StoreRefusal::LastSecondFactor) => Self::LastSecondFactor,
            StoreError::Refused(_) | StoreError::Outage(_) | StoreError::Fault(_) | StoreError::MigrationBlocked(_) => {
                tracing::error!(error = %causes(&error), "page failed: PostgreSQL error");
                Self::Unavailable
            }
        }
    }
}

impl From<LedgerError> for PortalError {
    fn from(error: LedgerError) -> Self {
        tracing::error!(error = %causes(&error), "page failed: Redis error");
        Self::Unavailable
    }
}

impl From<PasswordQueueFull> for PortalError {
    fn from(PasswordQueueFull: PasswordQueueFull) -> Self {
        Self::Busy
    }
}

impl From<RetryAfter> for PortalError {
    fn from(wait: RetryAfter) -> Self {
        Self::Throttled(wait)
    }
}

/// Passes the error to [`render_errors`](crate::error_page::render_errors), which knows the visitor.
impl IntoResponse for PortalError {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
