//! The rate limiter and the quota counters of API keys, kept in Redis (Redis 7 or Valkey 8).
//!
//! [`Ledger::charge`] authenticates a key, checks its burst limit (300 requests in 60 seconds) and its daily quota, and
//! counts the request. One Lua script does this in one atomic step. The result is a [`Verdict`].
//!
//! # Guarantees
//!
//! While Redis answers within [`LedgerOptions::timeout`] and keeps its memory and its clock:
//!
//! - Both limits are exact, on any number of nodes.
//! - Every admitted request is counted exactly once.
//! - The first request over the burst limit pauses the key. No later request is admitted until the key is resumed.
//!
//! Otherwise:
//!
//! - **No answer in time.** Methods return a [`LedgerError`]. [`LedgerError::may_have_been_applied`] is `false` if
//!   Redis certainly did not apply the request. This crate has no local limits: degraded mode is in the crate
//!   `ipseity-api`, module `admission::degraded`. It admits requests with local limits and keeps them as pending
//!   charges. [`Ledger::reconcile`] counts them when Redis is back, and finds charges whose reply was lost by their
//!   [`ChargeId`].
//! - **Lost or restored memory.** A record holds the incarnation of the Redis data set that it was written in. A charge
//!   does not trust a record of another incarnation and returns [`Verdict::Unknown`]. The caller then reads PostgreSQL
//!   and calls [`Ledger::fill`]. Requests since the last usage flush can be missing from the count.
//! - **A clock that was set back.** Up to one second, the time of the newest request is used instead. Beyond that, the
//!   burst window of the key starts again, which admits at most 300 additional requests. A past day is never charged
//!   again.
//!
//! `docs/reliability.md` lists the bounds. This crate does not use PostgreSQL, and it never sends IP addresses to
//! Redis.

mod applied_restrictions;
mod arrival;
mod charge;
mod charge_id;
mod columns;
mod demo;
mod deployment;
mod diagnostics;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod key_records;
mod key_status;
mod layout;
mod ledger;
mod ledger_time;
mod owner;
mod pauses;
mod recent_use;
mod reconcile;
mod redis;
mod request;
mod reset;
mod scripts;
mod slot_feed;
mod sweep;
mod usage;
mod verdict;

pub use applied_restrictions::AppliedRestrictions;
pub use arrival::{Arrival, REMOTE_SLOTS, RemoteSlot};
pub use charge_id::ChargeId;
pub use demo::DemoVerdict;
pub use deployment::LedgerIdentity;
pub use diagnostics::RedisServerInfo;
pub use error::{ChargeError, LedgerError, SentCharge};
pub use key_records::Published;
pub use key_status::{FoundStatus, KeyCounts, KeySnapshot};
pub use ledger::{Ledger, LedgerOptions};
pub use ledger_time::LedgerTime;
pub use owner::Owner;
pub use recent_use::RecentUse;
pub use reconcile::{
    DemoReconcileBatch, PendingCharge, RECONCILE_DELAY, ReconcileBatch, Reconciled, UnconfirmedCharge,
};
pub use redis::identity::{DataSet, TrustedStores};
pub use redis::node::ConnectGate;
pub use redis::sentinel::SentinelInfo;
pub use redis::subscription::SlotNotice;
pub use redis::tls::RedisTls;
pub use request::REMOTE_ARRIVAL_AHEAD_MAX_MS;
pub use slot_feed::SlotFeed;
pub use sweep::{Sweep, SweepPart, UnflushedUsage};
pub use verdict::{Fence, Quota, Verdict};
