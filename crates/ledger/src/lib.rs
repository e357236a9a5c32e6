//! The counter store (Redis 7, Valkey 8): today's counts, the last 300 request times, and one verdict per request.
//!
//! Deliberately absent: the durable store. Whoever gets [`Verdict::Unknown`] asks it and fills the record. No address is ever sent here.

mod demo;
mod ledger;
mod link;
mod outage;
mod pending;
mod slot;
mod today;
mod verdict;

pub use demo::DemoVerdict;
pub use ledger::{Ledger, LedgerOptions};
pub use outage::LedgerError;
pub use verdict::{Charged, Fence, Moment, Verdict};
