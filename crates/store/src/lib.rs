//! PostgreSQL: where accounts, keys, pauses and usage are true.
//!
//! Deliberately absent: verdicts and counters (the ledger's), and any knowledge of HTTP. Nothing here is asked on the way of a request
//! whose key the counter store knows.

mod accounts;
mod error;
mod keys;
mod outbox;
mod pauses;
mod pool;
mod standing;
mod usage;

pub use accounts::Account;
pub use error::{Refused, StoreError};
pub use keys::{Change, KeyRow};
pub use outbox::{Claim, Wake};
pub use pool::{Store, StoreOptions};
pub use usage::{Refused as RefusedCount, RefusedReason, RolledUp};
