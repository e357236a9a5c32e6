//! The ledger against real redis-servers.

mod cluster;
mod day;
mod demo;
mod fill;
mod model;
mod outage;
mod pause;
mod promotion;
mod reshard;
mod settle;
mod sheaf;
mod size;
mod stage;
mod stamp;
