//! Every refusal that the API can give: status, code, message, link and headers in one list.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use ipseity_ledger::{LedgerTime, Quota};
use serde::Serialize;

use crate::public_urls::PublicUrls;
use crate::response::rate_limit_headers::RateLimitHeaders;
use crate::service::HEADER_CAPACITY;

/// A request that is not answered, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    MissingKey,
    InvalidKey,
    Inactive,
    Paused,
    /// The request that exceeded the burst limit and paused its key.
    BurstExceeded(LedgerTime),
    QuotaExhausted(Quota),
    DemoExhausted(Quota),
    NotFound,
    MethodNotAllowed,
    UriTooLong,
    /// The cause is logged where it arose, and never sent.
    Internal,
}

#[derive(Serialize)]
pub(crate) struct ErrorResponse<'a> {
    error: &'static str,
    message: String,
    docs: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    enterprise: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signup: Option<&'a str>,
}

impl Refusal {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::MissingKey | Self::InvalidKey => StatusCode::UNAUTHORIZED,
            Self::Inactive | Self::Paused => StatusCode::FORBIDDEN,
            Self::BurstExceeded(_) | Self::QuotaExhausted(_) | Self::DemoExhausted(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::Inactive | Self::Paused => "inactive_api_key",
            Self::BurstExceeded(_) | Self::QuotaExhausted(_) | Self::DemoExhausted(_) => "rate_limit_exceeded",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong => "uri_too_long",
            Self::Internal => "internal_error",
        }
    }

    /// The section of the documentation. Frozen: links in the field must not rot.
    const fn anchor(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::Inactive => "inactive-keys",
            Self::Paused => "paused-keys",
            Self::BurstExceeded(_) => "burst-limit",
            Self::QuotaExhausted(_) => "daily-quota",
            Self::DemoExhausted(_) => "demo-quota",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong => "bad_request",
            Self::Internal => "internal_error",
        }
    }

    /// How metrics call it: the two 403s and the three 429s are told apart.
    pub(crate) const fn outcome_label(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::BurstExceeded(_) => "burst_exceeded",
            Self::QuotaExhausted(_) => "quota_exhausted",
            Self::DemoExhausted(_) => "demo_exhausted",
            Self::MissingKey
            | Self::InvalidKey
            | Self::Inactive
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::UriTooLong
            | Self::Internal => self.code(),
        }
    }

    fn message(self, public_urls: &PublicUrls) -> String {
        let dashboard = &public_urls.dashboard;
        match self {
            Self::MissingKey => "No API key was sent. Send it in the header `Authorization: Bearer <API_KEY>`, \
                or, where headers cannot be set, as the query parameter `key=<API_KEY>`."
                .to_owned(),
            Self::InvalidKey => "This API key does not exist. Check that it was copied whole (52 characters, \
                beginning with `ips_`) and that it was not deleted."
                .to_owned(),
            Self::Inactive => format!("This API key is deactivated. Its owner can reactivate it at {dashboard}."),
            Self::Paused => format!(
                "This API key is paused, because it exceeded 300 requests in a minute. \
                 Its owner can resume it at {dashboard}; waiting does not help."
            ),
            Self::BurstExceeded(_) => format!(
                "Burst limit exceeded: more than 300 requests in a minute. The key is now paused \
                 until its owner resumes it at {dashboard}."
            ),
            Self::QuotaExhausted(quota) => format!(
                "The daily quota of {} requests is used up. It resets at midnight UTC; ask us if you need more.",
                quota.limit
            ),
            Self::DemoExhausted(quota) => format!(
                "The demo's quota of {} requests a day, shared by all callers, is used up. It resets at midnight UTC; \
                 a key of your own is free.",
                quota.limit
            ),
            Self::NotFound => {
                "There is nothing at this address. The lookup is at /api/v1/ip, the demo at /api/v1/ip/demo.".to_owned()
            }
            Self::MethodNotAllowed => {
                "This address does not answer that method; the Allow header names those that it does.".to_owned()
            }
            Self::UriTooLong => "The request's address is too long.".to_owned(),
            Self::Internal => "Something failed on our side. The request may be sent again.".to_owned(),
        }
    }

    /// The answer's body.
    pub(crate) fn body(self, public_urls: &PublicUrls) -> ErrorResponse<'_> {
        ErrorResponse {
            error: self.code(),
            message: self.message(public_urls),
            docs: format!("{}#{}", public_urls.docs, self.anchor()),
            enterprise: matches!(self, Self::QuotaExhausted(_)).then_some(public_urls.enterprise.as_str()),
            signup: matches!(self, Self::DemoExhausted(_)).then_some(public_urls.signup.as_str()),
        }
    }
}

/// How refusals are put: those that are always the same are written at the start.
pub(crate) struct ErrorBodies {
    public_urls: PublicUrls,
    prerendered: [(Refusal, Bytes); 4],
}

impl ErrorBodies {
    pub(crate) fn new(public_urls: PublicUrls) -> Self {
        let constant_refusals = [Refusal::MissingKey, Refusal::InvalidKey, Refusal::Inactive, Refusal::Paused];
        Self {
            prerendered: constant_refusals.map(|refusal| (refusal, render_error_body(refusal, &public_urls))),
            public_urls,
        }
    }

    fn body(&self, refusal: Refusal) -> Bytes {
        let prerendered = self.prerendered.iter().find(|(prerendered, _)| *prerendered == refusal);
        prerendered.map_or_else(|| render_error_body(refusal, &self.public_urls), |(_, body)| body.clone())
    }

    /// The answer.
    pub(crate) fn response(&self, refusal: Refusal) -> Response {
        let mut response = Response::new(Body::from(self.body(refusal)));
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        headers.reserve(HEADER_CAPACITY);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match refusal {
            Refusal::MissingKey | Refusal::InvalidKey => {
                // RFC 9110, section 15.5.2, requires it.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Refusal::BurstExceeded(now) => RateLimitHeaders::burst(now).write_with_retry_after(headers),
            Refusal::QuotaExhausted(quota) | Refusal::DemoExhausted(quota) => {
                RateLimitHeaders::daily(&quota).write_with_retry_after(headers)
            }
            // The router knows what the address allows, and says so.
            Refusal::MethodNotAllowed => {}
            Refusal::Inactive | Refusal::Paused | Refusal::NotFound | Refusal::UriTooLong | Refusal::Internal => {}
        }
        response
    }
}

fn render_error_body(refusal: Refusal, public_urls: &PublicUrls) -> Bytes {
    serde_json::to_vec(&refusal.body(public_urls)).unwrap_or_default().into()
}
