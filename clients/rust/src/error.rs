//! Errors of a lookup.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::rate_limit::{RateLimit, header_value, retry_after};

/// Why a lookup failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client cannot be created: the base URL is invalid, the key has invalid characters, or TLS setup failed.
    #[error("failed to create the client: {0}")]
    Setup(String),
    /// The connection failed or broke. The lookup may have been charged.
    #[error("failed to reach the service")]
    Connection(#[source] reqwest::Error),
    /// The lookup timed out. It may have been charged.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The source of tickets failed.
    #[error("failed to get a ticket")]
    Ticket(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The key's scope is narrower than this scope of the client. The lookup succeeded and was charged, but lacks
    /// fields of its type.
    #[error("the key's scope is narrower than `{0}`; use a narrower scope or another key")]
    InsufficientScope(&'static str),
    /// The service, or a proxy in front of it, returned an error.
    #[error("{0}")]
    Api(Box<ApiError>),
}

/// An error response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// Error code, such as `invalid_api_key`. Empty if the response is not from the service.
    pub code: String,
    /// Description of the error.
    pub message: String,
    /// URL of the error's documentation.
    pub docs: String,
    /// Request ID. Include it when you contact support.
    pub request_id: Option<String>,
    /// Time to wait, from `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Cause of the error.
    pub kind: ApiErrorKind,
}

/// Cause of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApiErrorKind {
    /// 401: the key is empty.
    MissingKey,
    /// 401: the key does not exist.
    InvalidKey,
    /// 400: the key was sent over plain HTTP. Rotate it, and use an `https` base URL.
    HttpsRequired,
    /// 403: the key is deactivated. Its owner can reactivate it.
    InactiveKey,
    /// 403: the key exceeded the burst limit and is paused until its owner resumes it. Waiting does not help.
    PausedKey,
    /// 403: the key has expired. Its owner can change the expiry.
    ExpiredKey,
    /// 403: the request does not come from an origin that the key or the ticket allows. Or the key has allowed origins, and so
    /// cannot create tickets.
    OriginNotAllowed,
    /// 403: the caller's address is not in one of the key's allowed networks.
    NetworkNotAllowed,
    /// 403: the operator of the service has blocked the caller's network.
    NetworkBlocked,
    /// 403: the key accepts only tickets.
    TicketRequired,
    /// 401: the ticket has expired, is used up, or is not from this service.
    InvalidTicket,
    /// 429: this request exceeded the burst limit and paused the key.
    BurstLimit {
        /// The burst limit, per 60 seconds.
        rate_limit: RateLimit,
    },
    /// 429: the key reached its daily quota.
    DailyQuota {
        /// The daily limit.
        rate_limit: RateLimit,
        /// URL to request a higher limit.
        enterprise: String,
    },
    /// 429: the caller reached the key's limit per caller.
    CallerLimit {
        /// The limit per caller, per 60 seconds.
        rate_limit: RateLimit,
    },
    /// 429: the status of the key was requested too often.
    KeyStatusLimit {
        /// The limit per minute.
        rate_limit: RateLimit,
    },
    /// 429: the key created too many tickets.
    TicketLimit {
        /// The limit per minute.
        rate_limit: RateLimit,
    },
    /// 429: the demo reached its daily quota, which all callers share.
    DemoQuota {
        /// The daily limit.
        rate_limit: RateLimit,
        /// URL to get a key.
        signup: String,
    },
    /// An error of the management API. [`ApiError::code`] says which, such as `insufficient_scope`.
    Management,
    /// 404: the base URL is wrong, or the service has no tickets.
    NotFound,
    /// 405: a proxy changed the method.
    MethodNotAllowed,
    /// 414: the URL is too long.
    UriTooLong,
    /// 421: the base URL is for the other address family.
    MisdirectedRequest,
    /// 400: the request is malformed, for example because a proxy changed it.
    BadRequest,
    /// 431: the headers are too large.
    HeadersTooLarge,
    /// 500: the service failed.
    Internal,
    /// Any other status, or a body that is not from the service; most likely from a proxy in front of it.
    Unexpected,
}

/// Body of an error response.
#[derive(Default, Deserialize)]
struct ErrorBody {
    error: String,
    message: String,
    docs: String,
    enterprise: Option<String>,
    signup: Option<String>,
}

impl ApiError {
    pub(crate) fn from_response(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
            message: format!("Unexpected response with status {status}. Check the base URL."),
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
    /// For three codes, extra fields or the stable `docs` anchor identify the cause.
    fn from_body(body: &ErrorBody, headers: &HeaderMap) -> Self {
        let rate_limit = || RateLimit::from_headers(headers);
        match body.error.as_str() {
            _ if body.docs.contains("/docs/management#") => Self::Management,
            "missing_api_key" => Self::MissingKey,
            "invalid_api_key" if body.docs.ends_with("#tickets") => Self::InvalidTicket,
            "invalid_api_key" => Self::InvalidKey,
            "https_required" => Self::HttpsRequired,
            "inactive_api_key" if body.docs.ends_with("#paused-keys") => Self::PausedKey,
            "inactive_api_key" if body.docs.ends_with("#expired-keys") => Self::ExpiredKey,
            "inactive_api_key" => Self::InactiveKey,
            "origin_not_allowed" => Self::OriginNotAllowed,
            "network_not_allowed" => Self::NetworkNotAllowed,
            "network_blocked" => Self::NetworkBlocked,
            "ticket_required" => Self::TicketRequired,
            "rate_limit_exceeded" => match (&body.enterprise, &body.signup) {
                (Some(enterprise), _) => Self::DailyQuota { rate_limit: rate_limit(), enterprise: enterprise.clone() },
                (None, Some(signup)) => Self::DemoQuota { rate_limit: rate_limit(), signup: signup.clone() },
                (None, None) if body.docs.ends_with("#caller-limit") => Self::CallerLimit { rate_limit: rate_limit() },
                (None, None) if body.docs.ends_with("#key-status-limit") => {
                    Self::KeyStatusLimit { rate_limit: rate_limit() }
                }
                (None, None) if body.docs.ends_with("#ticket-limit") => Self::TicketLimit { rate_limit: rate_limit() },
                (None, None) => Self::BurstLimit { rate_limit: rate_limit() },
            },
            "not_found" => Self::NotFound,
            "method_not_allowed" => Self::MethodNotAllowed,
            "uri_too_long" => Self::UriTooLong,
            "misdirected_request" => Self::MisdirectedRequest,
            "bad_request" => Self::BadRequest,
            "headers_too_large" => Self::HeadersTooLarge,
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
    #[test]
    fn every_documented_error_has_a_kind() {
        let documentation = include_str!("../../../docs/site/errors.md");
        for body in documentation.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let error = ApiError::from_response(500, &HeaderMap::new(), body.as_bytes());
            assert_ne!(error.kind, ApiErrorKind::Unexpected, "{body}");
        }
    }
}
