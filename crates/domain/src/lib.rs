//! The types and rules that all crates of Ipseity share.
//!
//! Main types:
//! - [`Client`] and [`Address`]: the client of a request.
//! - [`GeoFacts`], [`Field`] and [`Scope`]: the facts about an address, and which of them a response contains.
//! - [`ApiKey`], [`PlaintextKey`] and [`KeyRecord`]: a key as presented, as generated, and as stored.
//! - [`Restrictions`]: who may use a key, and for how long.
//! - [`PersonalToken`] and [`TokenScope`]: what programs send to the management API, and what it permits.
//! - [`KeyStatus`]: what the next request of a key can expect, in the words of all pages, emails and programs.
//! - [`Plan`], [`BURST_LIMIT`] and [`KeyPause`]: the limits of a key, and what happens when it exceeds the burst limit.
//!
//! Guarantees:
//! - [`Address`], [`PlaintextKey`] and [`PlaintextToken`] have no `Debug` or `Display`, so they cannot be logged by accident.
//! - [`Scope::narrowed_to`] never widens a key's scope.
//! - The crate has no I/O, no clock and no randomness. Callers pass in the time and random bytes. Only the
//!   feature `mutants`, for tests, reads an environment variable.

pub mod account;
pub mod causes;
pub mod client;
pub mod facts;
pub mod failed_attempt;
pub mod field;
pub mod key;
pub mod key_status;
pub mod mutant;
pub mod network_set;
pub mod pause;
pub mod personal_token;
pub mod plan;
pub mod record;
pub mod request_error;
pub mod restrictions;
pub mod scope;
pub mod test_key;
pub mod usage;

pub use causes::{Causes, causes};
pub use client::{
    Address, AddressFamily, Client, ClientSubnet, Colo, ConnectionFacts, HttpProtocol, NetworkId, TlsInfo, TlsVersion,
};
pub use facts::{GeoFacts, Location, Network};
pub use failed_attempt::FailedAttempt;
pub use field::{Field, FieldSet};
pub use key::{ApiKey, KEY_CHARS, KEY_PREFIX, KeyDigest, KeyId, PlaintextKey, TICKET_PREFIX};
pub use key_status::{KeyStatus, LimitLevel, near_limit};
pub use mutant::is_mutant;
pub use network_set::{NetworkLineError, NetworkSet};
pub use pause::{KeyPause, PerSecondCounts};
pub use personal_token::{PERSONAL_TOKEN_PREFIX, PersonalToken, PlaintextToken, TokenName, TokenScope};
pub use plan::{
    BURST_LIMIT, BURST_LIMIT_MAX, BURST_WINDOW_S, DAILY_LIMIT_MAX, DEMO_DAILY_LIMIT, IN_FLIGHT_MAX, KEYS_MAX_LIMIT,
    KEYS_PER_ACCOUNT_MAX, LimitOverrides, Limits, Plan,
};
pub use record::{KeyChange, KeyFlags, KeyRecord, KeyState, PreviousDigest};
pub use request_error::RequestError;
pub use restrictions::{Credential, RequestOrigin, RestrictionRefusal, Restrictions, VersionedRestrictions};
pub use scope::Scope;
pub use test_key::{TEST_KEY_PREFIX, test_key, test_key_scope, test_ticket};
pub use usage::{DAY_S, DailyUsage, UtcDay};
