//! A deployment that has received every kind of request, with all logs at their most verbose level.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Node, RedisOptions, TestClient, TestDir, eventually};
use tokio::sync::OnceCell;

use super::canaries::Canaries;
use super::{faults, malformed_input, members, routes};
use crate::fixture::{env_number, fresh_key};
use crate::portal::fixture::PortalFixture as Portal;
use crate::proxies::edge_env;
use crate::tickets::ticket_env;

/// How each node determines the client's address. The last accepts PROXY headers.
const NODE_SETTINGS: [&[(&str, &str)]; 4] = [
    &[("FORWARDING_HEADER", "x-forwarded-for")],
    &[("FORWARDING_HEADER", "forwarded")],
    &[("FORWARDING_HEADER", "cf-connecting-ip")],
    &[("PRESET", "haproxy")],
];
/// Index of the node that accepts PROXY headers.
pub(crate) const PROXY_PROTOCOL_NODE: usize = 3;
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct PrivacyFixture {
    pub(crate) portal: Portal,
    pub(crate) canaries: Canaries,
    /// Keys in every state: active, deactivated, with a wrong secret, unknown, mistyped.
    pub(crate) keys: Vec<String>,
    /// Data that Redis had in memory before it was killed.
    pub(crate) saved_dumps: Vec<(&'static str, Vec<u8>)>,
    _sealing_keys: TestDir,
    /// Temporary nodes, whose files are kept.
    extra_nodes: Mutex<Vec<Node>>,
    /// Every observed status.
    pub(crate) statuses: Mutex<BTreeSet<u16>>,
}

static FIXTURE: OnceCell<PrivacyFixture> = OnceCell::const_new();

pub(crate) async fn shared_fixture() -> &'static PrivacyFixture {
    FIXTURE
        .get_or_init(async || {
            let mut fixture = PrivacyFixture::open().await;
            for round in 1..=env_number("IPSEITY_PRIVACY_ROUNDS", 1) {
                // New keys in each round, because the most used ones would be paused.
                fixture.keys = issue_keys(fixture.deployment(), &fixture.canaries).await;
                routes::request_everything(&fixture, round).await;
                malformed_input::send_malformed_input(&fixture).await;
                members::run_member_actions(&fixture).await;
                faults::run_faults(&mut fixture).await;
            }
            fixture
        })
        .await
}

impl PrivacyFixture {
    async fn open() -> Self {
        let options = DeploymentOptions {
            nodes: 0,
            redis: RedisOptions { appendonly: true, ..RedisOptions::default() },
            fault_proxies: true,
            sandboxed: true,
            ..DeploymentOptions::default()
        };
        let settings = [
            ("IPSEITY__LOG__LEVEL", "trace"),
            ("IPSEITY__STORE__TIMEOUT_MS", "500"),
            ("IPSEITY__LEDGER__TIMEOUT_MS", "500"),
            ("IPSEITY__PORTAL__QUERY_TIMEOUT_MS", "500"),
            ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "5000"),
            ("IPSEITY__EDGE__HEADER_TIMEOUT_MS", "2000"),
            ("IPSEITY__EDGE__IDLE_TIMEOUT_MS", "20000"),
            ("IPSEITY__PUBLIC__ALLOW_PLAIN_HTTP", "true"),
            ("IPSEITY__PUBLIC__IPV4_URL", "https://ipv4.example.com"),
            ("IPSEITY__PUBLIC__IPV6_URL", "https://ipv6.example.com"),
            ("IPSEITY__EDGE__TRUSTED_PROXIES", "127.0.0.1/32,::1/128"),
            ("IPSEITY_FAILPOINTS", "panic"),
        ];
        let sealing_keys = TestDir::create().expect("directory");
        let mut portal = Portal::with_options(options, &settings).await;
        log_all_store_commands(&portal.deployment).await;
        for settings in NODE_SETTINGS {
            let mut env = ticket_env(sealing_keys.path(), "");
            // The default has the scheme of the URLs for one family.
            env.remove("IPSEITY__PUBLIC__BASE_URL");
            env.extend(edge_env(settings));
            let node = portal.deployment.start_node(&env).await.expect("node starts");
            portal.deployment.nodes.push(node);
        }
        Self {
            portal,
            canaries: Canaries::generate(),
            keys: Vec::new(),
            saved_dumps: Vec::new(),
            _sealing_keys: sealing_keys,
            extra_nodes: Mutex::default(),
            statuses: Mutex::default(),
        }
    }

    pub(crate) const fn deployment(&self) -> &Deployment {
        &self.portal.deployment
    }

    pub(crate) fn record_status(&self, status: u16) {
        self.statuses.lock().expect("lock is not poisoned").insert(status);
    }

    /// Keeps a stopped node and its files.
    pub(crate) fn retain_node(&self, node: Node) {
        self.extra_nodes.lock().expect("lock is not poisoned").push(node);
    }

    /// Ops listeners of all nodes.
    pub(crate) fn ops_addresses(&self) -> Vec<SocketAddr> {
        let extra_nodes = self.extra_nodes.lock().expect("lock is not poisoned");
        self.deployment().nodes.iter().chain(extra_nodes.iter()).map(Node::ops).collect()
    }

    /// All directories with written data.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        let extra_nodes = self.extra_nodes.lock().expect("lock is not poisoned");
        self.deployment().dirs().into_iter().chain(extra_nodes.iter().map(Node::dir)).map(Path::to_owned).collect()
    }

    /// Saves what Redis has only in memory.
    pub(crate) async fn save_redis_dump(&mut self) {
        let redis = &self.portal.deployment.redis;
        let held = redis.dump_all().await.expect("read the data of Redis");
        let slow = redis.slow_log().await.expect("read the slow log");
        self.saved_dumps.extend([("Redis: keys and values", held), ("Redis: slow log", slow)]);
    }

    /// Waits until every node has recovered from a fault.
    pub(crate) async fn wait_until_ready(&self) {
        for node in &self.deployment().nodes {
            let is_ready =
                async || TestClient::new(node.ops()).get("/ready", &[]).await.is_ok_and(|reply| reply.status == 200);
            eventually("the node is ready again", RECOVERY_TIMEOUT, is_ready).await.expect("node recovers");
        }
    }
}

/// Makes PostgreSQL and Redis log all statements and commands.
async fn log_all_store_commands(deployment: &Deployment) {
    let settings = [
        "log_statement = 'all'",
        "log_min_duration_statement = 0",
        "log_min_error_statement = 'debug5'",
        "log_parameter_max_length_on_error = -1",
        "log_connections = on",
        // Keeps old write-ahead log files, so that they can be searched.
        "wal_keep_size = '4GB'",
    ];
    for setting in settings {
        deployment.postgres.psql("postgres", &format!("alter system set {setting}")).await.expect("change the setting");
    }
    deployment.postgres.psql("postgres", "select pg_reload_conf()").await.expect("reload the settings");
    log_all_redis_commands(deployment).await;
}

/// Makes Redis record every command in its slow log and a monitor until it is killed.
pub(crate) async fn log_all_redis_commands(deployment: &Deployment) {
    for (name, value) in [("slowlog-max-len", "1000000"), ("slowlog-log-slower-than", "0")] {
        deployment.redis.run_command(&["CONFIG", "SET", name, value]).await.expect("change the setting");
    }
    deployment.redis.monitor().expect("start MONITOR");
}

async fn issue_keys(deployment: &Deployment, canaries: &Canaries) -> Vec<String> {
    let (active, inactive) = (fresh_key(deployment, Scope::Full).await, fresh_key(deployment, Scope::Geo).await);
    deployment
        .cli(&["key", "deactivate", &inactive.id])
        .await
        .expect("command runs")
        .ensure_success()
        .expect("deactivate the key");
    let wrong = PlaintextKey::rotate(ipseity_domain::KeyId::parse(&active.id).expect("valid ID"), || fastrand::u8(..));
    let unknown = PlaintextKey::generate(|| fastrand::u8(..));
    let mistyped = PlaintextKey::generate(|| fastrand::u8(..)).expose().replace("ips_", "ipz_");
    [&active.key, &inactive.key, wrong.expose(), unknown.expose(), &mistyped]
        .map(|key| canaries.register_key(key))
        .into()
}

/// Settings of a node like the first, with additional ones.
pub(crate) fn extra_node_env(settings: &[(&str, &str)]) -> Env {
    let mut env = edge_env(NODE_SETTINGS[0]);
    env.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env
}
