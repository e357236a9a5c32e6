//! Places and networks of addresses, from MMDB files in MaxMind's nested schema.
//!
//! Deliberately absent: clocks (the caller says what time it is), logging, and any trace of the addresses that were asked for.

mod atlas;
mod derive;
mod edition;
mod error;
mod networks;
mod record;

pub use atlas::Atlas;
pub use edition::{Edition, Kind};
pub use error::GeoError;
