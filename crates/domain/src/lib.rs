//! The nouns and rules that every part of Ipseity shares.
//!
//! Deliberately absent: I/O, clocks, async code and wire formats. Randomness and time are handed in by the caller.

pub mod account;
pub mod client;
pub mod facts;
pub mod field;
pub mod key;
pub mod pause;
pub mod plan;
pub mod record;
pub mod scope;
pub mod usage;

pub use client::{Address, Client, ClientSubnet, Colo, ConnectionFacts, HttpProtocol, TlsInfo, TlsVersion};
pub use facts::{GeoFacts, Location, Network};
pub use field::{Field, FieldSet};
pub use key::{ApiKey, KeyDigest, KeyId, PlaintextKey};
pub use pause::{KeyPause, PerSecondCounts};
pub use plan::{BURST_LIMIT, BURST_WINDOW_S, DEMO_DAILY_LIMIT, KEYS_PER_ACCOUNT_MAX, Plan};
pub use record::{KeyChange, KeyFlags, KeyRecord, KeyState, PreviousDigest};
pub use scope::Scope;
pub use usage::{DAY_S, DailyUsage, UtcDay};
