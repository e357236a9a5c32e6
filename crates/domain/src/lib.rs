//! The nouns and rules that every part of Ipseity shares.
//!
//! Deliberately absent: I/O, clocks, async code and wire formats. Randomness and time are handed in by the caller.

pub mod account;
pub mod client;
pub mod facts;
pub mod field;
pub mod key;
pub mod limit;
pub mod pause;
pub mod plan;
pub mod scope;
pub mod standing;
pub mod state;

pub use client::{Address, Client, Colo, Connection, HttpProtocol, Neighbourhood, Tls, TlsVersion};
pub use facts::{Facts, Network, Place};
pub use field::{Field, View};
pub use key::{ClearKey, Key, KeyDigest, KeyId};
pub use limit::{BURST_MAX, BURST_WINDOW_S, DAY_S, DEMO_DAILY_MAX, Day, KEYS_PER_ACCOUNT_MAX};
pub use pause::{Pause, PauseCounts};
pub use plan::Plan;
pub use scope::Scope;
pub use standing::{Retired, Standing, Used};
pub use state::{Marks, State};
