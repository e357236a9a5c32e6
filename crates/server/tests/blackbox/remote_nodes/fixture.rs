//! Home nodes, and remote nodes behind links with a delay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipseity_domain::KeyId;
use ipseity_ledger::{Ledger, LedgerOptions};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::sites::remote_env;
use ipseity_testkit::deployment::{LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, FaultConfig, FaultProxy, Node, RedisCluster, RedisOptions,
    ReservedPort, TestDir,
};

use crate::fixture::relaxed_timeouts;

/// A deployment whose nodes are home nodes, and its remote nodes.
pub(super) struct Sites {
    pub(super) deployment: Deployment,
    pub(super) home_ports: Vec<ReservedPort>,
    /// URL of PostgreSQL for the commands that change sites.
    pub(super) owner_url: String,
    ledger: Ledger,
    dir: TestDir,
}

/// A remote node, and its links to the home nodes.
pub(super) struct RemoteNode {
    pub(super) node: Node,
    pub(super) links: Vec<FaultProxy>,
}

impl RemoteNode {
    /// Changes the faults of all links.
    pub(super) fn set_faults(&self, faults: FaultConfig) {
        for link in &self.links {
            link.set_faults(faults);
        }
    }

    /// Whether the node has a connection to home.
    pub(super) async fn is_connected(&self) -> bool {
        read_metric(&self.node, "ipseity_home_connected").await == 1
    }
}

/// The value of a metric without labels.
pub(super) async fn read_metric(node: &Node, name: &str) -> u64 {
    let metrics = node.metrics().await.expect("metrics arrive");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// A link with this delay in each direction, and some jitter.
pub(super) fn delayed(delay_ms: u64) -> FaultConfig {
    let (delay, jitter) = (Duration::from_millis(delay_ms), Duration::from_millis(3));
    FaultConfig { delay, jitter, ..FaultConfig::none() }
}

impl Sites {
    /// Starts home nodes.
    pub(super) async fn start(home_nodes: usize) -> Self {
        Self::start_with(home_nodes, RedisOptions::default()).await
    }

    /// The same with this Redis.
    pub(super) async fn start_with(home_nodes: usize, redis: RedisOptions) -> Self {
        let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), redis, ..DeploymentOptions::default() };
        let deployment = Deployment::start(options).await.expect("deployment starts");
        Self::start_at(deployment, home_nodes, &Env::new()).await
    }

    /// The same with a Redis cluster.
    pub(super) async fn start_on_cluster(home_nodes: usize, cluster: &RedisCluster) -> Self {
        let mut env = relaxed_timeouts();
        env.insert(LEDGER_URL_ENV.to_owned(), cluster.url());
        let options = DeploymentOptions { nodes: 0, env, ..DeploymentOptions::default() };
        let deployment = Deployment::start(options).await.expect("deployment starts");
        Self::start_at(deployment, home_nodes, &Env::new()).await
    }

    /// Starts home nodes of a deployment with these settings.
    pub(super) async fn start_at(mut deployment: Deployment, home_nodes: usize, settings: &Env) -> Self {
        let mut home_ports = Vec::new();
        for _ in 0..home_nodes {
            let port = ReservedPort::reserve_free().expect("free port");
            let mut env = deployment.home_env(port.address());
            env.extend(settings.clone());
            let node = deployment.start_node(&env).await.expect("home node starts");
            deployment.nodes.push(node);
            home_ports.push(port);
        }
        let options = LedgerOptions::new(&*deployment.env()[LEDGER_URL_ENV], Duration::from_secs(10));
        let ledger = Ledger::new(&options).expect("valid URL");
        let owner_url = deployment.postgres.url("ipseity");
        Self { deployment, home_ports, owner_url, ledger, dir: TestDir::create().expect("directory") }
    }

    /// Adds a site with the command that an operator uses. Returns the directory of its files.
    pub(super) async fn add_site(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        self.deployment.add_site(name, &dir, &self.owner_url).await.expect("site is added");
        dir
    }

    pub(super) async fn remove_site(&self, name: &str) {
        let settings = [(STORE_URL_ENV, &*self.owner_url)];
        let removed = self.deployment.cli_with_env(&settings, &["site", "remove", name, "--yes"]).await;
        removed.and_then(CommandOutput::ensure_success).expect("site is removed");
    }

    /// Starts a remote node of a new site, behind links with these faults to each home node. It waits long for home, because
    /// the machine may be busy.
    pub(super) async fn start_remote_node(&self, name: &str, faults: FaultConfig) -> RemoteNode {
        let timeouts = [("IPSEITY__HOME__TIMEOUT_MS", "10000"), ("IPSEITY__HOME__SILENCE_TIMEOUT_MS", "20000")];
        let timeouts = timeouts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.start_remote_node_with(name, faults, Env::from(timeouts)).await
    }

    /// The same with these settings.
    pub(super) async fn start_remote_node_with(&self, name: &str, faults: FaultConfig, settings: Env) -> RemoteNode {
        let dir = self.add_site(name).await;
        self.start_node_of_site(&dir, faults, settings).await
    }

    /// Starts a remote node with the files of a site.
    pub(super) async fn start_node_of_site(&self, dir: &Path, faults: FaultConfig, settings: Env) -> RemoteNode {
        let open_link = |port: &ReservedPort| FaultProxy::open(port.address()).expect("proxy opens");
        let links: Vec<_> = self.home_ports.iter().map(open_link).collect();
        for link in &links {
            link.set_faults(faults);
        }
        let mut env = remote_env(dir, &links.iter().map(FaultProxy::address).collect::<Vec<_>>());
        env.extend(settings);
        let node = self.deployment.start_node_with_config(&env, &dir.join("ipseity.toml")).await;
        let node = node.expect("remote node starts");
        RemoteNode { node, links }
    }

    /// The requests that are charged to a key, in Redis.
    pub(super) async fn charged(&self, key_id: &str) -> u64 {
        let id = KeyId::parse(key_id).expect("valid id");
        // The client library gives up after a second, which a busy machine may need.
        for _ in 0..10 {
            if let Ok(usage) = self.ledger.usage_of(&[id]).await {
                return usage[0].map_or(0, |usage| usage.count);
            }
        }
        panic!("Redis does not answer");
    }
}
