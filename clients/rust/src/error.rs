//! All that can go wrong, and whose turn it then is.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::rate_limit::{RateLimit, header_value, retry_after};

/// Why there are no facts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client cannot be made: the base URL is no address, the key holds what no header can, or TLS trusts nobody.
    #[error("the client cannot be made: {0}")]
    Setup(String),
    /// No answer came: no connection, or one that broke. The lookup may have been charged.
    #[error("the service cannot be reached")]
    Connection(#[source] reqwest::Error),
    /// No answer came in this time. The lookup may have been charged.
    #[error("no answer came within {0:?}")]
    Timeout(Duration),
    /// The key's scope is narrower than this one, the client's: the lookup was answered, and charged, with fewer fields
    /// than its type has.
    #[error("the key's scope is narrower than `{0}`; ask for less, or use another key")]
    InsufficientScope(&'static str),
    /// The service, or something in front of it, answered that it does not tell.
    #[error("{0}")]
    Api(Box<ApiError>),
}

/// An answer without facts.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The error's code, such as `invalid_api_key`; empty when the answer was not the service's own.
    pub code: String,
    /// What happened, in a sentence.
    pub message: String,
    /// Where the error is explained.
    pub docs: String,
    /// The request's id, to be told when you ask for help.
    pub request_id: Option<String>,
    /// How long to wait before it is worth asking again, when the answer says so.
    pub retry_after: Option<Duration>,
    /// Why.
    pub kind: ApiErrorKind,
}

/// Why the service does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApiErrorKind {
    /// 401: the key is empty.
    MissingKey,
    /// 401: no such key exists.
    InvalidKey,
    /// 403: the key is deactivated; its owner can reactivate it.
    InactiveKey,
    /// 403: the key is paused, because it exceeded the burst limit; its owner can resume it, and waiting does not help.
    PausedKey,
    /// 429: this request exceeded the burst limit and paused the key.
    BurstLimit {
        /// The limit of a minute.
        rate_limit: RateLimit,
    },
    /// 429: the key's requests for today are used up.
    DailyQuota {
        /// The limit of a day.
        rate_limit: RateLimit,
        /// Where to ask for more.
        enterprise: String,
    },
    /// 429: the demo's requests for today, shared by all callers, are used up.
    DemoQuota {
        /// The limit of a day.
        rate_limit: RateLimit,
        /// Where to get a key.
        signup: String,
    },
    /// 404: the base URL leads to nothing.
    NotFound,
    /// 405: a proxy on the way changed the method.
    MethodNotAllowed,
    /// 414: the request's address is too long.
    UriTooLong,
    /// 500: something failed inside the service.
    Internal,
    /// Any other status, or a body that is not the service's: most likely of a proxy in front of it.
    Unexpected,
}

/// The body of every refusal.
#[derive(Default, Deserialize)]
struct ErrorBody {
    error: String,
    message: String,
    docs: String,
    enterprise: Option<String>,
    signup: Option<String>,
}

impl ApiError {
    /// Reads an answer that holds no facts.
    pub(crate) fn from_response(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
            message: format!(
                "the answer has status {status} and is not one of Ipseity's; does the base URL lead to it?"
            ),
            ..ErrorBody::default()
        });
        Self {
            kind: ApiErrorKind::from_body(&body, headers),
            status,
            code: body.error,
            message: body.message,
            docs: body.docs,
            request_id: header_value(headers, "x-request-id").map(str::to_owned),
            retry_after: retry_after(headers),
        }
    }
}

impl ApiErrorKind {
    /// Two codes have several causes: what the bodies carry, and their frozen `docs` anchors, tell them apart.
    fn from_body(body: &ErrorBody, headers: &HeaderMap) -> Self {
        let rate_limit = || RateLimit::from_headers(headers);
        match body.error.as_str() {
            "missing_api_key" => Self::MissingKey,
            "invalid_api_key" => Self::InvalidKey,
            "inactive_api_key" if body.docs.ends_with("#paused-keys") => Self::PausedKey,
            "inactive_api_key" => Self::InactiveKey,
            "rate_limit_exceeded" => match (&body.enterprise, &body.signup) {
                (Some(enterprise), _) => Self::DailyQuota { rate_limit: rate_limit(), enterprise: enterprise.clone() },
                (None, Some(signup)) => Self::DemoQuota { rate_limit: rate_limit(), signup: signup.clone() },
                (None, None) => Self::BurstLimit { rate_limit: rate_limit() },
            },
            "not_found" => Self::NotFound,
            "method_not_allowed" => Self::MethodNotAllowed,
            "uri_too_long" => Self::UriTooLong,
            "internal_error" => Self::Internal,
            _ => Self::Unexpected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_ipseity_response_is_unexpected() {
        for body in [&b""[..], b"<h1>Bad gateway</h1>", b"[]", br#"{"error":502}"#] {
            let error = ApiError::from_response(502, &HeaderMap::new(), body);
            assert_eq!((error.kind, error.code.as_str()), (ApiErrorKind::Unexpected, ""));
            assert!(error.message.contains("502"));
        }
    }
}
