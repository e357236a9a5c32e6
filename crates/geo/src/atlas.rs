//! All databases as one: an immutable value, to be swapped whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::{Address, Facts, Network, Place};

use crate::database::Database;
use crate::edition::Edition;
use crate::error::GeoError;
use crate::list::Lists;
use crate::merge::merged;
use crate::networks::Mark;
use crate::{derive, zone};

/// The files that an atlas is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// MMDB files, in the order in which they are believed.
    pub files: Vec<PathBuf>,
    /// Lists of AS numbers to mark as hosting, beside the project's own.
    pub hosting_lists: Vec<PathBuf>,
    /// Lists of AS numbers to mark as VPN or proxy, beside the project's own.
    pub proxy_lists: Vec<PathBuf>,
}

/// The databases that a node answers from.
pub struct Atlas {
    databases: Vec<Arc<Database>>,
    editions: Vec<Edition>,
    lists: Arc<Lists>,
    serial: u64,
}

/// Where the databases of one atlas tell of an address: the same for all addresses that the same is told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    atlas: u64,
    offsets: [usize; SPOT_FILES_MAX],
}

/// Files of an atlas whose spots can be told; more are rare.
const SPOT_FILES_MAX: usize = 4;
/// The offset in a file that tells nothing.
const NOWHERE: usize = usize::MAX;

impl Atlas {
    /// Reads the files and checks a sample of each; without any, nothing is known of any address.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or tells nothing that is understood.
    pub fn open(sources: &Sources) -> Result<Self, GeoError> {
        let databases =
            sources.files.iter().map(|path| Database::open(path).map(Arc::new)).collect::<Result<_, _>>()?;
        let lists = Lists::open(&sources.hosting_lists, &sources.proxy_lists)?;
        Ok(Self::new(databases, Arc::new(lists)))
    }

    /// An atlas of one database that is in memory already; `path` is what errors call it.
    ///
    /// # Errors
    /// A database that is damaged, or tells nothing that is understood.
    pub fn decode(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        Ok(Self::new(vec![Arc::new(Database::decode(path, bytes)?)], Arc::default()))
    }

    /// An atlas may share its databases with the one that it replaces: only what changed is in memory twice.
    pub(crate) fn new(databases: Vec<Arc<Database>>, lists: Arc<Lists>) -> Self {
        let editions = databases.iter().map(|database| database.edition().clone()).collect();
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Self { databases, editions, lists, serial: SERIAL.fetch_add(1, Ordering::Relaxed) }
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

    pub(crate) fn databases(&self) -> &[Arc<Database>] {
        &self.databases
    }

    pub(crate) fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    /// All that is known of an address; time zone offsets hold for `now_s`, Unix time in seconds.
    #[must_use]
    pub fn locate(&self, address: Address, now_s: i64) -> Facts<'_> {
        let address = address.expose();
        let told = self.databases.iter().filter_map(|database| database.find(address));
        self.completed(told.fold(Facts::default(), merged), now_s)
    }

    /// Where an address is told of; `None` in an atlas of many files.
    #[must_use]
    pub fn spot(&self, address: Address) -> Option<Spot> {
        let mut offsets = [NOWHERE; SPOT_FILES_MAX];
        if self.databases.len() > offsets.len() {
            return None;
        }
        for (offset, database) in offsets.iter_mut().zip(&self.databases) {
            *offset = database.offset(address.expose()).unwrap_or(NOWHERE);
        }
        Some(Spot { atlas: self.serial, offsets })
    }

    /// All that is known anywhere: a place or network once for each record of a file that tells it, in no useful order.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn survey(&self, now_s: i64, mut see: impl FnMut(Facts<'_>)) -> Result<(), GeoError> {
        self.databases.iter().try_for_each(|database| database.survey(|facts| see(self.completed(facts, now_s))))
    }

    /// Adds what follows from what was told.
    fn completed<'a>(&self, facts: Facts<'a>, now_s: i64) -> Facts<'a> {
        Facts { place: completed_place(facts.place, now_s), network: self.completed_network(facts.network) }
    }

    fn completed_network<'a>(&self, network: Network<'a>) -> Network<'a> {
        // What a database says of the one address is closer than what is known of its whole network.
        let marked = |told: Option<bool>, mark| told.or_else(|| Some(self.lists.marks(network.asn?, mark)));
        Network {
            asn: network.asn,
            org: network.org.or_else(|| derive::organisation(network.asn?)),
            proxy: marked(network.proxy, Mark::Proxy),
            hosting: marked(network.hosting, Mark::Hosting),
        }
    }
}

fn completed_place(place: Place<'_>, now_s: i64) -> Place<'_> {
    let country = place.country.and_then(derive::country);
    let zone = place.timezone.or_else(|| zone::find(place.latitude?, place.longitude?));
    let (timezone, timezone_offset) = match zone {
        Some(name) => {
            let (name, offset) = zone::canonical(name, now_s);
            (Some(name), offset)
        }
        None => (None, None),
    };
    Place {
        region_code: place.region_code.or_else(|| derive::region_code_by_name(place.country?, place.region?)),
        country_name: place.country_name.or(country.map(|country| country.name)),
        continent: place.continent.or(country.map(|country| country.continent)),
        timezone,
        timezone_offset,
        is_eu: place.country.map(derive::is_eu),
        currency: place.country.and_then(derive::currency),
        ..place
    }
}
