//! Checks whether a database may replace another.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::database::{MmdbDatabase, search_tree_leaves};
use crate::edition::Edition;
use crate::error::GeoError;

/// Number of leaves to scan, and of networks with data to compare, to sample addresses of the old database.
const SCANNED_LEAVES_MAX: usize = 100_000;
const COMPARED_NETWORKS_MAX: usize = 1_000;
/// Number of additional addresses, evenly spread over IPv4: 2 to this power.
const COMPARED_ADDRESSES_BITS: u32 = 12;

/// Checks a file completely, and compares it with the current file if that one is valid.
///
/// # Errors
/// If the candidate is damaged, is older than the current file, or covers none of the sampled addresses that it covers.
pub fn check_replacement(candidate: &Path, current: &Path, allow_older: bool) -> Result<Edition, GeoError> {
    // The old file is dropped before the new one is read, because a small machine may not have the memory for both.
    let old =
        MmdbDatabase::open(current).ok().map(|old| (old.edition().clone(), old_addresses(&old).collect::<Vec<_>>()));
    let new = load_first(candidate)?;
    if let Some((edition, old_addresses)) = old {
        check_against_old(&new, &edition, old_addresses.into_iter(), allow_older)?;
    }
    Ok(new.edition().clone())
}

/// Reads a file that was missing, and checks it completely.
pub(crate) fn load_first(path: &Path) -> Result<MmdbDatabase, GeoError> {
    let new = MmdbDatabase::open(path)?;
    new.verify()?;
    Ok(new)
}

/// Reads a changed file, checks it completely, and compares it with the old database.
pub(crate) fn load_replacement(old: &MmdbDatabase, allow_older: bool) -> Result<MmdbDatabase, GeoError> {
    let new = load_first(old.path())?;
    check_against_old(&new, old.edition(), old_addresses(old), allow_older)?;
    Ok(new)
}

/// Compares a database with the edition and the sampled addresses of the old one.
fn check_against_old(
    new: &MmdbDatabase,
    old: &Edition,
    old_addresses: impl Iterator<Item = IpAddr>,
    allow_older: bool,
) -> Result<(), GeoError> {
    let (database_type, path) = (&new.edition().database_type, new.path().to_owned());
    let is_older = *database_type == old.database_type && new.edition().build_epoch_s < old.build_epoch_s;
    if is_older && !allow_older {
        return Err(GeoError::OlderEdition { path, database_type: database_type.clone() });
    }
    let mut old_addresses = old_addresses.peekable();
    if old_addresses.peek().is_some() && !old_addresses.any(|address| has_facts_for(new, address)) {
        return Err(GeoError::LostCoverage { path });
    }
    Ok(())
}

/// A sample of the addresses that a database covers.
fn old_addresses(database: &MmdbDatabase) -> impl Iterator<Item = IpAddr> {
    let first = search_tree_leaves(database.reader()).into_iter().flatten().take(SCANNED_LEAVES_MAX).flatten();
    let first = first.filter(|leaf| leaf.offset().is_some()).filter_map(|leaf| Some(leaf.network().ok()?.network()));
    let spread = (0..1_u32 << COMPARED_ADDRESSES_BITS)
        .map(|step| IpAddr::from(Ipv4Addr::from_bits(step << (u32::BITS - COMPARED_ADDRESSES_BITS))));
    first.take(COMPARED_NETWORKS_MAX).chain(spread).filter(|address| has_facts_for(database, *address))
}

fn has_facts_for(database: &MmdbDatabase, address: IpAddr) -> bool {
    database.lookup(address).is_some_and(|facts| database.edition().kind.matches_facts(&facts))
}
