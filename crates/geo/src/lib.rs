//! Places and networks of addresses, from MMDB files of every common maker, merged as one.
//!
//! Deliberately absent: clocks (the caller says what time it is), logging, and any trace of the addresses that were asked for.

mod asn_lists;
mod atlas;
mod attribution;
mod builtin_asn_list;
mod coverage;
mod database;
mod edition;
mod enrich;
mod error;
mod merge;
mod record;
mod reload;
mod replacement;
mod zone;

pub use atlas::{Atlas, AtlasSources, RecordKey};
pub use attribution::DatabaseAttribution;
pub use coverage::DatabaseCoverage;
pub use edition::{DatabaseKind, Edition};
pub use error::GeoError;
pub use reload::{AtlasReloader, ReloadReport};
pub use replacement::check_replacement;

/// What must be said of the data within the binary itself, wherever answers are shown to people.
pub const BUILTIN_DATA_NOTICES: [&str; 1] = ["Time zone boundaries contain information from OpenStreetMap, \
    made available at https://github.com/evansiroky/timezone-boundary-builder under the Open Database License."];
