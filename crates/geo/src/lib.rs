//! Location and network of IP addresses, from MMDB files of all common providers.
//!
//! Main types:
//! - [`Atlas`]: an immutable set of databases, merged into one. [`Atlas::locate`] returns the facts about an address.
//! - [`AtlasReloader`]: the current atlas, replaced when a file changes.
//! - [`Edition`]: the metadata and attribution of a database.
//!
//! Guarantees:
//! - A lookup uses one atlas, so it never mixes the data of two editions of a file.
//! - A changed file is used only if it is valid as a whole, covers at least one of the sampled addresses that the
//!   current one covers, and is not older (unless that is allowed). Otherwise the current data stays in use.
//! - A damaged file is an error and never a panic.
//! - The crate has no clock and writes no logs. No error contains an address that was looked up.

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

/// Attributions of the data in the binary, to be shown wherever people see responses.
pub const BUILTIN_DATA_NOTICES: [&str; 1] = ["Time zone boundaries contain information from OpenStreetMap, \
    made available at https://github.com/evansiroky/timezone-boundary-builder under the Open Database License."];
