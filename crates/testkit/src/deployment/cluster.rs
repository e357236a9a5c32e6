//! A Redis Cluster with three primaries and a replica of each, for failover and resharding.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};

use crate::deployment::redis::{Redis, RedisOptions};
use crate::eventually;

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Keys migrated in one step.
const MIGRATE_BATCH: usize = 10;
const MIGRATE_TIMEOUT_MS: u32 = 10_000;

/// A running cluster on 127.0.0.1.
#[derive(Debug)]
pub struct RedisCluster {
    /// Three primaries, then the replica of each in the same order, as initially assigned.
    pub servers: Vec<Redis>,
}

impl RedisCluster {
    /// Creates a cluster and waits until it is healthy.
    pub async fn start() -> Result<Self> {
        let mut servers = Vec::new();
        for _ in 0..2 * PRIMARIES {
            servers.push(Redis::start(RedisOptions { cluster: true, ..RedisOptions::default() }).await?);
        }
        let cluster = Self { servers };
        for (index, server) in cluster.servers.iter().enumerate() {
            server.run_command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await?;
        }
        for server in &cluster.servers[1..] {
            let (port, bus) = server.ports();
            cluster.servers[0]
                .run_command(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()])
                .await?;
        }
        for index in 0..PRIMARIES {
            let (first, last) = cluster.initial_slots(index).into_inner();
            let range = [first.to_string(), last.to_string()];
            cluster.servers[index].run_command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
        }
        let known_nodes = format!("cluster_known_nodes:{}", cluster.servers.len());
        cluster
            .wait_until_all("all servers know each other", async |server| {
                cluster_reports(server, "INFO", &known_nodes).await
            })
            .await?;
        for index in 0..PRIMARIES {
            let id = cluster.node_id(index).await?;
            cluster.servers[PRIMARIES + index].run_command(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        cluster.wait_until_healthy().await?;
        Ok(cluster)
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
        self.wait_until_all("all slots are served", async |server| {
            cluster_reports(server, "INFO", "cluster_state:ok").await
        })
        .await?;
        self.wait_until_all("all replicas are in sync", async |server| {
            let Ok(info) = server.info("replication").await else { return false };
            info.contains("role:slave") && info.contains("master_link_status:up") || info.contains("state=online")
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
    async fn wait_until_all(&self, what: &str, condition: impl AsyncFn(&Redis) -> bool) -> Result<()> {
        for server in self.servers.iter().filter(|server| server.is_started()) {
            eventually(what, CONVERGENCE_TIMEOUT, async || condition(server).await).await?;
        }
        Ok(())
    }
}

async fn cluster_reports(server: &Redis, subcommand: &str, line: &str) -> bool {
    let Ok(mut connection) = server.connect().await else { return false };
    let reply: redis::RedisResult<String> = cmd("CLUSTER").arg(subcommand).query_async(&mut connection).await;
    reply.is_ok_and(|reply| reply.lines().any(|reply| reply == line))
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
