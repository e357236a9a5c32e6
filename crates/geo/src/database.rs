//! One MMDB file: recognised, checked, asked.
//!
//! It is read whole into memory: a mapped file that someone truncates kills the process. What it tells is known by its
//! metadata, and by its records where the metadata does not say; its name is never looked at.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use domain::Facts;
use maxminddb::{LookupResult, MaxMindDbError, Reader, WithinOptions};

use crate::edition::{Edition, Kind};
use crate::error::GeoError;
use crate::record::{NetworkRecord, PlaceRecord};

/// Bytes of a file: thirty times GeoLite2-City.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// First networks of a file whose records are decoded when it is opened.
const SAMPLED_NETWORKS_MAX: usize = 1_000;
/// Addresses, evenly spread over IPv4, that are looked up when a file is opened: 2 to this power.
const SAMPLED_ADDRESSES_BITS: u32 = 12;
/// Leaves of a search tree for each of its nodes; a sound tree has fewer than two, a cyclic one has no end.
const LEAVES_PER_NODE_MAX: usize = 3;

/// A database in memory.
pub(crate) struct Database {
    path: PathBuf,
    reader: Reader<Vec<u8>>,
    edition: Edition,
}

impl Database {
    pub(crate) fn open(path: &Path) -> Result<Self, GeoError> {
        let unreadable = |reason| GeoError::Unreadable { path: path.to_owned(), reason };
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len().min(FILE_BYTES_MAX);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(GeoError::TooLarge { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
        }
        Self::decode(path, bytes)
    }

    pub(crate) fn decode(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let reader =
            Reader::from_source(bytes).map_err(|reason| GeoError::Unsound { path: path.to_owned(), reason })?;
        let named = Kind::find(&reader.metadata().database_type);
        let kind = recognised(&reader, named).map_err(|reason| GeoError::of_reader(path, reason))?;
        let Some(kind) = kind else {
            let database_type = reader.metadata().database_type.clone();
            return Err(GeoError::Foreign { path: path.to_owned(), database_type });
        };
        let edition = Edition::new(kind, reader.metadata());
        Ok(Self { path: path.to_owned(), reader, edition })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn reader(&self) -> &Reader<Vec<u8>> {
        &self.reader
    }

    pub(crate) fn edition(&self) -> &Edition {
        &self.edition
    }

    /// What is told of an address; a record that does not decode tells nothing.
    pub(crate) fn find(&self, address: IpAddr) -> Option<Facts<'_>> {
        told(&self.reader.lookup(address).ok()?, self.edition.kind).ok()?
    }

    /// Where the record of an address is.
    pub(crate) fn offset(&self, address: IpAddr) -> Option<usize> {
        self.reader.lookup(address).ok()?.offset()
    }

    /// Checks the whole file: 2 s for the 66 MB of GeoLite2-City.
    pub(crate) fn verify(&self) -> Result<(), GeoError> {
        // The reader's own check also sees what no record of ours reads, but it refuses a file that lacks a description,
        // as those of the ip-location-db family do.
        if !self.reader.metadata().description.is_empty() {
            self.reader.verify().map_err(|reason| GeoError::of_reader(&self.path, reason))?;
        }
        self.survey(|_| ())
    }

    /// Shows every record of the file once.
    pub(crate) fn survey(&self, mut see: impl FnMut(Facts<'_>)) -> Result<(), GeoError> {
        let damaged = |reason| GeoError::of_reader(&self.path, reason);
        let leaves_max = (self.edition.node_count as usize).saturating_mul(LEAVES_PER_NODE_MAX);
        let mut seen = HashSet::new();
        for (count, leaf) in leaves(&self.reader).map_err(damaged)?.enumerate() {
            if count > leaves_max {
                return Err(GeoError::Endless { path: self.path.clone() });
            }
            let found = leaf.map_err(damaged)?;
            if found.offset().is_some_and(|offset| seen.insert(offset))
                && let Some(facts) = told(&found, self.edition.kind).map_err(damaged)?
            {
                see(facts);
            }
        }
        Ok(())
    }
}

pub(crate) type Found<'a> = LookupResult<'a, Vec<u8>>;

/// The leaves of a search tree, empty ones too: a tree that shares its empty nodes would be walked for ever between two others.
pub(crate) fn leaves(
    reader: &Reader<Vec<u8>>,
) -> Result<impl Iterator<Item = Result<Found<'_>, MaxMindDbError>>, MaxMindDbError> {
    reader.networks(WithinOptions::default().include_networks_without_data())
}

fn told<'a>(found: &Found<'a>, kind: Kind) -> Result<Option<Facts<'a>>, MaxMindDbError> {
    Ok(match kind {
        Kind::City | Kind::Country => found.decode::<PlaceRecord<'_>>()?.map(PlaceRecord::facts),
        Kind::Asn | Kind::Anonymous => found.decode::<NetworkRecord<'_>>()?.map(NetworkRecord::facts),
    })
}

/// What a database tells by a sample of its records: that which its type names, else whatever is found.
fn recognised(reader: &Reader<Vec<u8>>, named: Option<Kind>) -> Result<Option<Kind>, MaxMindDbError> {
    let mut failure = None;
    for kind in named.into_iter().chain([Kind::City, Kind::Country, Kind::Asn, Kind::Anonymous]) {
        match is_telling(reader, kind) {
            Ok(true) => return Ok(Some(kind)),
            Ok(false) => {}
            // The first is the one about the kind that the type names.
            Err(reason) => failure = failure.or(Some(reason)),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Whether any record of a sample tells what the kind promises; fails if one does not decode.
fn is_telling(reader: &Reader<Vec<u8>>, kind: Kind) -> Result<bool, MaxMindDbError> {
    let first = leaves(reader)?.take(SAMPLED_NETWORKS_MAX);
    let spread = (0..1 << SAMPLED_ADDRESSES_BITS)
        .map(|step: u32| reader.lookup(Ipv4Addr::from_bits(step << (u32::BITS - SAMPLED_ADDRESSES_BITS)).into()));
    let mut telling = false;
    for found in first.chain(spread) {
        telling |= told(&found?, kind)?.is_some_and(|facts| kind.is_told(&facts));
    }
    Ok(telling)
}
