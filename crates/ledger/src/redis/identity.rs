//! The incarnation of a key record: which Redis data set and which PostgreSQL database it was written from.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ipseity_domain::is_mutant;
use redis::RedisError;
use redis::aio::{ConnectionLike, MultiplexedConnection};

use crate::columns::column;
use crate::ledger_time::LedgerTime;

const PART_BYTES: usize = 8;
const _: () = assert!(2 * PART_BYTES == column("incarnation").width);

/// The identity of a Redis data set: one of a server's databases. It changes when the server is restarted, restored or
/// promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "fuzzing", derive(Default))]
pub struct DataSet([u8; PART_BYTES]);

impl DataSet {
    /// No data set.
    pub const NONE: Self = Self([b' '; PART_BYTES]);

    /// Parses the text of a data set.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = text == Self::NONE.as_str() || text.bytes().all(|symbol| SYMBOLS.contains(&symbol));
        text.as_bytes().try_into().ok().filter(|_| is_valid).map(Self)
    }

    /// An identity of several data sets, in any order.
    pub(crate) fn combine(data_sets: impl IntoIterator<Item = Self>) -> Self {
        let combined = data_sets.into_iter().map(|data_set| fnv1a(data_set.0)).fold(0, |sum, hash| sum ^ hash);
        Self::from_hash(combined)
    }

    fn new(run_id: &str, replication_id: &str, database: i64) -> Self {
        let ids = run_id.bytes().chain(replication_id.bytes());
        Self::from_hash(fnv1a(ids.chain(database.to_le_bytes())))
    }

    fn from_hash(hash: u64) -> Self {
        Self(std::array::from_fn(|index| SYMBOLS[(hash >> (6 * index)) as usize % SYMBOLS.len()]))
    }

    /// The identity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

const SYMBOLS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";

/// The ids are random, and not chosen by an attacker.
fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The PostgreSQL database and the Redis data set that a process trusts. All its handles share this.
#[derive(Debug, Default)]
pub struct TrustedStores {
    database: AtomicU64,
    data_set: AtomicU64,
    /// Whether other data sets may be used too.
    is_any_allowed: AtomicBool,
}

impl TrustedStores {
    /// Sets the eight characters that identify the database. They change when a replica is promoted or a backup is
    /// restored. Without them, records of any database are trusted.
    pub fn set_database(&self, fingerprint: Option<[u8; 8]>) {
        self.database.store(fingerprint.map_or(0, u64::from_ne_bytes), Ordering::Release);
    }

    /// Sets the [id](crate::LedgerIdentity::data_set_id) of the data set. Before that, any is trusted. It does not apply
    /// to clusters.
    pub fn set_data_set(&self, id: &str) {
        self.data_set.store(id.as_bytes().try_into().map_or(0, u64::from_ne_bytes), Ordering::Release);
        self.is_any_allowed.store(false, Ordering::Release);
    }

    /// Allows every data set until the next call of [`set_data_set`](Self::set_data_set). The one that is set is preferred.
    pub fn allow_any_data_set(&self) {
        self.is_any_allowed.store(true, Ordering::Release);
    }

    pub(crate) fn database(&self) -> Option<[u8; PART_BYTES]> {
        let bytes = self.database.load(Ordering::Acquire);
        (bytes != 0).then(|| bytes.to_ne_bytes())
    }

    /// The only data set that may be used, if there is such a one.
    #[must_use]
    pub fn data_set_id(&self) -> Option<String> {
        let bytes = self.data_set.load(Ordering::Acquire);
        let is_only = bytes != 0 && !self.is_any_allowed.load(Ordering::Acquire);
        is_only.then(|| String::from_utf8_lossy(&bytes.to_ne_bytes()).into_owned())
    }

    /// Whether a server may be used. A handle can find another primary than the one that this process claimed.
    pub(crate) fn include(&self, server: &ServerIdentity) -> bool {
        self.prefer(server) || server.is_cluster || self.is_any_allowed.load(Ordering::Acquire)
    }

    /// Whether a server has the data set that is set.
    pub(crate) fn prefer(&self, server: &ServerIdentity) -> bool {
        let data_set = self.data_set.load(Ordering::Acquire);
        data_set == 0 || data_set == u64::from_ne_bytes(server.data_set.0)
    }
}

/// What a record must start with to be trusted: the data set, and the database if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    bytes: [u8; 2 * PART_BYTES],
    len: usize,
}

impl Incarnation {
    pub(crate) fn new(data_set: DataSet, store: &TrustedStores) -> Self {
        let mut bytes = [0; 2 * PART_BYTES];
        bytes[..PART_BYTES].copy_from_slice(&data_set.0);
        let Some(fingerprint) = store.database().filter(|_| !is_mutant("database-not-in-incarnation")) else {
            return Self { bytes, len: PART_BYTES };
        };
        bytes[PART_BYTES..].copy_from_slice(&fingerprint);
        Self { bytes, len: bytes.len() }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The data set and the role of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    pub(crate) data_set: DataSet,
    pub(crate) is_primary: bool,
    pub(crate) is_cluster: bool,
}

impl ServerIdentity {
    /// Reads the identity and the clock of a server.
    pub(crate) async fn fetch(conn: &mut MultiplexedConnection) -> Result<(Self, LedgerTime), RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").arg("server").arg("replication").arg("cluster").cmd("TIME");
        let (info, (s, us)): (String, (u64, u64)) = pipeline.query_async(conn).await?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        let identity = Self {
            data_set: DataSet::new(field("run_id"), field("master_replid"), conn.get_db()),
            is_primary: field("role") == "master",
            is_cluster: field("cluster_enabled") == "1",
        };
        Ok((identity, LedgerTime(s * 1000 + us / 1000)))
    }
}
