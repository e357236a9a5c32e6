//! Tests of the ledger with real Redis servers.

mod arrival;
mod batch;
mod clock_falls;
mod cluster;
mod daily_quota;
mod demo;
mod fill;
mod fixture;
mod future_day;
mod incarnation;
mod key_status;
mod late_delivery;
mod memory;
mod model;
mod open_slots;
mod outage;
mod pause;
mod promotion;
mod reconcile;
mod record_layout;
mod repair;
mod reshard;
mod script_cost;
mod sentinel;

mod sweep;
mod trusted_stores;
mod unverifiable;
