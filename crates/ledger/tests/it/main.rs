//! Tests of the ledger with real Redis servers.

mod batch;
mod cluster;
mod daily_quota;
mod demo;
mod fill;
mod fixture;
mod incarnation;
mod memory;
mod model;
mod outage;
mod pause;
mod promotion;
mod reconcile;
mod reshard;
