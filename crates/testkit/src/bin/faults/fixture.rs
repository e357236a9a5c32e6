//! A deployment of two nodes, or two home nodes and two remote nodes, with a fault proxy on each link, for many runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ipseity_domain::PlaintextKey;
use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::deployment::node::{self, Env};
use ipseity_testkit::deployment::{LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{
    Deployment, DeploymentOptions, FaultProxy, Node, NodeFaultProxies, Redis, RedisCluster, RedisOptions, TestClock,
    TestDir,
};

use crate::changes::CommandLine;
use crate::links::{LinkFault, LinkFaults, LinkProxies};
use crate::load::{LoadKey, NodeTarget, NodeTargets};
use crate::sampler::{OpsTargets, sum_series};
use crate::sites::SiteParts;
use crate::stores::StoreParts;

/// Nodes with both stores, which are home nodes if there are remote ones.
pub(crate) const NODES: usize = 2;
/// The first one waits for home, the second one is optimistic.
pub(crate) const REMOTE_NODES: usize = 2;
/// A plan whose limit is reached within a run, and the default one.
pub(crate) const SMALL_PLAN: &str = "small";
pub(crate) const FREE_PLAN: &str = "free";
const SMALL_LIMIT: u64 = 60;
const FREE_LIMIT: u64 = 10_000;
const SHARDS: usize = 3;
/// Index of the optimistic node.
pub(crate) const OPTIMISTIC_NODE: usize = NODES + 1;

/// How the stores are deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultTopology {
    Single,
    /// A cluster of three primaries.
    Sharded,
    /// Remote nodes too.
    Sites,
    /// A primary and a replica with Sentinels.
    Sentinel,
    /// PostgreSQL with a synchronous standby.
    Standby,
    /// One Redis that nodes reach over TLS.
    RedisTls,
}

pub(crate) struct FaultFixture {
    pub(crate) topology: FaultTopology,
    pub(crate) deployment: Deployment,
    /// Clock of the single Redis.
    pub(crate) clock: TestClock,
    pub(crate) shards: Option<ShardedRedis>,
    pub(crate) command_line: CommandLine,
    pub(crate) command_line_proxies: NodeFaultProxies,
    pub(crate) targets: NodeTargets,
    pub(crate) ops_targets: OpsTargets,
    /// Empty without remote nodes.
    sites: SiteParts,
    pub(crate) stores: StoreParts,
    /// Certificate of Redis, if nodes use TLS.
    _certificates: Option<(TestDir, TestCertificate)>,
    links: LinkFaults,
    /// The node of each process of this run.
    process_nodes: BTreeMap<usize, usize>,
    next_process: usize,
    /// Logs of stopped nodes.
    stopped_logs: String,
    /// Set by a fault that later runs must not inherit.
    pub(crate) is_ruined: bool,
}

/// A cluster whose servers have a clock and a fault proxy each.
pub(crate) struct ShardedRedis {
    pub(crate) cluster: RedisCluster,
    pub(crate) proxies: Vec<FaultProxy>,
    pub(crate) clocks: Vec<TestClock>,
}

impl ShardedRedis {
    async fn start() -> Result<Self> {
        let (mut servers, mut proxies, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SHARDS {
            let clock = TestClock::open()?;
            let options =
                RedisOptions { appendonly: true, clock: Some(clock.clone()), cluster: true, ..RedisOptions::default() };
            let mut server = Redis::start(options).await?;
            let proxy = FaultProxy::open(server.address())?;
            server.announce_port(proxy.address().port()).await?;
            servers.push(server);
            proxies.push(proxy);
            clocks.push(clock);
        }
        Ok(Self { cluster: RedisCluster::form(servers).await?, proxies, clocks })
    }

    fn url(&self) -> String {
        self.proxies.iter().map(|proxy| format!("redis://{}", proxy.address())).collect::<Vec<_>>().join(",")
    }
}

impl FaultFixture {
    pub(crate) async fn open(topology: FaultTopology) -> Result<Self> {
        let clock = TestClock::open()?;
        let certificates = if topology == FaultTopology::RedisTls { Some(create_certificates()?) } else { None };
        let tls = certificates.as_ref().map(|(_, files)| files.clone());
        let redis = RedisOptions { appendonly: true, clock: Some(clock.clone()), tls, ..RedisOptions::default() };
        let shards = if topology == FaultTopology::Sharded { Some(ShardedRedis::start().await?) } else { None };
        let mut env = Env::from([("IPSEITY__PORTAL__QUERY_TIMEOUT_MS".to_owned(), "5000".to_owned())]);
        env.extend(shards.iter().map(|shards| (LEDGER_URL_ENV.to_owned(), shards.url())));
        let options = DeploymentOptions {
            nodes: 0,
            redis: redis.clone(),
            fault_proxies: true,
            env,
            ..DeploymentOptions::default()
        };
        let mut deployment = Deployment::start(options).await?;
        let stores = match topology {
            FaultTopology::Sentinel => StoreParts::with_sentinels(&deployment, redis).await?,
            FaultTopology::Standby => StoreParts::with_standby(&deployment).await?,
            FaultTopology::Single | FaultTopology::Sharded | FaultTopology::Sites | FaultTopology::RedisTls => {
                let tls = certificates.as_ref().map(|(_, files)| StoreParts::with_tls(&deployment, files));
                tls.unwrap_or_default()
            }
        };
        let sites = if topology == FaultTopology::Sites {
            SiteParts::start(&mut deployment).await?
        } else {
            SiteParts::without_remote_nodes(&mut deployment, &stores.env).await?
        };
        deployment
            .postgres
            .psql("ipseity", &format!("insert into plans values ('{SMALL_PLAN}', {SMALL_LIMIT})"))
            .await?;
        let command_line_proxies = NodeFaultProxies {
            redis: FaultProxy::open(deployment.redis.address())?,
            postgres: FaultProxy::open(deployment.postgres.address())?,
        };
        let mut command_line = open_command_line(&deployment, &command_line_proxies)?;
        command_line.env.extend(stores.env.clone());
        let mut fixture = Self {
            topology,
            deployment,
            clock,
            shards,
            command_line,
            command_line_proxies,
            targets: NodeTargets::default(),
            ops_targets: Arc::new(Mutex::new(Vec::new())),
            sites,
            stores,
            _certificates: certificates,
            links: LinkFaults::default(),
            process_nodes: BTreeMap::new(),
            next_process: 0,
            stopped_logs: String::new(),
            is_ruined: false,
        };
        fixture.apply_links();
        fixture.number_processes();
        Ok(fixture)
    }

    /// Numbers the current processes from 0, for a new run.
    pub(crate) fn number_processes(&mut self) {
        self.next_process = self.deployment.nodes.len();
        self.stopped_logs.clear();
        self.process_nodes.clear();
        self.set_targets((0..self.next_process).collect());
    }

    fn set_targets(&mut self, processes: Vec<usize>) {
        self.process_nodes.extend(processes.iter().enumerate().map(|(node, process)| (*process, node)));
        let nodes = || processes.iter().copied().zip(&self.deployment.nodes);
        let targets = nodes().map(|(process, node)| NodeTarget { process, address: node.http() }).collect();
        let ops_targets = nodes().map(|(process, node)| (process, node.ops())).collect();
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets;
        *self.ops_targets.lock().unwrap_or_else(PoisonError::into_inner) = ops_targets;
    }

    /// Processes of this run that are remote nodes, and those of them that are optimistic.
    pub(crate) fn remote_processes(&self) -> [BTreeSet<usize>; 2] {
        [NODES..=OPTIMISTIC_NODE, OPTIMISTIC_NODE..=OPTIMISTIC_NODE].map(|nodes| {
            let concerned = self.process_nodes.iter().filter(|(_, node)| nodes.contains(node));
            concerned.map(|(process, _)| *process).collect()
        })
    }

    /// Numbers of the current processes.
    pub(crate) fn processes(&self) -> Vec<usize> {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.iter().map(|target| target.process).collect()
    }

    /// Creates a key for each plan, numbered starting with `first`.
    pub(crate) async fn issue_keys(&self, first: usize, plans: &[&str]) -> Result<Vec<LoadKey>> {
        let mut keys = Vec::with_capacity(plans.len());
        let mut sql = String::new();
        for (number, plan) in plans.iter().enumerate() {
            let email = format!("{:016x}@example.com", fastrand::u64(..));
            let clear = PlaintextKey::generate(|| fastrand::u8(..));
            let key = clear.to_api_key();
            let digest = hex::encode(key.digest.as_bytes());
            write!(
                sql,
                "with account as (insert into accounts (email, plan) values ('{email}', '{plan}') returning id) \
                 insert into keys (id, account_id, seat, name, scope, digest) \
                 select '{}', id, 1, 'fault', 'ip', '\\x{digest}' from account;",
                key.id,
            )?;
            keys.push(LoadKey::new(first + number, key.id.to_string(), format!("Bearer {}", clear.expose())));
        }
        self.deployment.postgres.psql("ipseity", &sql).await?;
        Ok(keys)
    }

    pub(crate) fn plan_limit(plan: &str) -> u64 {
        if plan == SMALL_PLAN { SMALL_LIMIT } else { FREE_LIMIT }
    }

    pub(crate) fn add_link_fault(&mut self, fault: LinkFault) -> usize {
        let number = self.links.add(fault);
        self.apply_links();
        number
    }

    pub(crate) fn remove_link_fault(&mut self, number: usize) {
        self.links.remove(number);
        self.apply_links();
    }

    fn apply_links(&self) {
        self.links.apply(&self.link_proxies());
    }

    pub(crate) fn link_proxies(&self) -> LinkProxies<'_> {
        LinkProxies {
            nodes: self.deployment.nodes.iter().filter_map(Node::fault_proxies).collect(),
            command_line: &self.command_line_proxies,
            shards: self.shards.as_ref().map_or(&[], |shards| &shards.proxies),
            sites: &self.sites.proxies,
        }
    }

    /// Servers of Redis that run.
    pub(crate) fn redis_servers(&self) -> Vec<&Redis> {
        match &self.shards {
            None => vec![&self.deployment.redis],
            Some(shards) => shards.cluster.servers.iter().filter(|server| server.is_started()).collect(),
        }
    }

    /// Sums a metric over all nodes.
    pub(crate) async fn sum_metric(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for node in &self.deployment.nodes {
            sum += sum_series(&node.metrics().await?, name);
        }
        Ok(sum)
    }

    /// Starts a node in place of one that has ended.
    pub(crate) async fn replace_node(&mut self, index: usize) -> Result<()> {
        let env = self.sites.node_env.get(index).cloned().unwrap_or_default();
        let node = self.deployment.start_node(&env).await?;
        let stopped = std::mem::replace(&mut self.deployment.nodes[index], node);
        self.stopped_logs.push_str(&stopped.log()?);
        self.apply_links();
        let mut processes = self.processes();
        processes[index] = self.next_process;
        self.next_process += 1;
        self.set_targets(processes);
        Ok(())
    }

    /// Uses another PostgreSQL, such as a promoted replica. The node's links to it stay the same.
    pub(crate) fn replace_postgres(&mut self, postgres: ipseity_testkit::Postgres) {
        self.deployment.replace_postgres(postgres);
        self.command_line_proxies.postgres.set_upstream(self.deployment.postgres.address());
    }

    /// The same for Redis.
    pub(crate) fn replace_redis(&mut self, redis: Redis) {
        self.deployment.replace_redis(redis);
        self.command_line_proxies.redis.set_upstream(self.deployment.redis.address());
    }

    /// Logs of all nodes of this fixture that ran since the last [`Self::number_processes`].
    pub(crate) fn logs(&self) -> Result<Vec<String>> {
        let running = self.deployment.nodes.iter().map(Node::log).collect::<Result<Vec<_>>>()?;
        Ok(running.into_iter().chain([self.stopped_logs.clone()]).collect())
    }

    /// Resident memory of all nodes.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let mut sum = 0;
        for node in &self.deployment.nodes {
            let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid()))?;
            let line =
                status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in the node's status")?;
            sum += line.trim().trim_end_matches(" kB").parse::<u64>()?;
        }
        Ok(sum)
    }
}

fn create_certificates() -> Result<(TestDir, TestCertificate)> {
    let dir = TestDir::create()?;
    let certificate = TestCertificate::generate_in(dir.path())?;
    Ok((dir, certificate))
}

fn open_command_line(deployment: &Deployment, proxies: &NodeFaultProxies) -> Result<CommandLine> {
    let mut env = deployment.env().clone();
    let links = [
        (LEDGER_URL_ENV, deployment.redis.address(), &proxies.redis),
        (STORE_URL_ENV, deployment.postgres.address(), &proxies.postgres),
    ];
    for (name, store, proxy) in links {
        let url = env.get_mut(name).with_context(|| format!("{name} is not set"))?;
        *url = url.replace(&store.to_string(), &proxy.address().to_string());
    }
    Ok(CommandLine { program: node::find_service_binary()?, env })
}

/// Unverifiable charges by public key id in the logs of nodes. Lines without a key have the id ''.
pub(crate) fn unverifiable_in_logs(logs: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains("unverifiable charges")) {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let field = |name: &str| event.get(name).or_else(|| event.get("fields")?.get(name)).cloned();
        let count = field("unverifiable").and_then(|count| count.as_u64()).unwrap_or_default();
        let key = field("key").and_then(|key| Some(key.as_str()?.to_owned())).unwrap_or_default();
        *counts.entry(key).or_default() += count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unverifiable_charges_are_read_by_key() {
        let log = "{\"message\":\"unverifiable charges not repeated\",\"unverifiable\":2,\"key\":\"abc\"}\n\
                   {\"fields\":{\"message\":\"unverifiable charges not repeated\",\"unverifiable\":3}}\nother\n";
        let counts = unverifiable_in_logs(&[log.to_owned()]);
        assert_eq!(counts, BTreeMap::from([("abc".to_owned(), 2), (String::new(), 3)]));
    }
}
