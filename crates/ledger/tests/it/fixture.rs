//! A Redis server, a ledger, and keys.

use std::time::Duration;

use ipseity_domain::{ApiKey, KeyFlags, KeyRecord, PlaintextKey, Scope};
use ipseity_ledger::{ChargeId, Fence, Ledger, LedgerOptions, Verdict};
use ipseity_testkit::{Redis, RedisCluster, RedisOptions, TestClock};
use redis::aio::MultiplexedConnection;

/// Long enough for a busy machine.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A midnight in January 2027.
pub const MIDNIGHT_MS: u64 = 1_800_000_000_000 / 86_400_000 * 86_400_000;

pub struct LedgerFixture<S = Redis> {
    pub redis: S,
    pub ledger: Ledger,
}

impl LedgerFixture {
    pub async fn open() -> Self {
        Self::with_options(RedisOptions::default()).await
    }

    /// Starts Redis with a clock that is frozen at noon.
    pub async fn at_noon() -> (Self, TestClock) {
        let clock = TestClock::open().expect("clock opens");
        clock.freeze_at_ms(i64::try_from(MIDNIGHT_MS + 43_200_000).expect("time fits into i64"));
        (Self::with_options(RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() }).await, clock)
    }

    pub async fn with_options(options: RedisOptions) -> Self {
        let redis = Redis::start(options).await.expect("Redis starts");
        let ledger = ledger_on(&redis);
        Self { redis, ledger }
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        self.redis.connect().await.expect("Redis accepts a connection")
    }
}

impl LedgerFixture<RedisCluster> {
    pub async fn cluster() -> Self {
        let redis = RedisCluster::start().await.expect("cluster starts");
        let ledger = ledger_at(redis.url());
        Self { redis, ledger }
    }
}

impl<S> LedgerFixture<S> {
    /// Returns a key that has a record in Redis.
    pub async fn filled_key(&self, daily_limit: u64) -> (ApiKey, KeyRecord) {
        let (key, key_record) = new_key(daily_limit);
        self.fill(&key, &key_record).await;
        (key, key_record)
    }

    /// Fills the record of a key as a node does.
    pub async fn fill(&self, key: &ApiKey, key_record: &KeyRecord) {
        let fence = self.expect_unknown(key).await;
        assert!(self.ledger.fill(key_record, &fence).await.expect("fill succeeds"), "a change overtook the fill");
    }

    pub async fn charge(&self, key: &ApiKey) -> Verdict {
        self.ledger.charge(key, ChargeId::next()).await.expect("charge succeeds")
    }

    pub async fn expect_unknown(&self, key: &ApiKey) -> Fence {
        let verdict = self.charge(key).await;
        let Verdict::Unknown(fence) = verdict else { panic!("record exists: {verdict:?}") };
        fence
    }

    pub async fn charge_admitted(&self, key: &ApiKey) -> u64 {
        admitted_count(&self.charge(key).await)
    }

    /// Charges until the key is paused.
    pub async fn charge_until_paused(&self, key: &ApiKey) -> ipseity_domain::KeyPause {
        for _ in 0..=ipseity_domain::BURST_LIMIT {
            if let Verdict::PausedNow(pause) = self.charge(key).await {
                return pause;
            }
        }
        panic!("not paused")
    }
}

/// The ledger of another node on the same server.
pub fn ledger_on(redis: &Redis) -> Ledger {
    ledger_at(redis.url())
}

pub fn ledger_at(url: String) -> Ledger {
    Ledger::new(&LedgerOptions { url, timeout: REQUEST_TIMEOUT }).expect("valid URL")
}

pub fn generate_key() -> ApiKey {
    PlaintextKey::generate(|| fastrand::u8(..)).to_api_key()
}

/// A new key and its record.
pub fn new_key(daily_limit: u64) -> (ApiKey, KeyRecord) {
    let key = generate_key();
    let flags = KeyFlags { deactivated: false, paused: false };
    let ApiKey { id, digest } = key;
    let scope = Scope::Full;
    (
        key,
        KeyRecord { id, digest, previous: None, scope, daily_limit, flags, generation: 1, burst_epoch: 1, usage: None },
    )
}

/// The number of used requests after an admitted request.
pub fn admitted_count(verdict: &Verdict) -> u64 {
    let Verdict::Admitted { quota, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    quota.used
}
