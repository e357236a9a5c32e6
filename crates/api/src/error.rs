//! Every refusal of the API: status, code, message, documentation link and headers.

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use ipseity_domain::{BURST_LIMIT, BURST_WINDOW_S, FailedAttempt, RequestError};
use ipseity_ledger::{LedgerTime, Quota};
use serde::Serialize;

use crate::public_urls::PublicUrls;
use crate::response::rate_limit_headers::RateLimitHeaders;
use crate::response::{json_line, json_response};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    MissingKey,
    /// The `Authorization` header has a key, but not the scheme `Bearer`.
    MissingScheme,
    InvalidKey,
    /// The client sent a key over plain HTTP.
    HttpsRequired,
    Inactive,
    Paused,
    /// This request exceeded the burst limit and paused its key.
    BurstExceeded(LedgerTime),
    QuotaExhausted(Quota),
    DemoExhausted(Quota),
    /// The client's network has used its share of the demo's quota.
    DemoShareUsed(Quota),
    NotFound,
    MethodNotAllowed,
    UriTooLong,
    /// The edge refuses the request, so it belongs to no operation.
    BadRequest(RequestError),
    /// The cause is logged where it occurs and never sent to the client.
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
            Self::MissingKey | Self::MissingScheme | Self::InvalidKey => StatusCode::UNAUTHORIZED,
            Self::HttpsRequired => StatusCode::BAD_REQUEST,
            Self::Inactive | Self::Paused => StatusCode::FORBIDDEN,
            Self::BurstExceeded(_) | Self::QuotaExhausted(_) | Self::DemoExhausted(_) | Self::DemoShareUsed(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UriTooLong | Self::BadRequest(RequestError::UriTooLong) => StatusCode::URI_TOO_LONG,
            Self::BadRequest(RequestError::HeadersTooLarge) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::MissingKey | Self::MissingScheme => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::HttpsRequired => "https_required",
            Self::Inactive | Self::Paused => "inactive_api_key",
            Self::BurstExceeded(_) | Self::QuotaExhausted(_) | Self::DemoExhausted(_) | Self::DemoShareUsed(_) => {
                "rate_limit_exceeded"
            }
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong | Self::BadRequest(RequestError::UriTooLong) => "uri_too_long",
            Self::BadRequest(RequestError::HeadersTooLarge) => "headers_too_large",
            Self::BadRequest(_) => "bad_request",
            Self::Internal => "internal_error",
        }
    }

    /// The anchor in the documentation. It must not change, because existing links use it.
    pub(crate) const fn anchor(self) -> &'static str {
        match self {
            Self::MissingKey | Self::MissingScheme => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::HttpsRequired => "https_required",
            Self::Inactive => "inactive-keys",
            Self::Paused => "paused-keys",
            Self::BurstExceeded(_) => "burst-limit",
            Self::QuotaExhausted(_) => "daily-quota",
            Self::DemoExhausted(_) | Self::DemoShareUsed(_) => "demo-quota",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong | Self::BadRequest(_) => "bad_request",
            Self::Internal => "internal_error",
        }
    }

    /// The label in metrics. Unlike the code, it distinguishes errors with the same code.
    pub(crate) const fn outcome_label(self) -> &'static str {
        match self {
            Self::MissingScheme => "missing_scheme",
            Self::Paused => "paused",
            Self::BurstExceeded(_) => "burst_exceeded",
            Self::QuotaExhausted(_) => "quota_exhausted",
            Self::DemoExhausted(_) => "demo_exhausted",
            Self::DemoShareUsed(_) => "demo_share_used",
            Self::MissingKey
            | Self::InvalidKey
            | Self::HttpsRequired
            | Self::Inactive
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::UriTooLong
            | Self::BadRequest(_)
            | Self::Internal => self.code(),
        }
    }

    /// A short description for the OpenAPI document. Starts in lower case, because several may be joined.
    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::MissingKey => "API key missing",
            Self::MissingScheme => "scheme `Bearer` missing",
            Self::InvalidKey => "API key does not exist",
            Self::HttpsRequired => "API key sent over plain HTTP",
            Self::Inactive => "API key deactivated",
            Self::Paused => "API key paused",
            Self::BurstExceeded(_) => "burst limit exceeded, which pauses the key",
            Self::QuotaExhausted(_) => "daily quota reached",
            Self::DemoExhausted(_) => "shared daily demo quota reached",
            Self::DemoShareUsed(_) => "the network's share of the demo quota reached",
            Self::NotFound => "not found",
            Self::MethodNotAllowed => "method not allowed",
            Self::UriTooLong | Self::BadRequest(RequestError::UriTooLong) => "URL too long",
            Self::BadRequest(RequestError::HeadersTooLarge) => "headers too large",
            Self::BadRequest(_) => "malformed request",
            Self::Internal => "internal error, please retry",
        }
    }

    pub(crate) fn message(self, public_urls: &PublicUrls) -> String {
        let dashboard = &public_urls.dashboard;
        match self {
            Self::MissingKey => {
                "API key missing. Send `Authorization: Bearer <API_KEY>`, or the query parameter `key=<API_KEY>`."
                    .to_owned()
            }
            Self::MissingScheme => "Scheme `Bearer` missing. Send `Authorization: Bearer <API_KEY>`, or the query parameter `key=<API_KEY>`."
                .to_owned(),
            Self::InvalidKey => {
                "This API key does not exist. Check that you copied all 52 characters, and that it was \
                not deleted."
                    .to_owned()
            }
            Self::HttpsRequired => format!(
                "Key sent over plain HTTP, where others can read it. Rotate it at {dashboard}. Use {}.",
                public_urls.base
            ),
            Self::Inactive => format!("This API key is deactivated. Its owner can reactivate it at {dashboard}."),
            Self::Paused => format!(
                "Key paused: over {BURST_LIMIT} requests in {BURST_WINDOW_S} s. Resume it at {dashboard}. \
                 It won't resume on its own."
            ),
            Self::BurstExceeded(_) => format!(
                "Burst limit exceeded: {BURST_LIMIT} requests in {BURST_WINDOW_S} s. The key is now paused. \
                 Resume it at {dashboard}."
            ),
            Self::QuotaExhausted(quota) => format!(
                "Daily quota of {} requests reached. It resets at midnight UTC. Contact us if you need more.",
                quota.limit
            ),
            Self::DemoExhausted(quota) => format!(
                "Shared demo quota of {} requests reached. It resets at midnight UTC. Get a free API key.",
                quota.limit
            ),
            Self::DemoShareUsed(quota) => format!(
                "Your network has used its {} demo requests today. They reset at midnight UTC. Get a free API key.",
                quota.limit
            ),
            Self::NotFound => "Not found. The lookup is at /api/v1/ip, the demo at /api/v1/ip/demo.".to_owned(),
            Self::MethodNotAllowed => "Method not allowed. The Allow header lists the allowed methods.".to_owned(),
            Self::UriTooLong | Self::BadRequest(RequestError::UriTooLong) => "URL too long.".to_owned(),
            Self::BadRequest(RequestError::Malformed) => "This request is not valid HTTP.".to_owned(),
            Self::BadRequest(RequestError::InvalidHost) => {
                "The Host header is missing, repeated or invalid. Send it exactly once.".to_owned()
            }
            Self::BadRequest(RequestError::HeadersTooLarge) => {
                "The request headers are too large. Send fewer or shorter headers.".to_owned()
            }
            Self::BadRequest(RequestError::PlainHttp) => {
                "This port expects HTTPS. Use a URL that starts with https://.".to_owned()
            }
            Self::Internal => "Something went wrong on our side. Please retry.".to_owned(),
        }
    }

    /// The response body.
    pub(crate) fn body(self, public_urls: &PublicUrls) -> ErrorResponse<'_> {
        ErrorResponse {
            error: self.code(),
            message: self.message(public_urls),
            docs: format!("{}#{}", public_urls.docs, self.anchor()),
            enterprise: matches!(self, Self::QuotaExhausted(_)).then_some(public_urls.enterprise.as_str()),
            signup: matches!(self, Self::DemoExhausted(_) | Self::DemoShareUsed(_))
                .then_some(public_urls.signup.as_str()),
        }
    }
}

/// Renders refusals. Bodies that never change are rendered once at startup.
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

    pub(crate) fn body(&self, refusal: Refusal) -> Bytes {
        let prerendered = self.prerendered.iter().find(|(prerendered, _)| *prerendered == refusal);
        prerendered.map_or_else(|| render_error_body(refusal, &self.public_urls), |(_, body)| body.clone())
    }

    /// Builds the response to a refused request.
    pub(crate) fn response(&self, refusal: Refusal) -> Response {
        let mut response = json_response(self.body(refusal));
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        match refusal {
            Refusal::MissingKey | Refusal::MissingScheme | Refusal::InvalidKey => {
                // Required by RFC 9110, section 15.5.2.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response.extensions_mut().insert(FailedAttempt);
            }
            Refusal::BurstExceeded(now) => RateLimitHeaders::burst(now).write_with_retry_after(headers),
            Refusal::QuotaExhausted(quota) | Refusal::DemoExhausted(quota) | Refusal::DemoShareUsed(quota) => {
                RateLimitHeaders::daily(&quota).write_with_retry_after(headers)
            }
            // The router adds the Allow header.
            Refusal::MethodNotAllowed => {}
            Refusal::HttpsRequired
            | Refusal::Inactive
            | Refusal::Paused
            | Refusal::NotFound
            | Refusal::UriTooLong
            | Refusal::BadRequest(_)
            | Refusal::Internal => {}
        }
        response
    }
}

fn render_error_body(refusal: Refusal, public_urls: &PublicUrls) -> Bytes {
    json_line(&refusal.body(public_urls)).unwrap_or_default().into()
}
