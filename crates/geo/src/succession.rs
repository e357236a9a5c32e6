//! Whether an edition may take the place of another.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::database::{Database, leaves};
use crate::edition::Edition;
use crate::error::GeoError;

/// Leaves that are looked at, and networks with data that are taken from them, for addresses which the old edition knows.
const LEAVES_MAX: usize = 100_000;
const NETWORKS_MAX: usize = 1_000;
/// Addresses evenly spread over IPv4 beside them: 2 to this power.
const SPREAD_BITS: u32 = 12;

/// Checks a file whole, and against the file whose place it is to take, if that one can be used at all.
///
/// # Errors
/// A file that is damaged, older than the other, or knows nothing that the other knows.
pub fn admit(candidate: &Path, current: &Path, allow_older: bool) -> Result<Edition, GeoError> {
    // The old file is let go before the new one is read: both at once are more memory than a small machine may have.
    let old = Database::open(current).ok().map(|old| (old.edition().clone(), known(&old).collect::<Vec<_>>()));
    let new = Database::open(candidate)?;
    new.verify()?;
    if let Some((edition, known)) = old {
        compare(&new, &edition, known.into_iter(), allow_older)?;
    }
    Ok(new.edition().clone())
}

/// Reads a file anew and checks it whole, and against the edition that it replaces.
pub(crate) fn renew(old: &Database, allow_older: bool) -> Result<Database, GeoError> {
    let new = Database::open(old.path())?;
    new.verify()?;
    compare(&new, old.edition(), known(old), allow_older)?;
    Ok(new)
}

/// Compares a database with another's edition and with the addresses that the other knows.
fn compare(
    new: &Database,
    old: &Edition,
    known: impl Iterator<Item = IpAddr>,
    allow_older: bool,
) -> Result<(), GeoError> {
    let (database_type, path) = (&new.edition().database_type, new.path().to_owned());
    let is_older = *database_type == old.database_type && new.edition().build_epoch_s < old.build_epoch_s;
    if is_older && !allow_older {
        return Err(GeoError::Older { path, database_type: database_type.clone() });
    }
    let mut known = known.peekable();
    if known.peek().is_some() && !known.any(|address| is_known(new, address)) {
        return Err(GeoError::Forgetful { path });
    }
    Ok(())
}

/// Addresses that a database knows.
fn known(database: &Database) -> impl Iterator<Item = IpAddr> {
    let first = leaves(database.reader()).into_iter().flatten().take(LEAVES_MAX).flatten();
    let first = first.filter(|leaf| leaf.offset().is_some()).filter_map(|leaf| Some(leaf.network().ok()?.network()));
    let spread =
        (0..1_u32 << SPREAD_BITS).map(|step| IpAddr::from(Ipv4Addr::from_bits(step << (u32::BITS - SPREAD_BITS))));
    first.take(NETWORKS_MAX).chain(spread).filter(|address| is_known(database, *address))
}

fn is_known(database: &Database, address: IpAddr) -> bool {
    database.find(address).is_some_and(|facts| database.edition().kind.is_told(&facts))
}
