//! All databases as one.
//!
//! Several files are merged in the order given; the first that knows the country decides it, and the first that knows the AS
//! number decides that. Fields of two places are never mixed: of the records that name the decided country, the most
//! detailed gives the place (a city before a region before a bare country; on a tie the earlier), and only records of the
//! very same country, region and city fill its gaps. So a Country file may stand before a City file, and two City files
//! never make a city of the one with the coordinates of the other.
//!
//! Files are read whole into memory: a mapped file that someone truncates kills the process.

use std::cmp::Ordering;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use domain::{Address, Facts, Network, Place};
use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;

use crate::derive;
use crate::edition::{Edition, Kind};
use crate::error::GeoError;
use crate::record::{NetworkRecord, PlaceRecord};

/// The databases that a node answers from.
pub struct Atlas {
    readers: Vec<Reader<Vec<u8>>>,
    editions: Vec<Edition>,
}

/// First networks of a file whose records are decoded when it is opened.
const PROBED_NETWORKS_MAX: usize = 1_000;
/// Addresses, evenly spread over IPv4, that are looked up when a file is opened: 2 to this power.
const PROBED_ADDRESSES_BITS: u32 = 12;

impl Atlas {
    /// Reads and checks the files; with none, nothing is known of any address.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or tells nothing that is understood.
    pub fn open(files: &[PathBuf]) -> Result<Self, GeoError> {
        let mut atlas = Self { readers: Vec::new(), editions: Vec::new() };
        for path in files {
            let (reader, edition) = open_one(path)?;
            atlas.readers.push(reader);
            atlas.editions.push(edition);
        }
        Ok(atlas)
    }

    /// The databases in use, in the order given.
    #[must_use]
    pub fn editions(&self) -> &[Edition] {
        &self.editions
    }

    /// All that is known of an address; time zone offsets hold for `now_s`, Unix time in seconds.
    #[must_use]
    pub fn locate(&self, address: Address, now_s: i64) -> Facts<'_> {
        let address = address.expose();
        let mut facts = Facts::default();
        for (reader, edition) in self.readers.iter().zip(&self.editions) {
            match edition.kind {
                Kind::City | Kind::Country => {
                    if let Some(record) = find::<PlaceRecord<'_>>(reader, address) {
                        facts.place = merged_place(facts.place, record.place());
                    }
                }
                Kind::Asn => {
                    if let Some(record) = find::<NetworkRecord<'_>>(reader, address) {
                        facts.network = merged_network(facts.network, record.network());
                    }
                }
            }
        }
        complete(&mut facts.place, now_s);
        facts
    }
}

fn open_one(path: &Path) -> Result<(Reader<Vec<u8>>, Edition), GeoError> {
    let bytes = fs::read(path).map_err(|reason| GeoError::Unreadable { path: path.to_owned(), reason })?;
    let unsound = |reason| GeoError::Unsound { path: path.to_owned(), reason };
    let reader = Reader::from_source(bytes).map_err(unsound)?;
    let database_type = reader.metadata().database_type.clone();
    let Some(kind) = Kind::find(&database_type) else {
        return Err(GeoError::UnknownType { path: path.to_owned(), database_type });
    };
    let telling = match kind {
        Kind::City | Kind::Country => probe(&reader, |record: PlaceRecord<'_>| record.place().country.is_some()),
        Kind::Asn => probe(&reader, |record: NetworkRecord<'_>| record.network().asn.is_some()),
    };
    if !telling.map_err(unsound)? {
        return Err(GeoError::UnknownSchema { path: path.to_owned(), database_type });
    }
    let edition = Edition::new(kind, reader.metadata());
    Ok((reader, edition))
}

/// Whether any record of a sample tells something; fails if one does not decode.
///
/// The sample stands for `Reader::verify`, which walks the whole file: 0.9 to 1.25 s for the 66 MB of GeoLite2-City.
fn probe<'a, T: Deserialize<'a>>(
    reader: &'a Reader<Vec<u8>>,
    tells: impl Fn(T) -> bool,
) -> Result<bool, MaxMindDbError> {
    let first = reader.networks(WithinOptions::default())?.take(PROBED_NETWORKS_MAX);
    let spread = (0..1 << PROBED_ADDRESSES_BITS)
        .map(|step: u32| reader.lookup(Ipv4Addr::from_bits(step << (u32::BITS - PROBED_ADDRESSES_BITS)).into()));
    let mut telling = false;
    for found in first.chain(spread) {
        telling |= found?.decode()?.is_some_and(&tells);
    }
    Ok(telling)
}

/// The record of an address; one that does not decode counts as none.
fn find<'a, T: Deserialize<'a>>(reader: &'a Reader<Vec<u8>>, address: IpAddr) -> Option<T> {
    reader.lookup(address).ok()?.decode().ok()?
}

fn merged_place<'a>(first: Place<'a>, later: Place<'a>) -> Place<'a> {
    if first.country != later.country {
        return if first.country.is_some() { first } else { later };
    }
    match detail(&later).cmp(&detail(&first)) {
        Ordering::Greater => later,
        Ordering::Equal if (first.region, first.city) == (later.region, later.city) => filled(first, later),
        Ordering::Equal | Ordering::Less => first,
    }
}

/// How closely a place is told; greater is closer.
fn detail(place: &Place<'_>) -> (bool, bool) {
    (place.city.is_some(), place.region.is_some())
}

/// A place with its gaps filled from another record of the same place.
fn filled<'a>(place: Place<'a>, other: Place<'a>) -> Place<'a> {
    // Coordinates are a pair: one number of each would be a third place.
    let point = if place.latitude.is_some() { &place } else { &other };
    Place {
        region_code: place.region_code.or(other.region_code),
        country_name: place.country_name.or(other.country_name),
        continent: place.continent.or(other.continent),
        latitude: point.latitude,
        longitude: point.longitude,
        timezone: place.timezone.or(other.timezone),
        postal_code: place.postal_code.or(other.postal_code),
        ..place
    }
}

fn merged_network<'a>(first: Network<'a>, later: Network<'a>) -> Network<'a> {
    match first.asn {
        None => later,
        Some(_) if first.asn == later.asn => Network { org: first.org.or(later.org), ..first },
        Some(_) => first,
    }
}

/// Adds what follows from the place's codes.
fn complete(place: &mut Place<'_>, now_s: i64) {
    if let Some(name) = place.timezone {
        let (name, offset) = derive::timezone(name, now_s);
        place.timezone = Some(name);
        place.timezone_offset = offset;
    }
    place.is_eu = place.country.map(derive::is_eu);
    place.currency = place.country.and_then(derive::currency);
}
