//! Errors of the management API, in the format of the API.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use ipseity_domain::{FailedAttempt, TokenScope, causes};
use ipseity_store::{StoreError, StoreRefusal};
use serde_json::{Value, json};

use crate::auth::throttle::RetryAfter;
use crate::error::PortalError;

/// Why a request of the management API is refused.
#[derive(Clone, Debug)]
pub(crate) enum ManageError {
    /// There is no bearer token.
    MissingToken,
    /// The token does not exist, or was revoked.
    InvalidToken,
    ExpiredToken,
    /// The bearer token is an API key.
    KeyInsteadOfToken,
    /// The token was sent over plain HTTP.
    HttpsRequired,
    /// The request comes from a page in a browser.
    FromPage,
    /// The token does not have this scope.
    ScopeMissing(TokenScope),
    /// The operator requires two-factor authentication, and the account has none.
    TwoFactorRequired,
    /// The owner does not let tokens resume keys.
    ResumeNotAllowed,
    /// The resource does not exist or belongs to another account.
    NotFound,
    /// Something in the request is wrong.
    Invalid(String),
    KeyLimitReached(i32),
    ChannelLimitReached,
    RestrictionsNotEnabled,
    /// The token has sent too many requests.
    TokenLimited(u64),
    /// The network has sent too many unknown tokens.
    NetworkLimited(u64),
    /// The account was changed too often.
    ChangesLimited(u64),
    /// The key was resumed less than a minute ago.
    ResumedRecently(u64),
    /// This node is remote. Home is at this URL.
    NotAtHome(String),
    /// The cause is logged where it occurs and never sent to the client.
    Internal,
}

impl ManageError {
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::MissingToken | Self::InvalidToken | Self::ExpiredToken | Self::KeyInsteadOfToken => {
                StatusCode::UNAUTHORIZED
            }
            Self::HttpsRequired | Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::FromPage | Self::ScopeMissing(_) | Self::TwoFactorRequired | Self::ResumeNotAllowed => {
                StatusCode::FORBIDDEN
            }
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::KeyLimitReached(_) | Self::ChannelLimitReached | Self::RestrictionsNotEnabled => StatusCode::CONFLICT,
            Self::TokenLimited(_) | Self::NetworkLimited(_) | Self::ChangesLimited(_) | Self::ResumedRecently(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::NotAtHome(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::MissingToken => "missing_token",
            Self::InvalidToken | Self::ExpiredToken | Self::KeyInsteadOfToken => "invalid_token",
            Self::HttpsRequired => "https_required",
            Self::FromPage => "origin_not_allowed",
            Self::ScopeMissing(_) => "insufficient_scope",
            Self::TwoFactorRequired => "two_factor_required",
            Self::ResumeNotAllowed => "resume_not_allowed",
            Self::NotFound => "not_found",
            Self::Invalid(_) => "bad_request",
            Self::KeyLimitReached(_) | Self::ChannelLimitReached => "limit_reached",
            Self::RestrictionsNotEnabled => "restrictions_not_enabled",
            Self::TokenLimited(_) | Self::NetworkLimited(_) | Self::ChangesLimited(_) | Self::ResumedRecently(_) => {
                "rate_limit_exceeded"
            }
            Self::NotAtHome(_) => "misdirected_request",
            Self::Internal => "internal_error",
        }
    }

    fn message(&self, base_url: &str) -> String {
        let tokens = format!("{base_url}/account/tokens");
        match self {
            Self::MissingToken => {
                format!("Personal token missing. Send `Authorization: Bearer <TOKEN>`. Create one at {tokens}.")
            }
            Self::InvalidToken => format!(
                "This personal token does not exist. Check that you copied all 52 characters, and that it was not \
                 revoked at {tokens}."
            ),
            Self::ExpiredToken => format!("This personal token has expired. Create another at {tokens}."),
            Self::KeyInsteadOfToken => format!(
                "An API key cannot manage keys. Send a personal token, which starts with `ipm_`. Create one at {tokens}."
            ),
            Self::HttpsRequired => {
                format!("Token sent over plain HTTP, where others can read it. Revoke it at {tokens}. Use {base_url}.")
            }
            Self::FromPage => {
                "The management API does not answer pages in browsers: a page must not have a token. Send the request \
                 from a server."
                    .to_owned()
            }
            Self::ScopeMissing(scope) => {
                format!("This token does not have the scope `{scope}`. Create one that has it at {tokens}.")
            }
            Self::TwoFactorRequired => format!(
                "This service requires two-factor authentication, and this account has none. Set it up at \
                 {base_url}/account/two-factor."
            ),
            Self::ResumeNotAllowed => {
                format!("This account does not let tokens resume keys. Its owner can allow it at {tokens}.")
            }
            Self::NotFound => "Your account has no such resource. It may have been deleted.".to_owned(),
            Self::Invalid(reason) => format!("The request is not valid: {reason}. Nothing changed."),
            Self::KeyLimitReached(keys_max) => {
                format!("The account has reached its limit of {keys_max} keys. Delete one to create another.")
            }
            Self::ChannelLimitReached => {
                "The account has reached its limit of channels. Delete one to create another.".to_owned()
            }
            Self::RestrictionsNotEnabled => {
                "The operator of this service has not enabled restrictions yet. Leave them out, or ask the operator."
                    .to_owned()
            }
            Self::TokenLimited(retry_after_s) => {
                format!("This token has sent too many requests. Try again in {retry_after_s} s.")
            }
            Self::NetworkLimited(retry_after_s) => {
                format!("Your network has sent too many unknown tokens. Try again in {retry_after_s} s.")
            }
            Self::ChangesLimited(retry_after_s) => format!(
                "The account was changed too often. Try again in {retry_after_s} s. You can still deactivate and delete \
                 keys."
            ),
            Self::ResumedRecently(retry_after_s) => {
                format!("A key can be resumed once a minute. Try again in {retry_after_s} s.")
            }
            Self::NotAtHome(home_url) => format!("This server does not manage keys. Send the request to {home_url}."),
            Self::Internal => "Something failed on our side. Please retry.".to_owned(),
        }
    }

    const fn retry_after_s(&self) -> Option<u64> {
        if let Self::TokenLimited(wait_s)
        | Self::NetworkLimited(wait_s)
        | Self::ChangesLimited(wait_s)
        | Self::ResumedRecently(wait_s) = self
        {
            Some(*wait_s)
        } else {
            None
        }
    }

    /// The body of the response.
    pub(super) fn body(&self, base_url: &str) -> Value {
        let page = if matches!(self, Self::Internal) { "errors" } else { "management" };
        json!({
            "error": self.code(),
            "message": self.message(base_url),
            "docs": format!("{base_url}/docs/{page}#{}", self.code()),
        })
    }

    /// The response.
    pub(super) fn response(&self, base_url: &str) -> Response {
        let mut response = json_response(self.status(), &self.body(base_url));
        let headers = response.headers_mut();
        if let Some(retry_after_s) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response.extensions_mut().insert(FailedAttempt);
        }
        response
    }
}

/// A JSON response with a newline at the end, which terminals and text tools expect.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

/// Seconds to wait, at least one.
pub(super) fn wait_s(RetryAfter(wait): RetryAfter) -> u64 {
    wait.as_secs_f64().ceil().max(1.0) as u64
}

impl From<StoreError> for ManageError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Refused(StoreRefusal::UnknownKey | StoreRefusal::UnknownChannel) => Self::NotFound,
            StoreError::Refused(StoreRefusal::UnknownAccount | StoreRefusal::UnknownToken) => Self::InvalidToken,
            StoreError::Refused(StoreRefusal::KeyLimitReached { keys_max }) => Self::KeyLimitReached(*keys_max),
            StoreError::Refused(StoreRefusal::ChannelLimitReached) => Self::ChannelLimitReached,
            StoreError::Refused(StoreRefusal::RestrictionsNotEnabled) => Self::RestrictionsNotEnabled,
            StoreError::Refused(StoreRefusal::ResumedRecently { retry_after_s }) => {
                Self::ResumedRecently(u64::try_from(*retry_after_s).unwrap_or(1).max(1))
            }
            StoreError::Refused(_) | StoreError::Outage(_) | StoreError::Fault(_) | StoreError::MigrationBlocked(_) => {
                tracing::error!(error = %causes(&error), "management request failed: PostgreSQL error");
                Self::Internal
            }
        }
    }
}

/// The error of the lookup of a token, or of reading usage.
impl From<PortalError> for ManageError {
    fn from(error: PortalError) -> Self {
        if let PortalError::Throttled(wait) = error {
            Self::NetworkLimited(wait_s(wait))
        } else if matches!(error, PortalError::NotFound) {
            Self::NotFound
        } else {
            Self::Internal
        }
    }
}

/// Passes the error to the guard, which knows the URL of the service.
impl IntoResponse for ManageError {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
