//! Tests the testkit with real PostgreSQL and Redis processes.

mod client;
mod clock;
mod delayed_link;
mod fault_proxy;
mod geo_database;
mod postgres;
mod processes;
mod redis;
mod tidy;
