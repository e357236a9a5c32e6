//! The ledger against a real redis-server.

mod day;
mod demo;
mod fill;
mod model;
mod outage;
mod pause;
mod size;
mod stage;
mod stamp;
