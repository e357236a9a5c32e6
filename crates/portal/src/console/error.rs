//! Errors of the console's pages and forms. `guard` renders them.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipseity_domain::causes;
use ipseity_store::{OperatorRole, StoreError, StoreRefusal};

use crate::auth::throttle::RetryAfter;
use crate::auth::webauthn::WebauthnError;
use crate::error_page::format_minutes;
use crate::view::filters::capitalize;

/// Why a page could not be shown or a form was rejected.
#[derive(Debug)]
pub(crate) enum ConsoleError {
    /// The visitor is not signed in.
    NotSignedIn,
    /// The operator needs at least this role.
    RoleNeeded(OperatorRole),
    /// The CSRF token is missing, from another session, or from before the last sign-in.
    StaleForm,
    /// Another site submitted the form.
    CrossOrigin,
    /// The account, key or page does not exist.
    NotFound,
    /// The link was used or has expired.
    LinkExpired,
    /// The passkey is unknown or its verification failed.
    PasskeyRefused,
    /// The sign-in with another provider failed, for this reason.
    ProviderRefused(String),
    /// The form cannot be saved, for this reason.
    Rejected(String),
    /// Too many attempts to sign in, or too many actions.
    Throttled(RetryAfter),
    /// PostgreSQL or Redis failed. The cause is logged where it occurs.
    Unavailable,
}

impl ConsoleError {
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::NotSignedIn => StatusCode::UNAUTHORIZED,
            Self::RoleNeeded(_) | Self::StaleForm | Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::PasskeyRefused | Self::ProviderRefused(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::LinkExpired => StatusCode::GONE,
            Self::Rejected(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Throttled(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn heading_and_message(&self) -> (&'static str, String) {
        let (heading, message) = match self {
            Self::NotSignedIn => ("Sign in", "Sign in to see this page.".to_owned()),
            Self::RoleNeeded(role) => (
                "Not allowed",
                format!("This needs the role {}. Ask an admin to change your role, or to do it.", role.name()),
            ),
            Self::StaleForm => (
                "Session expired",
                "You signed in or out since you opened this form, or cookies are disabled. Nothing changed. Please try again."
                    .to_owned(),
            ),
            Self::CrossOrigin => {
                ("Request blocked", "Another site submitted this form. Nothing changed.".to_owned())
            }
            Self::NotFound => ("Page not found", "It may have been deleted, or the address has a typing error.".to_owned()),
            Self::LinkExpired => (
                "This link has expired or was already used",
                "Links work once, for a limited time. Ask an admin for another one, or run `ipseity operator link`.".to_owned(),
            ),
            Self::PasskeyRefused => (
                "Passkey not accepted",
                "The passkey isn’t registered here, or it took longer than five minutes. Try again.".to_owned(),
            ),
            Self::ProviderRefused(reason) => ("Sign-in failed", reason.clone()),
            Self::Rejected(reason) => ("Nothing changed", reason.clone()),
            Self::Throttled(RetryAfter(wait)) => (
                "Too many attempts",
                format!("Try again in {}. Nothing changed.", format_minutes(wait.as_secs())),
            ),
            Self::Unavailable => (
                "Stores unavailable",
                "PostgreSQL or Redis doesn’t answer. The log of the node says why.".to_owned(),
            ),
        };
        (heading, message)
    }
}

impl From<StoreError> for ConsoleError {
    fn from(error: StoreError) -> Self {
        let StoreError::Refused(refusal) = &error else {
            tracing::error!(error = %causes(&error), "page of the console failed: PostgreSQL error");
            return Self::Unavailable;
        };
        let is_missing =
            matches!(refusal, StoreRefusal::UnknownKey | StoreRefusal::UnknownAccount | StoreRefusal::UnknownOperator);
        if is_missing {
            Self::NotFound
        } else if *refusal == StoreRefusal::InvalidOperatorLink {
            Self::LinkExpired
        } else if *refusal == StoreRefusal::PasskeyExists {
            Self::Rejected("Another operator, or you, already signs in with this.".to_owned())
        } else if *refusal == StoreRefusal::PasskeyLimitReached {
            Self::Rejected("You have ten of these. Remove one first.".to_owned())
        } else {
            Self::Rejected(capitalize(&refusal.to_string()))
        }
    }
}

impl From<RetryAfter> for ConsoleError {
    fn from(wait: RetryAfter) -> Self {
        Self::Throttled(wait)
    }
}

/// Failed verifications are expected and not logged.
impl From<WebauthnError> for ConsoleError {
    fn from(_: WebauthnError) -> Self {
        Self::PasskeyRefused
    }
}

impl From<serde_json::Error> for ConsoleError {
    fn from(_: serde_json::Error) -> Self {
        Self::PasskeyRefused
    }
}

/// Passes the error to the guard, which knows the visitor.
impl IntoResponse for ConsoleError {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
