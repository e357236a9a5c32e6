//! A server, a ledger on it, and keys that a durable store would know.

use std::time::Duration;

use domain::{ClearKey, Key, Marks, Scope, Standing};
use ledger::{ChargeName, Fence, Ledger, LedgerOptions, Verdict};
use redis::aio::MultiplexedConnection;
use testkit::{Clock, Cluster, Redis, RedisOptions};

/// Long enough that a busy machine never makes a verdict late.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A midnight in January 2027.
pub const MIDNIGHT_MS: u64 = 1_800_000_000_000 / 86_400_000 * 86_400_000;

pub struct Stage<S = Redis> {
    pub redis: S,
    pub ledger: Ledger,
}

impl Stage {
    pub async fn open() -> Self {
        Self::with(RedisOptions::default()).await
    }

    /// On a clock that stands still at noon until it is moved.
    pub async fn at_noon() -> (Self, Clock) {
        let clock = Clock::open().expect("a clock");
        clock.freeze_at_ms(i64::try_from(MIDNIGHT_MS + 43_200_000).expect("a time"));
        (Self::with(RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() }).await, clock)
    }

    pub async fn with(options: RedisOptions) -> Self {
        let redis = Redis::start(options).await.expect("a server");
        let ledger = node(&redis);
        Self { redis, ledger }
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        self.redis.connection().await.expect("a connection")
    }
}

impl Stage<Cluster> {
    pub async fn cluster() -> Self {
        let redis = Cluster::start().await.expect("a cluster");
        let ledger = node_at(redis.url());
        Self { redis, ledger }
    }
}

impl<S> Stage<S> {
    /// A key that the counter store knows.
    pub async fn known(&self, daily_limit: u64) -> (Key, Standing) {
        let (key, standing) = fresh(daily_limit);
        self.fill(&key, &standing).await;
        (key, standing)
    }

    /// What the service does for a key that the counter store does not know.
    pub async fn fill(&self, key: &Key, standing: &Standing) {
        let fence = self.unknown(key).await;
        assert!(self.ledger.fill(standing, &fence).await.expect("a fill"), "overtaken");
    }

    pub async fn charge(&self, key: &Key) -> Verdict {
        self.ledger.charge(key, ChargeName::next()).await.expect("a verdict")
    }

    pub async fn unknown(&self, key: &Key) -> Fence {
        let verdict = self.charge(key).await;
        let Verdict::Unknown(fence) = verdict else { panic!("known: {verdict:?}") };
        fence
    }

    pub async fn admitted(&self, key: &Key) -> u64 {
        used(&self.charge(key).await)
    }

    /// Charges until the key is paused.
    pub async fn pause(&self, key: &Key) -> domain::Pause {
        for _ in 0..=domain::BURST_MAX {
            if let Verdict::PausedNow(pause) = self.charge(key).await {
                return pause;
            }
        }
        panic!("not paused")
    }
}

/// Another node's ledger on the same server.
pub fn node(redis: &Redis) -> Ledger {
    node_at(redis.url())
}

pub fn node_at(url: String) -> Ledger {
    Ledger::new(&LedgerOptions { url, timeout: PATIENCE }).expect("a ledger")
}

pub fn mint() -> Key {
    ClearKey::mint(|| fastrand::u8(..)).key()
}

/// A key and its standing as it was issued.
pub fn fresh(daily_limit: u64) -> (Key, Standing) {
    let key = mint();
    let marks = Marks { deactivated: false, paused: false };
    let Key { id, digest } = key;
    let scope = Scope::Full;
    (key, Standing { id, digest, retired: None, scope, daily_limit, marks, generation: 1, window: 1, used: None })
}

/// How much of its day an admitted request left used.
pub fn used(verdict: &Verdict) -> u64 {
    let Verdict::Admitted { charged, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    charged.used
}
