//! PostgreSQL, Redis, keys, and the services of several nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::{ApiKey, PlaintextKey, Restrictions, Scope};
use ipseity_keys::{CommittedChange, DeploymentGuard, KeyMetrics, KeyService};
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, Ledger, LedgerOptions, Verdict};
use ipseity_store::{Account, Actor, Store, StoreOptions};
use ipseity_testkit::{Postgres, PostgresOptions, Redis, RedisOptions};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Long enough for a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const DATABASE: &str = "ipseity_test";

pub struct KeysFixture {
    pub postgres: Postgres,
    pub redis: Redis,
    pub store: Store,
    pub account: Account,
}

/// What one node has: a service and the ledger that charges.
pub struct TestNode {
    pub service: KeyService,
    pub ledger: Arc<Ledger>,
    pub guard: Arc<DeploymentGuard>,
    store: Store,
    registry: Registry,
}

impl KeysFixture {
    pub async fn open() -> Self {
        let postgres = Postgres::start(PostgresOptions::default()).await.expect("PostgreSQL starts");
        postgres.create_database(DATABASE).await.expect("database is created");
        let redis = Redis::start(RedisOptions::default()).await.expect("Redis starts");
        let store = open_store(postgres.url(DATABASE));
        store.migrate().await.expect("migrations succeed");
        let email = EmailAddress::parse("ada@ipseity.example").expect("address parses");
        let account = store.accounts().create(&email, "free").await.expect("account is created");
        Self { postgres, redis, store, account }
    }

    pub const fn owner(&self) -> Actor {
        Actor::Owner(self.account.id)
    }

    pub async fn create_key(&self) -> ApiKey {
        let key = PlaintextKey::generate(|| fastrand::u8(..)).to_api_key();
        let name = KeyName::parse("a key").expect("name parses");
        self.store
            .keys()
            .create(&self.account, Actor::Operator, &name, Scope::Geo, &key, &Restrictions::default())
            .await
            .expect("key is created");
        key
    }

    /// A node that uses this Redis.
    pub fn node_at(&self, redis: &Redis) -> TestNode {
        self.node_with_timeout(redis, TEST_TIMEOUT)
    }

    pub fn node_with_timeout(&self, redis: &Redis, timeout: Duration) -> TestNode {
        let guard = Arc::new(DeploymentGuard::generate());
        let options =
            LedgerOptions { trusted: Arc::clone(guard.trusted_stores()), ..LedgerOptions::new(redis.url(), timeout) };
        let ledger = Arc::new(Ledger::new(&options).expect("options are valid"));
        let (store, mut registry) = (open_store(self.postgres.url(DATABASE)), Registry::default());
        let metrics = KeyMetrics::register(&mut registry);
        let service = KeyService::new(store.clone(), Arc::clone(&ledger), Arc::clone(&guard), metrics);
        TestNode { service, ledger, guard, store, registry }
    }

    pub fn node(&self) -> TestNode {
        self.node_at(&self.redis)
    }

    pub async fn sql(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect("statement succeeds")
    }

    pub async fn outbox_count(&self) -> String {
        self.sql("select count(*) from outbox").await
    }
}

impl TestNode {
    /// Charges a request as a node does: an unknown key is filled from PostgreSQL.
    pub async fn charge(&self, key: &ApiKey) -> Verdict {
        loop {
            let verdict = self.charge_once(key).await;
            let Verdict::Unknown(fence) = verdict else { return verdict };
            let record = self.store.keys().find_record(key.id).await.expect("query succeeds").expect("key exists");
            self.ledger.fill(&record, &fence).await.expect("fill succeeds");
        }
    }

    pub async fn charge_once(&self, key: &ApiKey) -> Verdict {
        let arrival = Arrival::Here(Instant::now());
        self.ledger
            .charge(key, ChargeId::next(), arrival, AppliedRestrictions::default())
            .await
            .expect("charge succeeds")
    }

    /// Charges until the key is paused.
    pub async fn charge_until_paused(&self, key: &ApiKey) {
        while !matches!(self.charge(key).await, Verdict::PausedNow { .. }) {}
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("metrics are encoded");
        text
    }
}

pub fn is_admitted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Admitted { .. })
}

#[track_caller]
pub fn assert_in_effect(committed: CommittedChange) {
    assert!(committed.publish_error.is_none(), "{:?}", committed.publish_error);
}

fn open_store(url: String) -> Store {
    let options = StoreOptions {
        url,
        application_name: "test",
        operator: None,
        token: None,
        connections_max: 10,
        timeout: TEST_TIMEOUT,
    };
    Store::new(&options).expect("options are valid")
}
