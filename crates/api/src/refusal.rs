//! Every refusal that the API can give: status, code, message, link and headers in one list.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use ledger::{Charged, Moment};
use serde::Serialize;

use crate::dress::HEADERS;
use crate::limits::Limits;
use crate::links::Links;

/// A request that is not answered, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    MissingKey,
    InvalidKey,
    Inactive,
    Paused,
    /// The request that exceeded the burst limit and paused its key.
    Burst(Moment),
    DaySpent(Charged),
    DemoSpent(Charged),
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
            Self::Burst(_) | Self::DaySpent(_) | Self::DemoSpent(_) => StatusCode::TOO_MANY_REQUESTS,
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
            Self::Burst(_) | Self::DaySpent(_) | Self::DemoSpent(_) => "rate_limit_exceeded",
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
            Self::Burst(_) => "burst-limit",
            Self::DaySpent(_) => "daily-quota",
            Self::DemoSpent(_) => "demo-quota",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong => "bad_request",
            Self::Internal => "internal_error",
        }
    }

    /// How metrics call it: the two 403s and the three 429s are told apart.
    pub(crate) const fn outcome(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Burst(_) => "burst",
            Self::DaySpent(_) => "day_spent",
            Self::DemoSpent(_) => "demo_spent",
            Self::MissingKey
            | Self::InvalidKey
            | Self::Inactive
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::UriTooLong
            | Self::Internal => self.code(),
        }
    }

    fn message(self, links: &Links) -> String {
        let dashboard = &links.dashboard;
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
            Self::Burst(_) => format!(
                "Burst limit exceeded: more than 300 requests in a minute. The key is now paused \
                 until its owner resumes it at {dashboard}."
            ),
            Self::DaySpent(charged) => format!(
                "The daily quota of {} requests is used up. It resets at midnight UTC; ask us if you need more.",
                charged.limit
            ),
            Self::DemoSpent(charged) => format!(
                "The demo's quota of {} requests a day, shared by all callers, is used up. It resets at midnight UTC; \
                 a key of your own is free.",
                charged.limit
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
    pub(crate) fn body(self, links: &Links) -> ErrorResponse<'_> {
        ErrorResponse {
            error: self.code(),
            message: self.message(links),
            docs: format!("{}#{}", links.docs, self.anchor()),
            enterprise: matches!(self, Self::DaySpent(_)).then_some(links.enterprise.as_str()),
            signup: matches!(self, Self::DemoSpent(_)).then_some(links.signup.as_str()),
        }
    }
}

/// How refusals are put: those that are always the same are written at the start.
pub(crate) struct Wordings {
    links: Links,
    same: [(Refusal, Bytes); 4],
}

impl Wordings {
    pub(crate) fn new(links: Links) -> Self {
        let same = [Refusal::MissingKey, Refusal::InvalidKey, Refusal::Inactive, Refusal::Paused];
        Self { same: same.map(|refusal| (refusal, written(refusal, &links))), links }
    }

    fn body(&self, refusal: Refusal) -> Bytes {
        let same = self.same.iter().find(|(same, _)| *same == refusal);
        same.map_or_else(|| written(refusal, &self.links), |(_, body)| body.clone())
    }

    /// The answer.
    pub(crate) fn answer(&self, refusal: Refusal) -> Response {
        let mut response = Response::new(Body::from(self.body(refusal)));
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match refusal {
            Refusal::MissingKey | Refusal::InvalidKey => {
                // RFC 9110, section 15.5.2, requires it.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Refusal::Burst(now) => Limits::of_burst(now).write_refused(headers),
            Refusal::DaySpent(charged) | Refusal::DemoSpent(charged) => Limits::of_day(&charged).write_refused(headers),
            // The router knows what the address allows, and says so.
            Refusal::MethodNotAllowed => {}
            Refusal::Inactive | Refusal::Paused | Refusal::NotFound | Refusal::UriTooLong | Refusal::Internal => {}
        }
        response
    }
}

fn written(refusal: Refusal, links: &Links) -> Bytes {
    serde_json::to_vec(&refusal.body(links)).unwrap_or_default().into()
}
