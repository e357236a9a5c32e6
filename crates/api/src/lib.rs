//! The HTTP API of Ipseity: returns the caller's IP address, location, network and connection.
//!
//! # How a request flows
//!
//! 1. The edge identifies the client and calls [`PublicService::call`] with the
//!    [`Client`](ipseity_domain::Client) and the request. The service gives the request an id, a timeout and
//!    a trace span, limits the length of its URL, and refuses clients in blocked networks.
//! 2. A `GET /api/v1/ip` goes directly to its handler (`service::fast_path`). All other requests go through the
//!    [`router`], which also holds the pages of the portal.
//! 3. The handler asks [`Admission`] for a verdict. Admission reads the API key, charges the request in the
//!    ledger, and returns either a refusal or an `Admitted`, the proof of the charge. While Redis does not
//!    answer, the local limiter decides instead (degraded mode).
//! 4. The renderer takes the `Admitted`, locates the client in the geo databases and writes the JSON body.
//!    Without the proof there is no response. The landing page's [`self_lookup`] is the one uncharged
//!    exception.
//! 5. The service adds the common headers, counts the response and writes the access log. A panic or a
//!    timeout becomes a 500.
//!
//! # Where to find things
//!
//! | Module | Contents |
//! |---|---|
//! | `operation` | the list of operations; router, metrics and OpenAPI document derive from it |
//! | `error` | the list of refusals: status, code, message, documentation link and headers |
//! | `admission` | authentication, charging, degraded mode, usage buffer |
//! | `lookup` | the lookup and demo handlers, the renderer and test keys |
//! | `key_status` | the status of a key, uncharged |
//! | `tickets` | what pages send in place of a key |
//! | `pairing` | both addresses of a caller in one response |
//! | `sealed` | tokens that clients keep and cannot read |
//! | `openapi` | the OpenAPI document, generated from code |
//! | `service` | the outer HTTP service, request ids and metrics |
//!
//! This crate opens no sockets, renders no pages and reads no configuration. A client's address is read in
//! the renderer and the token of pairing, and is only written to the response to that client. Restrictions and
//! blocked networks only compare it.

mod admission;
mod blocked_networks;
mod credential;
mod error;
mod failpoint;
mod key_status;
mod limits;
mod lookup;
mod meta;
mod minute_limiter;
mod openapi;
mod operation;
mod pairing;
mod public_urls;
mod response;
mod routes;
mod sealed;
mod service;
mod state;
mod tickets;
mod trace;
mod wall_clock;

pub use admission::Admission;
pub use admission::backend::{Backend, Stores};
pub use admission::usage_buffer::{DrainedUsage, UsageBuffer};
pub use blocked_networks::BlockedNetworks;
#[cfg(feature = "failpoints")]
pub use failpoint::arm_failpoints;
pub use limits::{ApiLimits, DegradedLimits, MinuteLimits};
pub use lookup::renderer::self_lookup::{SelfLookup, paired_self_lookup, self_lookup};
pub use openapi::additions::with_operations;
pub use openapi::document::openapi_document;
pub use pairing::{Pairing, PairingOptions};
pub use public_urls::PublicUrls;
pub use routes::router;
pub use sealed::{SealingKeys, SealingKeysError, TOKEN_LIFETIME_S_MAX, TokenSealer};
pub use service::metrics::ApiMetrics;
pub use service::request_id::RequestId;
pub use service::{PublicService, public_service};
pub use state::Api;
pub use tickets::{TicketLimits, Tickets};
pub use trace::TRACE_TARGET;
