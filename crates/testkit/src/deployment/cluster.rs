//! A Redis Cluster with three primaries, with or without a replica of each, for failover and resharding.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};

use crate::clock::TestClock;
use crate::deployment::redis::{Redis, RedisOptions};
use crate::eventually;

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Keys migrated in one step.
const MIGRATE_BATCH: usize = 10;
const MIGRATE_TIMEOUT_MS: u32 = 10_000;

/// A running cluster on 127.0.0.1.
#[derive(Debug)]
pub struct RedisCluster {
    /// Three primaries, then the replica of each in the same order, if there are any, as initially assigned.
    pub servers: Vec<Redis>,
}

impl RedisCluster {
    /// Creates a cluster and waits until it is healthy.
    pub async fn start() -> Result<Self> {
        Self::start_with_clocks(|_| None).await
    }

    /// Creates a cluster. `clock` returns the clock of a server.
    pub async fn start_with_clocks(clock: impl Fn(usize) -> Option<TestClock>) -> Result<Self> {
        let mut servers = Vec::new();
        for index in 0..2 * PRIMARIES {
            let options = RedisOptions { cluster: true, clock: clock(index), ..RedisOptions::default() };
            servers.push(Redis::start(options).await?);
        }
        Self::form(servers).await
    }

    /// Forms a cluster of running servers in cluster mode: three primaries, and no replica or one of each.
    pub async fn form(servers: Vec<Redis>) -> Result<Self> {
        let cluster = Self { servers };
        for (index, server) in cluster.servers.iter().enumerate() {
            server.run_command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await?;
        }
        for index in 0..PRIMARIES {
            let (first, last) = cluster.initial_slots(index).into_inner();
            let range = [first.to_string(), last.to_string()];
            cluster.servers[index].run_command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
        }
        cluster.introduce_servers().await?;
        for (index, replica) in cluster.servers.iter().skip(PRIMARIES).enumerate() {
            let id = cluster.node_id(index).await?;
            replica.run_command(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        cluster.wait_until_healthy().await?;
        Ok(cluster)
    }

    /// Introduces the servers to each other. Redis gives up a handshake after the node timeout, so each try repeats it.
    async fn introduce_servers(&self) -> Result<()> {
        eventually("all servers know each other", CONVERGENCE_TIMEOUT, async || {
            for server in &self.servers[1..] {
                let (port, bus) = server.ports();
                let meet = ["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()];
                if self.servers[0].run_command(&meet).await.is_err() {
                    return false;
                }
            }
            let completed = self.wait_until_all(HANDSHAKE_TIMEOUT, "handshake", async |server| {
                let nodes = cluster_reply(server, "NODES").await;
                nodes.lines().count() == self.servers.len() && !nodes.contains("handshake")
            });
            completed.await.is_ok()
        })
        .await
    }

    /// Addresses of all servers, as the service expects them.
    #[must_use]
    pub fn url(&self) -> String {
        self.servers.iter().map(Redis::url).collect::<Vec<_>>().join(",")
    }

    /// Slots that a primary owns initially.
    #[must_use]
    pub fn initial_slots(&self, index: usize) -> RangeInclusive<u16> {
        let first_slot = |index: usize| u16::try_from(index * usize::from(SLOTS) / PRIMARIES).unwrap_or(SLOTS);
        first_slot(index)..=first_slot(index + 1) - 1
    }

    /// Waits until each server reports that all slots are served and each replica is in sync.
    pub async fn wait_until_healthy(&self) -> Result<()> {
        self.wait_until_all(CONVERGENCE_TIMEOUT, "all slots are served", async |server| {
            cluster_reply(server, "INFO").await.contains("cluster_state:ok")
        })
        .await?;
        if self.servers.len() == PRIMARIES {
            return Ok(());
        }
        self.wait_until_all(CONVERGENCE_TIMEOUT, "all replicas are in sync", async |server| {
            let Ok(info) = server.info("replication").await else { return false };
            info.contains("role:slave") && info.contains("master_link_status:up") || info.contains("state=online")
        })
        .await
    }

    /// Waits until each running server rejects requests with `CLUSTERDOWN`.
    pub async fn wait_until_down(&self) -> Result<()> {
        self.wait_until_all(CONVERGENCE_TIMEOUT, "the cluster is down", async |server| {
            cluster_reply(server, "INFO").await.contains("cluster_state:fail")
        })
        .await
    }

    /// Waits until all servers know the same owners of slots, with the same epochs. A slot that is moved earlier than that
    /// can get two owners with the same epoch.
    pub async fn wait_until_agreed(&self) -> Result<()> {
        eventually("all servers agree", CONVERGENCE_TIMEOUT, async || {
            let mut views = BTreeSet::new();
            for server in &self.servers {
                views.insert(owners(&cluster_reply(server, "NODES").await));
            }
            views.len() == 1
        })
        .await
    }

    /// Finds a key that matches a pattern; returns the server's index and the key.
    pub async fn find_key(&self, pattern: &str) -> Result<(usize, String)> {
        for (index, server) in self.primaries().await? {
            let keys: Vec<String> = cmd("KEYS").arg(pattern).query_async(&mut server.connect().await?).await?;
            if let Some(name) = keys.into_iter().next() {
                return Ok((index, name));
            }
        }
        anyhow::bail!("no key matches {pattern}")
    }

    /// Slot of a key.
    pub async fn slot_of(&self, name: &str) -> Result<u16> {
        let mut connection = self.servers[0].connect().await?;
        Ok(cmd("CLUSTER").arg("KEYSLOT").arg(name).query_async(&mut connection).await?)
    }

    /// Moves slots with their keys from one primary to another.
    pub async fn move_slots(&self, slots: RangeInclusive<u16>, from: usize, to: usize) -> Result<()> {
        let mut migration = self.begin_migration(from, to).await?;
        for slot in slots {
            migration.begin_slot(slot).await?;
            while migration.migrate_keys(slot, MIGRATE_BATCH).await? > 0 {}
            migration.finish_slot(slot).await?;
        }
        Ok(())
    }

    /// Starts a migration that is made step by step.
    pub async fn begin_migration(&self, from: usize, to: usize) -> Result<SlotMigration> {
        let mut others = Vec::new();
        for (index, server) in self.primaries().await? {
            if index != from && index != to {
                others.push(server.connect().await?);
            }
        }
        Ok(SlotMigration {
            from: self.servers[from].connect().await?,
            to: self.servers[to].connect().await?,
            others,
            ids: [self.node_id(from).await?, self.node_id(to).await?],
            port: self.servers[to].ports().0,
        })
    }

    async fn primaries(&self) -> Result<Vec<(usize, &Redis)>> {
        let mut primaries = Vec::new();
        for (index, server) in self.servers.iter().enumerate().filter(|(_, server)| server.is_started()) {
            if server.info("replication").await?.contains("role:master") {
                primaries.push((index, server));
            }
        }
        Ok(primaries)
    }

    async fn node_id(&self, index: usize) -> Result<String> {
        Ok(cmd("CLUSTER").arg("MYID").query_async(&mut self.servers[index].connect().await?).await?)
    }

    /// Waits until the condition holds for every running server.
    async fn wait_until_all(
        &self,
        within: Duration,
        what: &str,
        condition: impl AsyncFn(&Redis) -> bool,
    ) -> Result<()> {
        for server in self.servers.iter().filter(|server| server.is_started()) {
            eventually(what, within, async || condition(server).await).await?;
        }
        Ok(())
    }
}

/// Reply to a subcommand of `CLUSTER`, empty if the server does not answer.
async fn cluster_reply(server: &Redis, subcommand: &str) -> String {
    let Ok(mut connection) = server.connect().await else { return String::new() };
    cmd("CLUSTER").arg(subcommand).query_async(&mut connection).await.unwrap_or_default()
}

/// The id, epoch and slots of each server in a reply to `CLUSTER NODES`.
fn owners(nodes: &str) -> BTreeSet<Vec<String>> {
    let is_owner_field = |field: &usize| *field == 0 || *field == 6 || *field >= 8;
    let fields = |line: &str| {
        let fields = line.split(' ').enumerate().filter(|(number, _)| is_owner_field(number));
        fields.map(|(_, field)| field.to_owned()).collect()
    };
    nodes.lines().map(fields).collect()
}

/// A migration of slots from one primary to another.
pub struct SlotMigration {
    from: MultiplexedConnection,
    to: MultiplexedConnection,
    others: Vec<MultiplexedConnection>,
    ids: [String; 2],
    port: u16,
}

impl SlotMigration {
    /// Marks a slot as migrating on both sides.
    pub async fn begin_slot(&mut self, slot: u16) -> Result<()> {
        set_slot(&mut self.to, slot, "IMPORTING", &self.ids[0]).await?;
        set_slot(&mut self.from, slot, "MIGRATING", &self.ids[1]).await
    }

    /// Migrates some keys of a slot; returns how many.
    pub async fn migrate_keys(&mut self, slot: u16, count: usize) -> Result<usize> {
        let names: Vec<String> =
            cluster_command(&mut self.from, &["GETKEYSINSLOT", &slot.to_string(), &count.to_string()]).await?;
        for name in &names {
            self.migrate_key(name).await?;
        }
        Ok(names.len())
    }

    /// Migrates one key.
    pub async fn migrate_key(&mut self, name: &str) -> Result<()> {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.port).arg(name).arg(0).arg(MIGRATE_TIMEOUT_MS);
        let reply: String = migrate.query_async(&mut self.from).await.context("failed to migrate a key")?;
        ensure!(reply == "OK" || reply == "NOKEY", "failed to migrate a key: {reply}");
        Ok(())
    }

    /// Assigns the slot to its new owner.
    pub async fn finish_slot(&mut self, slot: u16) -> Result<()> {
        for server in [&mut self.to, &mut self.from].into_iter().chain(&mut self.others) {
            set_slot(server, slot, "NODE", &self.ids[1]).await?;
        }
        Ok(())
    }
}

async fn set_slot(server: &mut MultiplexedConnection, slot: u16, state: &str, id: &str) -> Result<()> {
    cluster_command(server, &["SETSLOT", &slot.to_string(), state, id]).await
}

async fn cluster_command<T: FromRedisValue>(server: &mut MultiplexedConnection, arguments: &[&str]) -> Result<T> {
    Ok(cmd("CLUSTER").arg(arguments).query_async(server).await?)
}
