//! Tests of the atlas with real files, which the tests write.

mod enrich;
mod fixture;
mod flat_schema;
mod hosting_proxy;
mod locate;
mod merge;
mod open;
mod reload;
