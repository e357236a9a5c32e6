//! All databases as one: an immutable value, to be swapped whole.

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

/// The files that an atlas is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtlasSources {
    /// MMDB files, in the order in which they are believed.
    pub files: Vec<PathBuf>,
    /// Lists of AS numbers to mark as hosting, beside the project's own.
    pub hosting_lists: Vec<PathBuf>,
    /// Lists of AS numbers to mark as VPN or proxy, beside the project's own.
    pub proxy_lists: Vec<PathBuf>,
}

/// The databases that a node answers from.
pub struct Atlas {
    databases: Vec<Arc<MmdbDatabase>>,
    editions: Vec<Edition>,
    asn_lists: Arc<AsnLists>,
    id: u64,
}

/// Where the databases of one atlas tell of an address: the same for all addresses that the same is told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordKey {
    atlas_id: u64,
    offsets: [usize; RECORD_KEY_FILES_MAX],
}

/// Files of an atlas whose spots can be told; more are rare.
const RECORD_KEY_FILES_MAX: usize = 4;
/// The offset in a file that tells nothing.
const NO_RECORD: usize = usize::MAX;

impl Atlas {
    /// Reads the files and checks a sample of each; without any, nothing is known of any address.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or tells nothing that is understood.
    pub fn open(sources: &AtlasSources) -> Result<Self, GeoError> {
        let databases =
            sources.files.iter().map(|path| MmdbDatabase::open(path).map(Arc::new)).collect::<Result<_, _>>()?;
        let lists = AsnLists::open(&sources.hosting_lists, &sources.proxy_lists)?;
        Ok(Self::new(databases, Arc::new(lists)))
    }

    /// An atlas of one database that is in memory already; `path` is what errors call it.
    ///
    /// # Errors
    /// A database that is damaged, or tells nothing that is understood.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        Ok(Self::new(vec![Arc::new(MmdbDatabase::from_bytes(path, bytes)?)], Arc::default()))
    }

    /// An atlas may share its databases with the one that it replaces: only what changed is in memory twice.
    pub(crate) fn new(databases: Vec<Arc<MmdbDatabase>>, asn_lists: Arc<AsnLists>) -> Self {
        let editions = databases.iter().map(|database| database.edition().clone()).collect();
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self { databases, editions, asn_lists, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }

    /// Checks the files whole: that the search tree ends and that every record can be read.
    ///
    /// # Errors
    /// The first file that is damaged.
    pub fn verify(&self) -> Result<(), GeoError> {
        self.databases.iter().try_for_each(|database| database.verify())
    }

    /// The databases in use, in the order given.
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

    /// All that is known of an address; time zone offsets hold for `now_s`, Unix time in seconds.
    #[must_use]
    pub fn locate(&self, address: Address, now_s: i64) -> GeoFacts<'_> {
        let address = address.expose();
        let records = self.databases.iter().filter_map(|database| database.lookup(address));
        self.enriched(records.fold(GeoFacts::default(), merge_facts), now_s)
    }

    /// Where an address is told of; `None` in an atlas of many files.
    #[must_use]
    pub fn record_key(&self, address: Address) -> Option<RecordKey> {
        let mut offsets = [NO_RECORD; RECORD_KEY_FILES_MAX];
        if self.databases.len() > offsets.len() {
            return None;
        }
        for (offset, database) in offsets.iter_mut().zip(&self.databases) {
            *offset = database.record_offset(address.expose()).unwrap_or(NO_RECORD);
        }
        Some(RecordKey { atlas_id: self.id, offsets })
    }

    /// All that is known anywhere: a place or network once for each record of a file that tells it, in no useful order.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn for_each_record(&self, now_s: i64, mut visit: impl FnMut(GeoFacts<'_>)) -> Result<(), GeoError> {
        self.databases
            .iter()
            .try_for_each(|database| database.for_each_record(|facts| visit(self.enriched(facts, now_s))))
    }

    /// Adds what follows from what was told.
    fn enriched<'a>(&self, facts: GeoFacts<'a>, now_s: i64) -> GeoFacts<'a> {
        GeoFacts { location: enriched_location(facts.location, now_s), network: self.enriched_network(facts.network) }
    }

    fn enriched_network<'a>(&self, network: Network<'a>) -> Network<'a> {
        // What a database says of the one address is closer than what is known of its whole network.
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
