//! A deployment with two nodes and a fault proxy on each of their links, and keys created by SQL.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use ipseity_domain::PlaintextKey;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Node, RedisOptions};

pub(crate) const NODES: usize = 2;
/// Maximum number of keys per account.
const KEYS_PER_ACCOUNT: usize = 10;

pub(crate) struct FaultFixture {
    pub(crate) deployment: Deployment,
    /// Unverifiable charges that stopped nodes logged.
    unverifiable_by_stopped_nodes: u64,
}

/// A key of the load.
#[derive(Clone)]
pub(crate) struct LoadKey {
    pub(crate) id: String,
    pub(crate) bearer: String,
}

impl FaultFixture {
    pub(crate) async fn open() -> Result<Self> {
        let redis = RedisOptions { appendonly: true, ..RedisOptions::default() };
        let env = Env::from([("IPSEITY__PORTAL__QUERY_TIMEOUT_MS".to_owned(), "5000".to_owned())]);
        let deployment = Deployment::start(DeploymentOptions {
            nodes: NODES,
            redis,
            fault_proxies: true,
            env,
            ..DeploymentOptions::default()
        });
        let deployment = deployment.await?;
        let plan = "insert into plans values ('small', 60)";
        deployment.postgres.psql("ipseity", plan).await?;
        Ok(Self { deployment, unverifiable_by_stopped_nodes: 0 })
    }

    /// Creates keys on a plan.
    pub(crate) async fn issue_keys(&self, count: usize, plan: &str) -> Result<Vec<LoadKey>> {
        let mut keys = Vec::with_capacity(count);
        let mut sql = String::new();
        for number in 0..count {
            if number % KEYS_PER_ACCOUNT == 0 {
                let email = format!("{:016x}@example.com", fastrand::u64(..));
                write!(sql, "insert into accounts (email, plan) values ('{email}', '{plan}');")?;
            }
            let clear = PlaintextKey::generate(|| fastrand::u8(..));
            let key = clear.to_api_key();
            let digest = hex::encode(key.digest.as_bytes());
            write!(
                sql,
                "insert into keys (id, account_id, seat, name, scope, digest) values ('{}', currval(pg_get_serial_sequence\
                 ('accounts', 'id')), {}, 'fault', 'ip', '\\x{digest}');",
                key.id,
                number % KEYS_PER_ACCOUNT + 1,
            )?;
            keys.push(LoadKey { id: key.id.to_string(), bearer: format!("Bearer {}", clear.expose()) });
        }
        self.deployment.postgres.psql("ipseity", &sql).await?;
        Ok(keys)
    }

    pub(crate) fn node_addresses(&self) -> Vec<SocketAddr> {
        self.deployment.nodes.iter().map(Node::http).collect()
    }

    /// Sums a metric over all nodes.
    pub(crate) async fn sum_metric(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for node in &self.deployment.nodes {
            let text = node.metrics().await?;
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            sum += value.with_context(|| format!("no metric {name}"))?.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Replaces a node that has ended.
    pub(crate) async fn replace_node(&mut self, index: usize) -> Result<()> {
        let node = self.deployment.start_node(&Env::new()).await?;
        let stopped = std::mem::replace(&mut self.deployment.nodes[index], node);
        self.unverifiable_by_stopped_nodes += unverifiable_in_log(&stopped)?;
        Ok(())
    }

    /// Unverifiable charges of all nodes. Read from the logs, because a metric is lost with its node.
    pub(crate) fn unverifiable_charges(&self) -> Result<u64> {
        self.deployment
            .nodes
            .iter()
            .try_fold(self.unverifiable_by_stopped_nodes, |sum, node| Ok(sum + unverifiable_in_log(node)?))
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

fn unverifiable_in_log(node: &Node) -> Result<u64> {
    let log = node.log()?;
    let counts =
        log.split("\"unverifiable\":").skip(1).map(|rest| rest.split(|end: char| !end.is_ascii_digit()).next());
    counts.map(|count| count.unwrap_or_default().parse::<u64>().context("invalid count in the log")).sum()
}
