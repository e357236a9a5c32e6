//! The atlas over real files, written on the spot.

mod enrich;
mod fixture;
mod flat_schema;
mod hosting_proxy;
mod locate;
mod merge;
mod open;
mod reload;
