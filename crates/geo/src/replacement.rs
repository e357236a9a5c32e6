//! Whether an edition may take the place of another.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::database::{MmdbDatabase, search_tree_leaves};
use crate::edition::Edition;
use crate::error::GeoError;

/// Leaves that are looked at, and networks with data that are taken from them, for addresses which the old edition knows.
const SCANNED_LEAVES_MAX: usize = 100_000;
const COMPARED_NETWORKS_MAX: usize = 1_000;
/// Addresses evenly spread over IPv4 beside them: 2 to this power.
const COMPARED_ADDRESSES_BITS: u32 = 12;

/// Checks a file whole, and against the file whose place it is to take, if that one can be used at all.
///
/// # Errors
/// A file that is damaged, older than the other, or knows nothing that the other knows.
pub fn check_replacement(candidate: &Path, current: &Path, allow_older: bool) -> Result<Edition, GeoError> {
    // The old file is let go before the new one is read: both at once are more memory than a small machine may have.
    let old =
        MmdbDatabase::open(current).ok().map(|old| (old.edition().clone(), old_addresses(&old).collect::<Vec<_>>()));
    let new = MmdbDatabase::open(candidate)?;
    new.verify()?;
    if let Some((edition, old_addresses)) = old {
        check_against_old(&new, &edition, old_addresses.into_iter(), allow_older)?;
    }
    Ok(new.edition().clone())
}

/// Reads a file anew and checks it whole, and against the edition that it replaces.
pub(crate) fn load_replacement(old: &MmdbDatabase, allow_older: bool) -> Result<MmdbDatabase, GeoError> {
    let new = MmdbDatabase::open(old.path())?;
    new.verify()?;
    check_against_old(&new, old.edition(), old_addresses(old), allow_older)?;
    Ok(new)
}

/// Compares a database with another's edition and with the addresses that the other knows.
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

/// Addresses that a database knows.
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
