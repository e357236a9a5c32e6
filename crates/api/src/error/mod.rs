//! Every refusal of the API: status, code, message, documentation link and headers.

mod bodies;

use http::StatusCode;
use ipseity_domain::{BURST_WINDOW_S, RequestError};
use ipseity_ledger::{LedgerTime, Quota};
use serde::Serialize;

pub(crate) use self::bodies::ErrorBodies;
use crate::lookup::renderer::sample_caller::SAMPLE_CALLERS;
use crate::lookup::test_failure::TestFailure;
use crate::pairing::pair_throttle::PairLimit;
use crate::public_urls::PublicUrls;
use crate::tickets::bounds::{LIFETIME_S_MAX, LIFETIME_S_MIN, USES_MAX};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    MissingKey,
    /// The `Authorization` header has a key, but not the scheme `Bearer`.
    MissingScheme,
    /// The request would create a ticket, and has no key in the `Authorization` header.
    MissingHeaderKey,
    InvalidKey,
    /// The client sent a key over plain HTTP.
    HttpsRequired,
    Inactive,
    /// The key exceeded this burst limit.
    Paused {
        limit: usize,
    },
    Expired,
    /// The key has allowed origins, and the request does not come from one of them.
    OriginNotAllowed,
    /// The key has allowed networks, and the client is in none of them.
    NetworkNotAllowed,
    /// The request has a key that accepts only tickets.
    TicketRequired,
    /// The ticket is expired, used up or forged, or belongs to another service.
    InvalidTicket,
    /// A page tried to create a ticket, or the key has allowed origins, so that it is in a page.
    TicketForPage,
    /// A request for a ticket has this invalid option.
    InvalidTicketOption(&'static str),
    /// This request exceeded the burst limit and paused its key.
    BurstExceeded {
        /// When.
        now: LedgerTime,
        /// The limit.
        limit: usize,
    },
    QuotaExhausted(Quota),
    /// The caller has reached the limit per caller that the key's owner has set.
    CallerLimited {
        now: LedgerTime,
        limit: u64,
        retry_after_s: u64,
    },
    DemoExhausted(Quota),
    /// The client's network has used its share of the demo's quota.
    DemoShareUsed(Quota),
    /// The key or the client's network has reached the limit of requests for the status of a key.
    StatusLimited {
        now: LedgerTime,
        limit: u64,
        retry_after_s: u64,
    },
    /// The key has created as many tickets as it may in a minute.
    TicketLimited {
        now: LedgerTime,
        limit: u64,
        retry_after_s: u64,
    },
    /// A request with a test key has an unknown value of `as`.
    UnknownTestCaller,
    /// A request with a test key has an unknown value of `fail`.
    UnknownTestFailure,
    /// The client's network has got its tokens of pairing.
    PairLimit(PairLimit),
    /// The operator has blocked the client's network.
    NetworkBlocked,
    /// The host is for the other address family.
    Misdirected,
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
            Self::MissingKey
            | Self::MissingScheme
            | Self::MissingHeaderKey
            | Self::InvalidKey
            | Self::InvalidTicket => StatusCode::UNAUTHORIZED,
            Self::HttpsRequired | Self::InvalidTicketOption(_) | Self::UnknownTestCaller | Self::UnknownTestFailure => {
                StatusCode::BAD_REQUEST
            }
            Self::Inactive
            | Self::Paused { .. }
            | Self::Expired
            | Self::NetworkBlocked
            | Self::OriginNotAllowed
            | Self::NetworkNotAllowed
            | Self::TicketRequired
            | Self::TicketForPage => StatusCode::FORBIDDEN,
            Self::BurstExceeded { .. }
            | Self::QuotaExhausted(_)
            | Self::CallerLimited { .. }
            | Self::StatusLimited { .. }
            | Self::TicketLimited { .. }
            | Self::DemoExhausted(_)
            | Self::DemoShareUsed(_)
            | Self::PairLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
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
            Self::MissingKey | Self::MissingScheme | Self::MissingHeaderKey => "missing_api_key",
            Self::InvalidKey | Self::InvalidTicket => "invalid_api_key",
            Self::HttpsRequired => "https_required",
            Self::Inactive | Self::Paused { .. } | Self::Expired => "inactive_api_key",
            Self::OriginNotAllowed | Self::TicketForPage => "origin_not_allowed",
            Self::NetworkNotAllowed => "network_not_allowed",
            Self::NetworkBlocked => "network_blocked",
            Self::TicketRequired => "ticket_required",
            Self::BurstExceeded { .. }
            | Self::QuotaExhausted(_)
            | Self::CallerLimited { .. }
            | Self::StatusLimited { .. }
            | Self::TicketLimited { .. }
            | Self::DemoExhausted(_)
            | Self::DemoShareUsed(_)
            | Self::PairLimit(_) => "rate_limit_exceeded",
            Self::Misdirected => "misdirected_request",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UriTooLong | Self::BadRequest(RequestError::UriTooLong) => "uri_too_long",
            Self::BadRequest(RequestError::HeadersTooLarge) => "headers_too_large",
            Self::InvalidTicketOption(_) | Self::UnknownTestCaller | Self::UnknownTestFailure | Self::BadRequest(_) => {
                "bad_request"
            }
            Self::Internal => "internal_error",
        }
    }

    /// The refusal of a request with a ticket, whose key may have been deleted or rotated.
    pub(crate) fn for_ticket(self) -> Self {
        if self == Self::InvalidKey { Self::InvalidTicket } else { self }
    }

    /// Whether the request counts toward the burst limit of its key, although it is refused. Limits on callers and tickets
    /// must count it too: otherwise one of them could pause the key.
    pub(crate) const fn counts_toward_burst(self) -> bool {
        matches!(self, Self::QuotaExhausted(_) | Self::BurstExceeded { .. })
    }

    /// The anchor in the documentation. It must not change, because existing links use it.
    pub(crate) const fn anchor(self) -> &'static str {
        match self {
            Self::MissingKey | Self::MissingScheme | Self::MissingHeaderKey => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::HttpsRequired => "https_required",
            Self::Inactive => "inactive-keys",
            Self::Paused { .. } => "paused-keys",
            Self::Expired => "expired-keys",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::NetworkNotAllowed => "network_not_allowed",
            Self::NetworkBlocked => "network_blocked",
            Self::TicketRequired => "ticket_required",
            Self::InvalidTicket => "tickets",
            Self::TicketForPage => "ticket-creation",
            Self::TicketLimited { .. } => "ticket-limit",
            Self::BurstExceeded { .. } => "burst-limit",
            Self::QuotaExhausted(_) => "daily-quota",
            Self::CallerLimited { .. } => "caller-limit",
            Self::StatusLimited { .. } => "key-status-limit",
            Self::DemoExhausted(_) | Self::DemoShareUsed(_) => "demo-quota",
            Self::PairLimit(_) => "pair-limit",
            Self::Misdirected => "misdirected_request",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::InvalidTicketOption(_)
            | Self::UnknownTestCaller
            | Self::UnknownTestFailure
            | Self::UriTooLong
            | Self::BadRequest(_) => "bad_request",
            Self::Internal => "internal_error",
        }
    }

    /// The label in metrics. Unlike the code, it distinguishes errors with the same code.
    pub(crate) const fn outcome_label(self) -> &'static str {
        match self {
            Self::MissingScheme => "missing_scheme",
            Self::MissingHeaderKey => "missing_header_key",
            Self::TicketForPage => "ticket_for_page",
            Self::InvalidTicketOption(_) => "invalid_ticket_option",
            Self::TicketLimited { .. } => "ticket_limited",
            Self::Paused { .. } => "paused",
            Self::Expired => "expired",
            Self::InvalidTicket => "invalid_ticket",
            Self::BurstExceeded { .. } => "burst_exceeded",
            Self::QuotaExhausted(_) => "quota_exhausted",
            Self::CallerLimited { .. } => "caller_limited",
            Self::StatusLimited { .. } => "status_limited",
            Self::DemoExhausted(_) => "demo_exhausted",
            Self::DemoShareUsed(_) => "demo_share_used",
            Self::UnknownTestCaller => "unknown_test_caller",
            Self::UnknownTestFailure => "unknown_test_failure",
            Self::PairLimit(_) => "pair_limit",
            Self::MissingKey
            | Self::InvalidKey
            | Self::HttpsRequired
            | Self::Inactive
            | Self::OriginNotAllowed
            | Self::NetworkNotAllowed
            | Self::TicketRequired
            | Self::NetworkBlocked
            | Self::Misdirected
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
            Self::MissingHeaderKey => "API key missing in the header",
            Self::InvalidKey => "API key does not exist",
            Self::HttpsRequired => "API key sent over plain HTTP",
            Self::Inactive => "API key deactivated",
            Self::Paused { .. } => "API key paused",
            Self::Expired => "API key expired",
            Self::OriginNotAllowed => "not an allowed origin of the key",
            Self::NetworkNotAllowed => "not in an allowed network of the key",
            Self::TicketRequired => "API key accepts only tickets",
            Self::InvalidTicket => "ticket not valid",
            Self::TicketForPage => "not a request of a server",
            Self::InvalidTicketOption(_) => "an option is not valid",
            Self::TicketLimited { .. } => "the key's limit of tickets reached",
            Self::BurstExceeded { .. } => "burst limit exceeded, which pauses the key",
            Self::QuotaExhausted(_) => "daily quota reached",
            Self::CallerLimited { .. } => "the key's limit per caller reached",
            Self::StatusLimited { .. } => "limit of status requests reached",
            Self::DemoExhausted(_) => "shared daily demo quota reached",
            Self::DemoShareUsed(_) => "the network's share of the demo quota reached",
            Self::UnknownTestCaller => "unknown value of `as` with a test key",
            Self::UnknownTestFailure => "unknown value of `fail` with a test key",
            Self::PairLimit(_) => "the network's limit of tokens reached",
            Self::NetworkBlocked => "your network is blocked",
            Self::Misdirected => "the host is for the other address family",
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
            Self::MissingHeaderKey => {
                "API key missing. Send `Authorization: Bearer <API_KEY>`. A key in the URL cannot create tickets.".to_owned()
            }
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
            Self::Paused { limit } => format!(
                "Key paused: over {limit} requests in {BURST_WINDOW_S} s. Resume it at {dashboard}. \
                 It won't resume on its own."
            ),
            Self::Expired => {
                format!("This API key has expired. Its owner can change the expiry at {dashboard}.")
            }
            Self::OriginNotAllowed => format!(
                "The Origin header is missing, or not allowed for this key or ticket. Allow it at {dashboard}."
            ),
            Self::NetworkNotAllowed => format!(
                "Your address is not in this key's allowed networks. Its owner can change them at {dashboard}."
            ),
            Self::TicketRequired => {
                "This API key accepts only tickets. Create a ticket on your server, and send it in place of the key."
                    .to_owned()
            }
            Self::InvalidTicket => {
                "This ticket has expired, is used up, or is not from this service. Create a new one on your server."
                    .to_owned()
            }
            Self::TicketForPage => {
                "Only servers create tickets: without Origin and Sec-Fetch-Site, with a key without allowed origins."
                    .to_owned()
            }
            Self::InvalidTicketOption(option) => ticket_option_message(option),
            Self::TicketLimited { limit, retry_after_s, .. } => format!(
                "Limit of {limit} tickets per minute reached. Use a ticket again, or try again in {retry_after_s} s."
            ),
            Self::BurstExceeded { limit, .. } => format!(
                "Burst limit exceeded: {limit} requests in {BURST_WINDOW_S} s. The key is now paused. \
                 Resume it at {dashboard}."
            ),
            Self::QuotaExhausted(quota) => format!(
                "Daily quota of {} requests reached. It resets at midnight UTC. Contact us if you need more.",
                quota.limit
            ),
            Self::CallerLimited { limit, retry_after_s, .. } => format!(
                "This API key allows {limit} requests per caller in {BURST_WINDOW_S} s. Try again in {retry_after_s} s."
            ),
            Self::StatusLimited { limit, retry_after_s, .. } => format!(
                "Limit of {limit} requests for the key's status per minute reached. Try again in {retry_after_s} s."
            ),
            Self::DemoExhausted(quota) => format!(
                "Shared demo quota of {} requests reached. It resets at midnight UTC. Get a free API key.",
                quota.limit
            ),
            Self::DemoShareUsed(quota) => format!(
                "Your network has used its {} demo requests today. They reset at midnight UTC. Get a free API key.",
                quota.limit
            ),
            Self::UnknownTestCaller => test_value_message("as", SAMPLE_CALLERS.iter().map(|caller| caller.name)),
            Self::UnknownTestFailure => test_value_message("fail", TestFailure::ALL.into_iter().map(TestFailure::name)),
            Self::PairLimit(limit) => format!(
                "Your network has requested {} tokens in a minute. Retry later, or send the lookup without one.",
                limit.limit
            ),
            Self::NetworkBlocked => {
                "The operator of this service has blocked your network. If this is a mistake, contact the operator.".to_owned()
            }
            Self::Misdirected => format!(
                "This host name is for the other address family. Retry on a new connection, or use {}.",
                public_urls.base
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

fn ticket_option_message(option: &str) -> String {
    format!(
        "Invalid {option}. Send JSON with `origin`, `scope`, `lifetime_s` ({LIFETIME_S_MIN} to {LIFETIME_S_MAX}) or \
         `uses` (1 to {USES_MAX})."
    )
}

fn test_value_message(parameter: &str, names: impl Iterator<Item = &'static str>) -> String {
    format!("Unknown `{parameter}`. Test keys accept {}.", names.collect::<Vec<_>>().join(", "))
}
