//! A Redis Cluster of its own: three primaries and a replica of each, failed over and resharded.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};

use crate::eventually;
use crate::redis::{Redis, RedisOptions};

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
const AGREE_MAX: Duration = Duration::from_secs(60);
/// Names that are moved in one step.
const BATCH: usize = 10;
const MIGRATE_MAX_MS: u32 = 10_000;

/// A running cluster on 127.0.0.1.
#[derive(Debug)]
pub struct Cluster {
    /// First three primaries, then the replica of each in the same order, as they were when it was made.
    pub servers: Vec<Redis>,
}

impl Cluster {
    /// Makes a cluster and waits until all of it agrees that it is one.
    pub async fn start() -> Result<Self> {
        let mut servers = Vec::new();
        for _ in 0..2 * PRIMARIES {
            servers.push(Redis::start(RedisOptions { cluster: true, ..RedisOptions::default() }).await?);
        }
        let cluster = Self { servers };
        for (place, server) in cluster.servers.iter().enumerate() {
            server.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await?;
        }
        for server in &cluster.servers[1..] {
            let (port, bus) = server.ports();
            cluster.servers[0].call(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]).await?;
        }
        for place in 0..PRIMARIES {
            let (first, last) = cluster.share(place).into_inner();
            let range = [first.to_string(), last.to_string()];
            cluster.servers[place].call(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
        }
        let known = format!("cluster_known_nodes:{}", cluster.servers.len());
        cluster.agree("all servers know each other", async |server| says(server, "INFO", &known).await).await?;
        for place in 0..PRIMARIES {
            let id = cluster.id(place).await?;
            cluster.servers[PRIMARIES + place].call(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        cluster.whole().await?;
        Ok(cluster)
    }

    /// The addresses of all servers, as the service takes them.
    #[must_use]
    pub fn url(&self) -> String {
        self.servers.iter().map(Redis::url).collect::<Vec<_>>().join(",")
    }

    /// The slots that a primary owns at first.
    #[must_use]
    pub fn share(&self, place: usize) -> RangeInclusive<u16> {
        let bound = |place: usize| u16::try_from(place * usize::from(SLOTS) / PRIMARIES).unwrap_or(SLOTS);
        bound(place)..=bound(place + 1) - 1
    }

    /// Waits until each server says that all slots are served, and each replica is in step.
    pub async fn whole(&self) -> Result<()> {
        self.agree("all slots are served", async |server| says(server, "INFO", "cluster_state:ok").await).await?;
        self.agree("all replicas are in step", async |server| {
            let Ok(info) = server.info("replication").await else { return false };
            info.contains("role:slave") && info.contains("master_link_status:up") || info.contains("state=online")
        })
        .await
    }

    /// Where a name that matches a pattern is stored, and what it is.
    pub async fn find(&self, pattern: &str) -> Result<(usize, String)> {
        for (place, server) in self.primaries().await? {
            let names: Vec<String> = cmd("KEYS").arg(pattern).query_async(&mut server.connection().await?).await?;
            if let Some(name) = names.into_iter().next() {
                return Ok((place, name));
            }
        }
        anyhow::bail!("no name matches {pattern}")
    }

    /// The slot of a name.
    pub async fn slot(&self, name: &str) -> Result<u16> {
        let mut connection = self.servers[0].connection().await?;
        Ok(cmd("CLUSTER").arg("KEYSLOT").arg(name).query_async(&mut connection).await?)
    }

    /// Moves slots from one primary to another, with all that is in them.
    pub async fn move_slots(&self, slots: RangeInclusive<u16>, from: usize, to: usize) -> Result<()> {
        let mut moving = self.moving(from, to).await?;
        for slot in slots {
            moving.begin(slot).await?;
            while moving.carry(slot, BATCH).await? > 0 {}
            moving.finish(slot).await?;
        }
        Ok(())
    }

    /// A move that is made step by step.
    pub async fn moving(&self, from: usize, to: usize) -> Result<Moving> {
        let mut others = Vec::new();
        for (place, server) in self.primaries().await? {
            if place != from && place != to {
                others.push(server.connection().await?);
            }
        }
        Ok(Moving {
            from: self.servers[from].connection().await?,
            to: self.servers[to].connection().await?,
            others,
            ids: [self.id(from).await?, self.id(to).await?],
            port: self.servers[to].ports().0,
        })
    }

    async fn primaries(&self) -> Result<Vec<(usize, &Redis)>> {
        let mut primaries = Vec::new();
        for (place, server) in self.servers.iter().enumerate().filter(|(_, server)| server.runs()) {
            if server.info("replication").await?.contains("role:master") {
                primaries.push((place, server));
            }
        }
        Ok(primaries)
    }

    async fn id(&self, place: usize) -> Result<String> {
        Ok(cmd("CLUSTER").arg("MYID").query_async(&mut self.servers[place].connection().await?).await?)
    }

    /// Asks all servers that run until all of them agree.
    async fn agree(&self, what: &str, holds: impl AsyncFn(&Redis) -> bool) -> Result<()> {
        for server in self.servers.iter().filter(|server| server.runs()) {
            eventually(what, AGREE_MAX, async || holds(server).await).await?;
        }
        Ok(())
    }
}

async fn says(server: &Redis, what: &str, line: &str) -> bool {
    let Ok(mut connection) = server.connection().await else { return false };
    let said: redis::RedisResult<String> = cmd("CLUSTER").arg(what).query_async(&mut connection).await;
    said.is_ok_and(|said| said.lines().any(|said| said == line))
}

/// Slots on their way from one primary to another.
pub struct Moving {
    from: MultiplexedConnection,
    to: MultiplexedConnection,
    others: Vec<MultiplexedConnection>,
    ids: [String; 2],
    port: u16,
}

impl Moving {
    /// Opens a slot on both sides.
    pub async fn begin(&mut self, slot: u16) -> Result<()> {
        set_slot(&mut self.to, slot, "IMPORTING", &self.ids[0]).await?;
        set_slot(&mut self.from, slot, "MIGRATING", &self.ids[1]).await
    }

    /// Carries some names of a slot over; returns how many.
    pub async fn carry(&mut self, slot: u16, count: usize) -> Result<usize> {
        let names: Vec<String> =
            cluster(&mut self.from, &["GETKEYSINSLOT", &slot.to_string(), &count.to_string()]).await?;
        for name in &names {
            self.carry_name(name).await?;
        }
        Ok(names.len())
    }

    /// Carries one name over.
    pub async fn carry_name(&mut self, name: &str) -> Result<()> {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.port).arg(name).arg(0).arg(MIGRATE_MAX_MS);
        let said: String = migrate.query_async(&mut self.from).await.context("a name was not carried over")?;
        ensure!(said == "OK" || said == "NOKEY", "a name was not carried over: {said}");
        Ok(())
    }

    /// Gives the slot to its new owner.
    pub async fn finish(&mut self, slot: u16) -> Result<()> {
        for server in [&mut self.to, &mut self.from].into_iter().chain(&mut self.others) {
            set_slot(server, slot, "NODE", &self.ids[1]).await?;
        }
        Ok(())
    }
}

async fn set_slot(server: &mut MultiplexedConnection, slot: u16, state: &str, id: &str) -> Result<()> {
    cluster(server, &["SETSLOT", &slot.to_string(), state, id]).await
}

async fn cluster<T: FromRedisValue>(server: &mut MultiplexedConnection, words: &[&str]) -> Result<T> {
    Ok(cmd("CLUSTER").arg(words).query_async(server).await?)
}
