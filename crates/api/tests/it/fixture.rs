//! A node's API in this process. PostgreSQL and Redis are real, and reached through fault proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use ipseity_api::{
    Api, ApiLimits, ApiMetrics, Backend, DegradedLimits, MinuteLimits, PublicService, PublicUrls, Stores, UsageBuffer,
};
use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::{Address, Client, ConnectionFacts, DEMO_DAILY_LIMIT, KeyId, PlaintextKey, Restrictions, Scope};
use ipseity_geo::{AtlasReloader, AtlasSources};
use ipseity_ledger::{Ledger, LedgerOptions, Published, RECONCILE_DELAY};
use ipseity_store::{Account, Actor, Store, StoreOptions};
use ipseity_testkit::{FaultConfig, FaultProxy, Postgres, PostgresOptions, Redis, RedisOptions, eventually};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::time::sleep;

const DATABASE: &str = "ipseity_test";
/// Long enough for a healthy server, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The timeout of a charge. Shorter than the time within which a charge is valid.
pub const CHARGE_TIMEOUT: Duration = Duration::from_millis(400);
/// Number of consecutive failed charges that start degraded mode.
pub const FAILURES_MAX: u32 = 3;
/// Concurrent lookups of unknown ids.
pub const UNKNOWN_LOOKUPS_MAX: usize = 2;
/// How long an id that PostgreSQL does not have is cached.
pub const UNKNOWN_TTL: Duration = Duration::from_secs(2);

/// PostgreSQL, Redis, and one node that uses them.
pub struct ApiFixture {
    _postgres: Postgres,
    pub postgres_link: FaultProxy,
    pub redis: Redis,
    pub redis_link: FaultProxy,
    /// The store and the ledger of another process, which reaches both servers.
    pub store: Store,
    pub ledger: Ledger,
    pub node: TestApi,
    account: Account,
}

impl ApiFixture {
    pub async fn open() -> Self {
        Self::with_options(|_| {}).await
    }

    /// `adjust` changes the options of the node's ledger.
    pub async fn with_options(adjust: impl FnOnce(&mut LedgerOptions)) -> Self {
        let redis = Redis::start(RedisOptions::default()).await.expect("Redis starts");
        let redis_link = FaultProxy::open(redis.address()).expect("proxy opens");
        let (postgres, postgres_link, store, account) = open_postgres().await;
        let ledger = Ledger::new(&LedgerOptions::new(redis.url(), PATIENCE)).expect("valid URL");
        let mut options = LedgerOptions::new(format!("redis://{}", redis_link.address()), CHARGE_TIMEOUT);
        options.breaker_failures_max = FAILURES_MAX;
        adjust(&mut options);
        let node = TestApi::start(&options, &postgres_link);
        Self { _postgres: postgres, postgres_link, redis, redis_link, store, ledger, node, account }
    }

    pub async fn create_key(&self) -> PlaintextKey {
        create_key(&self.store, &self.account).await
    }

    pub async fn insert_key(&self, key: &PlaintextKey) {
        insert_key(&self.store, &self.account, key).await;
    }

    /// Creates a key and makes its first request, so that the node and Redis know it.
    pub async fn create_known_key(&self) -> PlaintextKey {
        let key = self.create_key().await;
        assert_eq!(self.node.request(&key).await, 200);
        key
    }

    /// Publishes the last change of a key, like the outbox worker.
    pub async fn publish_change(&self, id: KeyId) {
        let change = self.store.keys().find_change(id).await.expect("PostgreSQL answers");
        let published = self.ledger.apply_change(&change).await.expect("Redis answers");
        assert_eq!(published, Published::Applied);
    }

    /// The number of charges of a key in Redis.
    pub async fn charged(&self, key: &PlaintextKey) -> u64 {
        let usage = self.ledger.usage_of(&[id_of(key)]).await.expect("Redis answers");
        usage[0].map_or(0, |usage| usage.count)
    }

    /// Cuts the node off Redis and makes requests with this key until degraded mode starts. Returns how many were
    /// admitted.
    pub async fn cut_off_redis(&self, key: &PlaintextKey) -> u64 {
        self.redis_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
        self.node.request_until_degraded(key).await
    }
}

/// A PostgreSQL server with an empty database and an account.
pub async fn open_postgres() -> (Postgres, FaultProxy, Store, Account) {
    let postgres = Postgres::start(PostgresOptions::default()).await.expect("PostgreSQL starts");
    let url = postgres.create_database(DATABASE).await.expect("database is created");
    let link = FaultProxy::open(postgres.address()).expect("proxy opens");
    let store = open_store(url, PATIENCE);
    store.migrate().await.expect("migrations succeed");
    let email = EmailAddress::parse("owner@ipseity.example").expect("address parses");
    let account = store.accounts().create(&email, "free").await.expect("account is created");
    (postgres, link, store, account)
}

pub async fn create_key(store: &Store, account: &Account) -> PlaintextKey {
    let key = generate_key();
    insert_key(store, account, &key).await;
    key
}

async fn insert_key(store: &Store, account: &Account, key: &PlaintextKey) {
    let name = KeyName::parse("a key").expect("name parses");
    let created = store
        .keys()
        .create(account, Actor::Operator, &name, Scope::Ip, &key.to_api_key(), &Restrictions::default())
        .await;
    created.expect("key is created");
}

pub fn generate_key() -> PlaintextKey {
    PlaintextKey::generate(|| fastrand::u8(..))
}

pub fn id_of(key: &PlaintextKey) -> KeyId {
    key.to_api_key().id
}

fn open_store(url: String, timeout: Duration) -> Store {
    let options =
        StoreOptions { url, application_name: "test", operator: None, token: None, connections_max: 10, timeout };
    Store::new(&options).expect("options are valid")
}

/// The API of one node.
pub struct TestApi {
    pub api: Arc<Api>,
    pub ledger: Arc<Ledger>,
    service: PublicService,
    registry: Registry,
}

impl TestApi {
    pub fn start(options: &LedgerOptions, postgres_link: &FaultProxy) -> Self {
        let ledger = Arc::new(Ledger::new(options).expect("valid URL"));
        let store = open_store(format!("postgres://postgres@{}/{DATABASE}", postgres_link.address()), PATIENCE);
        let atlas = AtlasReloader::open(AtlasSources::default(), false).expect("atlas opens");
        let mut registry = Registry::default();
        let metrics = ApiMetrics::register(&mut registry);
        let limits = ApiLimits {
            key_fills_max: 10,
            unknown_lookups_max: UNKNOWN_LOOKUPS_MAX,
            unknown_cache_max: 1_000,
            unknown_cache_ttl: UNKNOWN_TTL,
            refusal_cache_max: 100,
            demo_requests_per_subnet_max: 100,
            demo_daily_limit: DEMO_DAILY_LIMIT,
            caller_counters_max: 1_000,
            render_cache_max: 1,
            degraded: DegradedLimits { local_keys_max: 1_000, max_age: PATIENCE, store_timeout: CHARGE_TIMEOUT },
            key_status: MinuteLimits {
                requests_per_key_per_min_max: 60,
                requests_per_subnet_per_min_max: 60,
                entries_max: 100,
            },
        };
        let urls = PublicUrls {
            base: "https://ipseity.example".to_owned(),
            docs: String::new(),
            signup: String::new(),
            enterprise: String::new(),
            dashboard: String::new(),
        };
        let usage_buffer = Arc::new(UsageBuffer::new(1_000));
        let backend = Backend::Stores(Stores { ledger: Arc::clone(&ledger), store });
        let api = Arc::new(Api::new(backend, Arc::new(atlas), urls, usage_buffer, metrics, limits));
        let service =
            ipseity_api::public_service(ipseity_api::router(Arc::clone(&api)), None, &api, 1_000, 2 * PATIENCE);
        Self { api, ledger, service, registry }
    }

    /// Makes a lookup with this key and returns the status.
    pub async fn request(&self, key: &PlaintextKey) -> u16 {
        self.send(key, IpAddr::V4(Ipv4Addr::LOCALHOST), HeaderMap::new()).await.0
    }

    /// Makes a lookup from this address with these headers. Returns the status, the headers and the body.
    pub async fn send(&self, key: &PlaintextKey, from: IpAddr, headers: HeaderMap) -> (u16, HeaderMap, Value) {
        let request = Request::get("/api/v1/ip").header(AUTHORIZATION, format!("Bearer {}", key.expose()));
        let mut request = request.body(Body::empty()).expect("valid request");
        request.headers_mut().extend(headers);
        let client = Client { address: Address::new(from), connection: ConnectionFacts::default() };
        let (head, body) = self.service.call(client, request).await.into_parts();
        let body = body.collect().await.expect("complete body").to_bytes();
        (head.status.as_u16(), head.headers, serde_json::from_slice(&body).expect("valid JSON"))
    }

    /// Makes a request and checks that the local limiter decides on it.
    pub async fn request_degraded(&self, key: &PlaintextKey) -> u16 {
        let before = self.metric("degraded_decisions_total");
        let status = self.request(key).await;
        assert_eq!(self.metric("degraded_decisions_total"), before + 1, "Redis decided: {status}");
        status
    }

    /// Makes requests until degraded mode starts. Returns how many were admitted.
    pub async fn request_until_degraded(&self, key: &PlaintextKey) -> u64 {
        let mut admitted = 0;
        eventually("degraded mode starts", PATIENCE, async || {
            assert_eq!(self.request(key).await, 200);
            admitted += 1;
            self.api.admission().is_degraded()
        })
        .await
        .expect("node is degraded");
        admitted
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("metrics are encoded");
        let value_of = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            (series.split('{').next() == Some(name)).then(|| value.parse::<u64>().ok())?
        };
        text.lines().filter_map(value_of).sum()
    }

    /// Leaves degraded mode for all servers that answer, like the recovery task.
    pub async fn recover(&self) {
        let admission = self.api.admission();
        eventually("Redis decides again", PATIENCE, async || {
            for owner in admission.unavailable_owners() {
                let _ = admission.recover_owner(&owner).await;
            }
            !admission.is_degraded()
        })
        .await
        .expect("node recovers");
    }

    /// Reconciles all pending charges, like the recovery task.
    pub async fn reconcile_all(&self) {
        sleep(RECONCILE_DELAY).await;
        let reconcile = async || self.api.admission().reconcile_pending().await == 0;
        eventually("no charge is pending", PATIENCE, reconcile).await.expect("charges are reconciled");
    }
}
