//! One MMDB file.
//!
//! The file is read into memory, because the truncation of a mapped file would kill the process. Its kind comes from
//! its metadata and records. The file name has no meaning.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipseity_domain::GeoFacts;
use maxminddb::{LookupResult, MaxMindDbError, Reader, WithinOptions};

use crate::edition::{DatabaseKind, Edition};
use crate::error::GeoError;
use crate::record::{LocationRecord, NetworkRecord};

/// Maximum size of a file: thirty times GeoLite2-City.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// Number of networks at the start of a file that are decoded when it is opened.
const SAMPLED_NETWORKS_MAX: usize = 1_000;
/// Number of addresses, evenly spread over IPv4, that are looked up when a file is opened: 2 to this power.
const SAMPLED_ADDRESSES_BITS: u32 = 12;
/// Maximum number of leaves per node of a search tree. A valid tree has fewer than two. A cyclic one never ends.
const LEAVES_PER_NODE_MAX: usize = 3;

/// A database in memory.
pub(crate) struct MmdbDatabase {
    path: PathBuf,
    reader: Reader<Vec<u8>>,
    edition: Edition,
}

impl MmdbDatabase {
    pub(crate) fn open(path: &Path) -> Result<Self, GeoError> {
        let read_error = |reason| GeoError::Unreadable { path: path.to_owned(), reason };
        let file = File::open(path).map_err(read_error)?;
        let length = file.metadata().map_err(read_error)?.len().min(FILE_BYTES_MAX);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read_error)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(GeoError::TooLarge { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
        }
        Self::from_bytes(path, bytes)
    }

    pub(crate) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let reader =
            Reader::from_source(bytes).map_err(|reason| GeoError::InvalidMmdb { path: path.to_owned(), reason })?;
        let declared_kind = DatabaseKind::from_database_type(&reader.metadata().database_type);
        let kind = detect_kind(&reader, declared_kind).map_err(|reason| GeoError::from_reader(path, reason))?;
        let Some(kind) = kind else {
            let database_type = reader.metadata().database_type.clone();
            return Err(GeoError::UnsupportedType { path: path.to_owned(), database_type });
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

    /// The facts about an address. `None` if its record is missing or cannot be decoded.
    pub(crate) fn lookup(&self, address: IpAddr) -> Option<GeoFacts<'_>> {
        decode_facts(&self.reader.lookup(address).ok()?, self.edition.kind).ok()?
    }

    /// The offset of an address's record.
    pub(crate) fn record_offset(&self, address: IpAddr) -> Option<usize> {
        self.reader.lookup(address).ok()?.offset()
    }

    /// Checks the whole file. This takes 2 s for the 66 MB of GeoLite2-City.
    pub(crate) fn verify(&self) -> Result<(), GeoError> {
        // The reader also checks fields that we do not read. But it rejects files without a description, such as those
        // of ip-location-db.
        if !self.reader.metadata().description.is_empty() {
            self.reader.verify().map_err(|reason| GeoError::from_reader(&self.path, reason))?;
        }
        self.for_each_record(|_| ())
    }

    /// Visits every record of the file once.
    pub(crate) fn for_each_record(&self, mut visit: impl FnMut(GeoFacts<'_>)) -> Result<(), GeoError> {
        let reader_error = |reason| GeoError::from_reader(&self.path, reason);
        let leaves_max = (self.edition.node_count as usize).saturating_mul(LEAVES_PER_NODE_MAX);
        let mut seen = HashSet::new();
        for (count, leaf) in search_tree_leaves(&self.reader).map_err(reader_error)?.enumerate() {
            if count > leaves_max {
                return Err(GeoError::CyclicTree { path: self.path.clone() });
            }
            let found = leaf.map_err(reader_error)?;
            if found.offset().is_some_and(|offset| seen.insert(offset))
                && let Some(facts) = decode_facts(&found, self.edition.kind).map_err(reader_error)?
            {
                visit(facts);
            }
        }
        Ok(())
    }
}

pub(crate) type MmdbLookup<'a> = LookupResult<'a, Vec<u8>>;

/// The leaves of a search tree, including empty ones. Without them, a damaged tree that shares empty nodes could take
/// forever to yield the next leaf.
pub(crate) fn search_tree_leaves(
    reader: &Reader<Vec<u8>>,
) -> Result<impl Iterator<Item = Result<MmdbLookup<'_>, MaxMindDbError>>, MaxMindDbError> {
    reader.networks(WithinOptions::default().include_networks_without_data())
}

fn decode_facts<'a>(found: &MmdbLookup<'a>, kind: DatabaseKind) -> Result<Option<GeoFacts<'a>>, MaxMindDbError> {
    Ok(match kind {
        DatabaseKind::City | DatabaseKind::Country => {
            found.decode::<LocationRecord<'_>>()?.map(LocationRecord::into_facts)
        }
        DatabaseKind::Asn | DatabaseKind::Anonymous => {
            found.decode::<NetworkRecord<'_>>()?.map(NetworkRecord::into_facts)
        }
    })
}

/// Detects the kind of a database from a sample of its records. The declared kind is tried first.
fn detect_kind(
    reader: &Reader<Vec<u8>>,
    declared_kind: Option<DatabaseKind>,
) -> Result<Option<DatabaseKind>, MaxMindDbError> {
    let mut first_error = None;
    for kind in declared_kind.into_iter().chain([
        DatabaseKind::City,
        DatabaseKind::Country,
        DatabaseKind::Asn,
        DatabaseKind::Anonymous,
    ]) {
        match has_facts_of_kind(reader, kind) {
            Ok(true) => return Ok(Some(kind)),
            Ok(false) => {}
            // The first error concerns the declared kind.
            Err(reason) => first_error = first_error.or(Some(reason)),
        }
    }
    first_error.map_or(Ok(None), Err)
}

/// Whether any record of a sample has facts of this kind. Fails if a record cannot be decoded.
fn has_facts_of_kind(reader: &Reader<Vec<u8>>, kind: DatabaseKind) -> Result<bool, MaxMindDbError> {
    let first_leaves = search_tree_leaves(reader)?.take(SAMPLED_NETWORKS_MAX);
    let spread_lookups = (0..1 << SAMPLED_ADDRESSES_BITS)
        .map(|step: u32| reader.lookup(Ipv4Addr::from_bits(step << (u32::BITS - SAMPLED_ADDRESSES_BITS)).into()));
    let mut has_facts = false;
    for found in first_leaves.chain(spread_lookups) {
        has_facts |= decode_facts(&found?, kind)?.is_some_and(|facts| kind.matches_facts(&facts));
    }
    Ok(has_facts)
}
