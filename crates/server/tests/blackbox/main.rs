//! The black-box suite: the built binary, with PostgreSQL and Redis processes of its own, tried over real sockets as a user would.
//!
//! Tests that only ask and answer share one house; tests that race, kill or count have their own.

mod abuse;
mod alerts;
mod authentication;
mod certificates;
mod clock_jumps;
mod cluster;
mod command_line;
mod conformance;
mod connection;
mod cors;
mod days;
mod demo;
mod description;
mod doctor;
mod durability;
mod errors;
mod front;
mod geo_memory;
mod geo_swap;
mod geo_update;
mod honest;
mod http3;
mod lifecycle;
mod limits;
mod lookup;
mod meta;
mod next_request;
mod operators;
mod otlp;
mod portal;
mod privacy;
mod proxies;
mod proxy_table;
mod race;
mod restarts;
mod round_trip;
mod runbook;
mod shared;
mod telemetry;
