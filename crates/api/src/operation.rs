//! The operations of the API: path, name, description and possible refusals of each. The router, the metrics and the
//! OpenAPI document all derive from this list.

use ipseity_domain::{BURST_LIMIT, DEMO_DAILY_LIMIT, RequestError, plan::FREE_DAILY_LIMIT};
use ipseity_ledger::{LedgerTime, Quota};

use crate::error::Refusal;
use crate::pairing::pair_throttle::PairLimit;

/// The version of the public API.
pub(crate) const API_VERSION: &str = "1.1.0";

/// The time in all examples: 2026-11-15, 14:03:22 UTC.
pub(crate) const EXAMPLE_NOW: LedgerTime = LedgerTime(1_794_751_402_000);

/// The share of the demo quota in examples: the default of `[ledger] demo_requests_per_subnet_max`.
const EXAMPLE_DEMO_SHARE: u64 = 100;

/// A limit per caller in examples. The owner of a key chooses it.
pub(crate) const EXAMPLE_CALLER_LIMIT: u64 = 30;

/// How long a caller over a limit waits in examples.
pub(crate) const EXAMPLE_CALLER_RETRY_AFTER_S: u64 = 12;

/// The limit of status requests in examples: the default of `[ledger] key_status_requests_per_key_per_min_max`.
const EXAMPLE_STATUS_LIMIT: u64 = 60;
/// The limit of tickets in examples: the default of `[public] tickets_per_key_per_min_max`.
const EXAMPLE_TICKET_LIMIT: u64 = 600;
/// The limit of tokens in examples: the default of `[public] pair_tokens_per_subnet_per_min_max`.
const EXAMPLE_PAIR_LIMIT: PairLimit = PairLimit { limit: 300, now_s: EXAMPLE_NOW.as_secs(), retry_after_s: 38 };

/// Refusals of requests that match no operation.
pub(crate) const UNMATCHED_REFUSALS: [Refusal; 10] = [
    Refusal::NetworkBlocked,
    Refusal::Misdirected,
    Refusal::NotFound,
    Refusal::MethodNotAllowed,
    Refusal::UriTooLong,
    Refusal::Internal,
    Refusal::BadRequest(RequestError::Malformed),
    Refusal::BadRequest(RequestError::InvalidHost),
    Refusal::BadRequest(RequestError::HeadersTooLarge),
    Refusal::BadRequest(RequestError::PlainHttp),
];

/// An operation. Each supports GET and HEAD, but [`Tickets`](Self::Tickets) supports POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Lookup,
    Demo,
    KeyStatus,
    Tickets,
    Pair,
    Meta,
    OpenapiJson,
    OpenapiYaml,
}

impl Operation {
    pub(crate) const ALL: [Self; 8] = [
        Self::Lookup,
        Self::Demo,
        Self::KeyStatus,
        Self::Tickets,
        Self::Pair,
        Self::Meta,
        Self::OpenapiJson,
        Self::OpenapiYaml,
    ];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Lookup => "/api/v1/ip",
            Self::Demo => "/api/v1/ip/demo",
            Self::KeyStatus => "/api/v1/key",
            Self::Tickets => "/api/v1/tickets",
            Self::Pair => "/api/v1/pair",
            Self::Meta => "/api/v1/meta",
            Self::OpenapiJson => "/api/v1/openapi.json",
            Self::OpenapiYaml => "/api/v1/openapi.yaml",
        }
    }

    /// The operation at a path.
    pub(crate) fn at_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.path() == path)
    }

    /// The label in metrics and logs.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Demo => "demo",
            Self::KeyStatus => "key_status",
            Self::Tickets => "tickets",
            Self::Pair => "pair",
            Self::Meta => "meta",
            Self::OpenapiJson | Self::OpenapiYaml => "openapi",
        }
    }

    /// The `operationId`. Generated clients name their methods after it, so it must not change.
    pub(crate) const fn operation_id(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Demo => "demo",
            Self::KeyStatus => "keyStatus",
            Self::Tickets => "createTicket",
            Self::Pair => "pair",
            Self::Meta => "meta",
            Self::OpenapiJson => "openapiJson",
            Self::OpenapiYaml => "openapiYaml",
        }
    }

    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::Lookup => "Look up the caller",
            Self::Demo => "Try it without a key",
            Self::KeyStatus => "Get the status of the key",
            Self::Tickets => "Create a ticket for a page",
            Self::Pair => "Get a token with the caller's address",
            Self::Meta => "Get version and data sources",
            Self::OpenapiJson => "Get this document as JSON",
            Self::OpenapiYaml => "Get this document as YAML",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Lookup => {
                "Returns the caller's IP address, location, network and connection. The key's scope decides which fields \
                 are included. Counts toward the key's daily quota and its burst limit. A test key returns made-up data, counts \
                 toward nothing, and marks every response with the header `Ipseity-Test`."
            }
            Self::Demo => {
                "Returns a fixed set of fields: those of scope `geo` and 4 connection fields. All callers share one daily \
                 quota, and a network can use only a part of it. Not for production."
            }
            Self::KeyStatus => {
                "Returns the key's scope, state, status, limits and usage. Works with paused and deactivated keys. Not charged, and up \
                 to one second old. A request with an Origin header gets only scope and state. Usage is null while the \
                 counts are not available."
            }
            Self::Tickets => {
                "Returns a ticket, which a page sends in place of the key. It works for a few lookups in a few minutes. Only \
                 servers can create tickets. Not charged; lookups with the ticket are charged to the key. 404 if the service \
                 has no keys for it."
            }
            Self::Pair => {
                "Returns a token with the address of this connection. A lookup over the other address family that sends it \
                 in `Ipseity-Pair` returns both addresses. Request it at `ipv4_url` or `ipv6_url` of `/api/v1/meta`. Free; \
                 404 if the service has no such URLs."
            }
            Self::Meta => {
                "Returns the version of the service, its URLs for one address family, the geo databases in use with their \
                 build dates, and attributions. Free and cacheable."
            }
            Self::OpenapiJson | Self::OpenapiYaml => "Returns the API as OpenAPI 3.1. Free and cacheable.",
        }
    }

    /// Every refusal that the operation can return, each with example values.
    pub(crate) fn refusals(self) -> Vec<Refusal> {
        let (now, burst_limit) = (EXAMPLE_NOW, BURST_LIMIT);
        let exhausted = |limit| Quota { now, limit, day: now.day(), used: limit, burst_limit };
        let specific = match self {
            Self::Lookup => vec![
                Refusal::MissingKey,
                Refusal::MissingScheme,
                Refusal::InvalidKey,
                Refusal::HttpsRequired,
                Refusal::Inactive,
                Refusal::Paused { limit: BURST_LIMIT },
                Refusal::Expired,
                Refusal::OriginNotAllowed,
                Refusal::NetworkNotAllowed,
                Refusal::TicketRequired,
                Refusal::InvalidTicket,
                Refusal::QuotaExhausted(exhausted(FREE_DAILY_LIMIT)),
                Refusal::BurstExceeded { now, limit: burst_limit },
                Refusal::CallerLimited {
                    now: EXAMPLE_NOW,
                    limit: EXAMPLE_CALLER_LIMIT,
                    retry_after_s: EXAMPLE_CALLER_RETRY_AFTER_S,
                },
                Refusal::UnknownTestCaller,
                Refusal::UnknownTestFailure,
            ],
            Self::Demo => vec![
                Refusal::DemoExhausted(exhausted(DEMO_DAILY_LIMIT)),
                Refusal::DemoShareUsed(exhausted(EXAMPLE_DEMO_SHARE)),
            ],
            Self::KeyStatus => vec![
                Refusal::MissingKey,
                Refusal::MissingScheme,
                Refusal::InvalidKey,
                Refusal::InvalidTicket,
                Refusal::HttpsRequired,
                Refusal::OriginNotAllowed,
                Refusal::StatusLimited {
                    now: EXAMPLE_NOW,
                    limit: EXAMPLE_STATUS_LIMIT,
                    retry_after_s: EXAMPLE_CALLER_RETRY_AFTER_S,
                },
            ],
            Self::Tickets => vec![
                Refusal::MissingHeaderKey,
                Refusal::InvalidKey,
                Refusal::HttpsRequired,
                Refusal::InvalidTicketOption("`lifetime_s`"),
                Refusal::Inactive,
                Refusal::Paused { limit: BURST_LIMIT },
                Refusal::Expired,
                Refusal::NetworkNotAllowed,
                Refusal::TicketForPage,
                Refusal::NotFound,
                Refusal::TicketLimited {
                    now: EXAMPLE_NOW,
                    limit: EXAMPLE_TICKET_LIMIT,
                    retry_after_s: EXAMPLE_CALLER_RETRY_AFTER_S,
                },
            ],
            Self::Pair => vec![Refusal::NotFound, Refusal::PairLimit(EXAMPLE_PAIR_LIMIT)],
            Self::Meta | Self::OpenapiJson | Self::OpenapiYaml => Vec::new(),
        };
        // Any operation can return these.
        let common = [Refusal::NetworkBlocked, Refusal::Misdirected, Refusal::UriTooLong, Refusal::Internal];
        specific.into_iter().chain(common).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_urls::PublicUrls;

    #[test]
    fn every_operation_is_found_at_its_path() {
        for operation in Operation::ALL {
            assert_eq!(Operation::at_path(operation.path()), Some(operation));
        }
        assert_eq!(Operation::at_path("/api/v1/ip/"), None);
    }

    #[test]
    fn documentation_has_a_section_and_the_message_of_every_refusal() {
        let documentation = include_str!("../../../docs/site/errors.md");
        let url = |path: &str| format!("{{{{base_url}}}}{path}");
        let public_urls = PublicUrls {
            base: url(""),
            docs: url("/docs/errors"),
            signup: url("/signup"),
            enterprise: url("/enterprise"),
            dashboard: url("/keys"),
        };
        let refusals = || Operation::ALL.into_iter().flat_map(Operation::refusals).chain(UNMATCHED_REFUSALS);
        let code_source = include_str!("error/mod.rs").split("const fn ").find(|source| source.starts_with("code("));
        for code in code_source.expect("function exists").split('"').skip(1).step_by(2) {
            assert!(refusals().any(|refusal| refusal.code() == code), "no operation lists {code}");
        }
        for refusal in refusals() {
            let heading = format!(" {} {}", refusal.status().as_u16(), refusal.code());
            let anchor = format!(" {{#{}}}", refusal.anchor());
            let has_section =
                |line: &str| line.starts_with("### ") && line.contains(&heading) && line.ends_with(&anchor);
            assert!(documentation.lines().any(has_section), "{heading}{anchor}");
            let message = refusal.message(&public_urls);
            assert!(documentation.contains(&format!("\"message\": \"{message}\"")), "{message}");
        }
    }
}
