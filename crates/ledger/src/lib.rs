//! The counter store (Redis 7, Valkey 8): today's counts, the last 300 request times, and one verdict per request.
//!
//! Deliberately absent: the durable store. Whoever gets [`Verdict::Unknown`] asks it and fills the record. No address is ever sent here.

mod call;
mod demo;
mod examine;
mod ledger;
mod link;
mod map;
mod outage;
mod pending;
mod router;
mod settle;
mod sheaf;
mod slot;
mod today;
mod verdict;

pub use demo::DemoVerdict;
pub use examine::Vitals;
pub use ledger::{Ledger, LedgerOptions};
pub use outage::LedgerError;
pub use settle::{Batch, ChargeName, DemoBatch, LATE_MAX, NamedCharge, Settled};
pub use verdict::{Charged, Fence, Moment, Verdict};
