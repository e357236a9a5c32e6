//! How many addresses a database covers.

use std::net::IpAddr;

use crate::atlas::Atlas;
use crate::database::{MmdbDatabase, search_tree_leaves};
use crate::error::GeoError;

/// Maximum number of leaves per node of a search tree. A valid tree has fewer than two.
const LEAVES_PER_NODE_MAX: usize = 3;

/// The coverage of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseCoverage {
    /// Networks with a record.
    pub networks: u64,
    /// IPv4 addresses in these networks.
    pub ipv4_addresses: u64,
}

impl DatabaseCoverage {
    /// The percentage of all IPv4 addresses.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an IPv4 count is exact in an f64")]
    pub fn ipv4_percent(&self) -> f64 {
        self.ipv4_addresses as f64 / 2_f64.powi(32) * 100.0
    }
}

impl Atlas {
    /// Measures the coverage of every database, in the order of the files. Reads each database completely.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn database_coverage(&self) -> Result<Vec<DatabaseCoverage>, GeoError> {
        self.databases().iter().map(|database| measure_coverage(database)).collect()
    }
}

fn measure_coverage(database: &MmdbDatabase) -> Result<DatabaseCoverage, GeoError> {
    let reader_error = |reason| GeoError::from_reader(database.path(), reason);
    let leaves_max = (database.edition().node_count as usize).saturating_mul(LEAVES_PER_NODE_MAX);
    let mut coverage = DatabaseCoverage::default();
    for leaf in search_tree_leaves(database.reader()).map_err(reader_error)?.take(leaves_max) {
        let leaf = leaf.map_err(reader_error)?;
        if leaf.offset().is_some() {
            let network = leaf.network().map_err(reader_error)?;
            coverage.networks += 1;
            coverage.ipv4_addresses += match network.network() {
                IpAddr::V4(_) => 1 << (32 - u32::from(network.prefix().min(32))),
                IpAddr::V6(_) => 0,
            };
        }
    }
    Ok(coverage)
}
