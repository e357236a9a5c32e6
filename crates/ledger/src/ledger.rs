//! The handle to Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::LedgerError;
use crate::redis::identity::TrustedStores;
use crate::redis::node::{ConnectGate, NodeSettings};
use crate::redis::router::RedisRouter;
use crate::redis::tls::RedisTls;
use crate::scripts::random_nonce;

/// How to reach Redis.
#[derive(Clone)]
pub struct LedgerOptions {
    /// One `redis://…` or `rediss://…` URL or several, separated by commas. For a cluster, any of its servers; otherwise a primary and
    /// the replicas that may be promoted. Or the Sentinels that name the primary: `redis+sentinel://host1,host2/NAME`.
    pub url: String,
    /// Certificates for `rediss://…` URLs.
    pub tls: RedisTls,
    /// Time limit of a call, including the time to connect.
    pub timeout: Duration,
    /// Number of consecutive failed charges after which a server counts as unreachable.
    pub breaker_failures_max: u32,
    /// What this process trusts.
    pub trusted: Arc<TrustedStores>,
    /// Called before a new connection is used.
    pub connect_gate: Option<ConnectGate>,
    /// The most that the burst window is shortened after the clock of Redis was set back.
    pub clock_fall_max: Duration,
}

impl LedgerOptions {
    /// Options for a server, without a gate, for any database and data set.
    #[must_use]
    pub fn new(url: impl Into<String>, timeout: Duration) -> Self {
        Self {
            url: url.into(),
            tls: RedisTls::default(),
            timeout,
            breaker_failures_max: 5,
            trusted: Arc::default(),
            connect_gate: None,
            clock_fall_max: Duration::from_secs(30),
        }
    }
}

/// A handle to Redis.
pub struct Ledger {
    pub(crate) router: Arc<RedisRouter>,
    pub(crate) timeout: Duration,
    /// Identifies this handle in Redis.
    pub(crate) node_id: String,
    settings: Arc<NodeSettings>,
}

impl Ledger {
    /// Creates a handle. It connects on first use, so a node can start while Redis is down.
    ///
    /// # Errors
    /// Fails if a URL is invalid.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        let settings = Arc::new(NodeSettings {
            connect_gate: options.connect_gate.clone(),
            tls: options.tls.clone(),
            breaker_failures_max: options.breaker_failures_max,
            trusted: Arc::clone(&options.trusted),
            clock_steps: AtomicU64::new(0),
            start: Instant::now(),
            clock_fall_max: options.clock_fall_max,
            owner_change: Mutex::default(),
        });
        Ok(Self {
            router: Arc::new(RedisRouter::new(&options.url, &settings)?),
            timeout: options.timeout,
            node_id: random_nonce(),
            settings,
        })
    }

    /// What identifies the database of PostgreSQL, if it is known. It changes if commits may have been lost.
    #[must_use]
    pub fn database(&self) -> Option<String> {
        let fingerprint = self.settings.trusted.database()?;
        Some(String::from_utf8_lossy(&fingerprint).into_owned())
    }

    /// Number of times that the clock of a server was stepped by more than a second.
    #[must_use]
    pub fn clock_steps(&self) -> u64 {
        self.settings.clock_steps.load(Ordering::Relaxed)
    }
}
