//! Places and networks of addresses, from MMDB files of every common maker, merged as one.
//!
//! Deliberately absent: clocks (the caller says what time it is), logging, and any trace of the addresses that were asked for.

mod atlas;
mod attribution;
mod database;
mod derive;
mod edition;
mod error;
mod extent;
mod list;
mod merge;
mod networks;
mod record;
mod shelf;
mod succession;
mod zone;

pub use atlas::{Atlas, Sources, Spot};
pub use attribution::Attribution;
pub use edition::{Edition, Kind};
pub use error::GeoError;
pub use extent::Extent;
pub use shelf::{News, Shelf};
pub use succession::admit;

/// What must be said of the data within the binary itself, wherever answers are shown to people.
pub const NOTICES: [&str; 1] = ["Time zone boundaries contain information from OpenStreetMap, \
    made available at https://github.com/evansiroky/timezone-boundary-builder under the Open Database License."];
