//! All databases as one immutable value, which is replaced as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipseity_domain::{Address, GeoFacts, Location, Network};

use crate::asn_lists::AsnLists;
use crate::builtin_asn_list::AsnCategory;
use crate::database::MmdbDatabase;
use crate::edition::Edition;
use crate::error::GeoError;
use crate::merge::merge_facts;
use crate::{enrich, zone};

/// The files of an atlas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtlasSources {
    /// MMDB files, in order of precedence.
    pub files: Vec<PathBuf>,
    /// Those of `files` that may be missing, because they are still being downloaded.
    pub optional_files: Vec<PathBuf>,
    /// Lists of AS numbers of hosting operators, in addition to the built-in list.
    pub hosting_lists: Vec<PathBuf>,
    /// Lists of AS numbers of VPN and proxy operators, in addition to the built-in list.
    pub proxy_lists: Vec<PathBuf>,
}

/// A set of geo databases, merged into one.
pub struct Atlas {
    databases: Vec<Arc<MmdbDatabase>>,
    editions: Vec<Edition>,
    asn_lists: Arc<AsnLists>,
    id: u64,
}

/// The position of an address's records in an atlas. Addresses with equal keys have equal facts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordKey {
    atlas_id: u64,
    offsets: [usize; RECORD_KEY_FILES_MAX],
}

/// Maximum number of files for which record keys exist.
const RECORD_KEY_FILES_MAX: usize = 4;
/// The offset in a file without a record.
const NO_RECORD: usize = usize::MAX;

impl Atlas {
    /// Reads the files and checks a sample of each. Without files, all facts are unknown.
    ///
    /// # Errors
    /// If a file that is not optional is missing, or a file is unreadable or damaged, or has no supported facts.
    pub fn open(sources: &AtlasSources) -> Result<Self, GeoError> {
        let databases = sources
            .files
            .iter()
            .filter(|path| path.exists() || !sources.optional_files.contains(path))
            .map(|path| MmdbDatabase::open(path).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let lists = AsnLists::open(&sources.hosting_lists, &sources.proxy_lists)?;
        Ok(Self::new(databases, Arc::new(lists)))
    }

    /// Creates an atlas of one database in memory. Errors show `path`.
    ///
    /// # Errors
    /// If the database is damaged or has no supported facts.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        Ok(Self::new(vec![Arc::new(MmdbDatabase::from_bytes(path, bytes)?)], Arc::default()))
    }

    /// Creates an atlas that may share unchanged databases with its predecessor, to save memory.
    pub(crate) fn new(databases: Vec<Arc<MmdbDatabase>>, asn_lists: Arc<AsnLists>) -> Self {
        let editions = databases.iter().map(|database| database.edition().clone()).collect();
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self { databases, editions, asn_lists, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }

    /// Checks the files completely: the search tree is finite, and every record can be decoded.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn verify(&self) -> Result<(), GeoError> {
        self.databases.iter().try_for_each(|database| database.verify())
    }

    /// The files in use, in order of precedence.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.databases.iter().map(|database| database.path())
    }

    /// The editions of the databases, in the order of the files.
    #[must_use]
    pub fn editions(&self) -> &[Edition] {
        &self.editions
    }

    pub(crate) fn databases(&self) -> &[Arc<MmdbDatabase>] {
        &self.databases
    }

    pub(crate) fn asn_lists(&self) -> &Arc<AsnLists> {
        &self.asn_lists
    }

    /// The facts about an address. Time zone offsets are those at `now_s`, in Unix time.
    #[must_use]
    pub fn locate(&self, address: Address, now_s: i64) -> GeoFacts<'_> {
        let address = address.expose();
        let records = self.databases.iter().filter_map(|database| database.lookup(address?));
        self.enriched(records.fold(GeoFacts::default(), merge_facts), now_s)
    }

    /// The record key of an address. `None` if the atlas has more than four files.
    #[must_use]
    pub fn record_key(&self, address: Address) -> Option<RecordKey> {
        let mut offsets = [NO_RECORD; RECORD_KEY_FILES_MAX];
        if self.databases.len() > offsets.len() {
            return None;
        }
        for (offset, database) in offsets.iter_mut().zip(&self.databases) {
            *offset = address.expose().and_then(|address| database.record_offset(address)).unwrap_or(NO_RECORD);
        }
        Some(RecordKey { atlas_id: self.id, offsets })
    }

    /// Visits the facts of every record of every file, in no particular order.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn for_each_record(&self, now_s: i64, mut visit: impl FnMut(GeoFacts<'_>)) -> Result<(), GeoError> {
        self.databases
            .iter()
            .try_for_each(|database| database.for_each_record(|facts| visit(self.enriched(facts, now_s))))
    }

    /// Adds facts that follow from the recorded ones.
    fn enriched<'a>(&self, facts: GeoFacts<'a>, now_s: i64) -> GeoFacts<'a> {
        GeoFacts { location: enriched_location(facts.location, now_s), network: self.enriched_network(facts.network) }
    }

    fn enriched_network<'a>(&self, network: Network<'a>) -> Network<'a> {
        // A record of the address is more specific than a list of whole networks.
        let recorded_or_listed = |recorded: Option<bool>, category| {
            recorded.or_else(|| Some(self.asn_lists.contains(network.asn?, category)))
        };
        Network {
            asn: network.asn,
            org: network.org.or_else(|| enrich::registered_organization(network.asn?)),
            proxy: recorded_or_listed(network.proxy, AsnCategory::Proxy),
            hosting: recorded_or_listed(network.hosting, AsnCategory::Hosting),
        }
    }
}

fn enriched_location(location: Location<'_>, now_s: i64) -> Location<'_> {
    let country = location.country.and_then(enrich::country_info);
    let zone = location.timezone.or_else(|| zone::zone_at_point(location.latitude?, location.longitude?));
    let (timezone, timezone_offset) = match zone {
        Some(name) => {
            let (name, offset) = zone::canonical_zone(name, now_s);
            (Some(name), offset)
        }
        None => (None, None),
    };
    Location {
        region_code: location.region_code.or_else(|| enrich::region_code_by_name(location.country?, location.region?)),
        country_name: location.country_name.or(country.map(|country| country.name)),
        continent: location.continent.or(country.map(|country| country.continent)),
        timezone,
        timezone_offset,
        is_eu: location.country.map(enrich::is_eu),
        currency: location.country.and_then(enrich::currency),
        ..location
    }
}
