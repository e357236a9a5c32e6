//! The counter store (Redis 7, Valkey 8): today's counts, the last 300 request times, and one verdict per request.
//!
//! Deliberately absent: the durable store. Whoever gets [`Verdict::Unknown`] asks it and fills the record. No address is ever sent here.

mod charge;
mod charge_id;
mod demo;
mod diagnostics;
mod error;
mod key_records;
mod layout;
mod ledger;
mod pauses;
mod reconcile;
mod redis;
mod request;
mod scripts;
mod usage;
mod verdict;

pub use charge_id::ChargeId;
pub use demo::DemoVerdict;
pub use diagnostics::RedisServerInfo;
pub use error::LedgerError;
pub use ledger::{Ledger, LedgerOptions};
pub use reconcile::{DemoReconcileBatch, PendingCharge, RECONCILE_DELAY, ReconcileBatch, Reconciled};
pub use verdict::{Fence, LedgerTime, Quota, Verdict};
