//! A house with two nodes, a relay on each of their lines, and keys that cost no command each.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use domain::ClearKey;
use testkit::node::Env;
use testkit::{House, HouseOptions, Node, RedisOptions};

pub(crate) const NODES: usize = 2;
/// Keys that an account has room for.
const SEATS: usize = 10;

pub(crate) struct Stage {
    pub(crate) house: House,
    /// What nodes that are gone have told of.
    untold_by_gone: u64,
}

/// A key that clients ask with.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) id: String,
    pub(crate) bearer: String,
}

impl Stage {
    pub(crate) async fn open() -> Result<Self> {
        let redis = RedisOptions { appendonly: true, ..RedisOptions::default() };
        let env = Env::from([("IPSEITY__PORTAL__TIMEOUT_MS".to_owned(), "5000".to_owned())]);
        let house = House::start(HouseOptions { nodes: NODES, redis, relays: true, env, ..HouseOptions::default() });
        let house = house.await?;
        let plan = "insert into plans values ('small', 60)";
        house.postgres.psql("ipseity", plan).await?;
        Ok(Self { house, untold_by_gone: 0 })
    }

    /// Fresh keys of a plan.
    pub(crate) async fn issue(&self, count: usize, plan: &str) -> Result<Vec<Subject>> {
        let mut subjects = Vec::with_capacity(count);
        let mut sql = String::new();
        for number in 0..count {
            if number % SEATS == 0 {
                let email = format!("{:016x}@example.com", fastrand::u64(..));
                write!(sql, "insert into accounts (email, plan) values ('{email}', '{plan}');")?;
            }
            let clear = ClearKey::mint(|| fastrand::u8(..));
            let key = clear.key();
            let digest: String = key.digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            write!(
                sql,
                "insert into keys (id, account_id, seat, name, scope, digest) values ('{}', currval(pg_get_serial_sequence\
                 ('accounts', 'id')), {}, 'fault', 'ip', '\\x{digest}');",
                key.id,
                number % SEATS + 1,
            )?;
            subjects.push(Subject { id: key.id.to_string(), bearer: format!("Bearer {}", clear.expose()) });
        }
        self.house.postgres.psql("ipseity", &sql).await?;
        Ok(subjects)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.house.nodes.iter().map(Node::http).collect()
    }

    /// The sum of a metric over the nodes.
    pub(crate) async fn metric(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for node in &self.house.nodes {
            let text = node.metrics().await?;
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            sum += value.with_context(|| format!("no metric {name}"))?.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Puts another node in the place of one that has ended.
    pub(crate) async fn replace(&mut self, place: usize) -> Result<()> {
        let node = self.house.start_node(&Env::new()).await?;
        let gone = std::mem::replace(&mut self.house.nodes[place], node);
        self.untold_by_gone += untold(&gone)?;
        Ok(())
    }

    /// Requests of which no node could tell whether they were charged. By the logs: a counter goes with its node.
    pub(crate) fn untold(&self) -> Result<u64> {
        self.house.nodes.iter().try_fold(self.untold_by_gone, |sum, node| Ok(sum + untold(node)?))
    }

    /// Memory that the nodes hold together.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let mut sum = 0;
        for node in &self.house.nodes {
            let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid()))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a node's memory")?;
            sum += line.trim().trim_end_matches(" kB").parse::<u64>()?;
        }
        Ok(sum)
    }
}

fn untold(node: &Node) -> Result<u64> {
    let log = node.log()?;
    let counts = log.split("\"untold\":").skip(1).map(|rest| rest.split(|end: char| !end.is_ascii_digit()).next());
    counts.map(|count| count.unwrap_or_default().parse::<u64>().context("a count in the log")).sum()
}
