//! The black-box suite: tests the built binary with real PostgreSQL and Redis processes over sockets, as a user would.
//!
//! Most tests share one deployment. Tests that race, kill or count have a separate one.

mod abuse;
mod alerts;
mod authentication;
mod baseline;
mod certificates;
mod change_propagation;
mod cli;
mod cli_admin;
mod clock_jumps;
mod cluster;
mod conformance;
mod connection;
mod cors;
mod demo;
mod deployment_identity;
mod doctor;
mod durability;
mod errors;
mod fixture;
mod geo_memory;
mod geo_reload;
mod geo_update;
mod http3;
mod lifecycle;
mod limits;
mod lookup;
mod malformed_requests;
mod meta;
mod openapi;
mod otlp;
mod plain_http;
mod portal;
mod postgres_failover;
mod privacy;
mod proxies;
mod proxy_matrix;
mod public_site;
mod race;
mod restarts;
mod retention;
mod round_trip;
mod runbook;
mod telemetry;
