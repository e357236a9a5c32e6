//! Houses with so many keys, all of which the counter store knows.

use std::sync::Arc;

use anyhow::{Context, Result};
use domain::Scope;
use testkit::house::{DATABASE, LEDGER_URL};
use testkit::node::Env;
use testkit::{Cluster, Folder, House, HouseOptions, Redis};

use crate::compare::databases;
use crate::crowd::{Crowd, Rows};
use crate::load::pace::Pace;
use crate::progress::progress;

/// Where the counts are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    One,
    /// Three primaries, with a replica each.
    Cluster,
}

pub(super) struct Inhabited {
    pub(super) house: House,
    pub(super) cluster: Option<Cluster>,
    pub(super) crowd: Arc<Crowd>,
    /// What Redis held before it knew any key.
    pub(super) redis_bytes_before: u64,
    /// What PostgreSQL holds more of for the keys, and after one day's counts of each.
    pub(super) postgres_bytes: [u64; 2],
    _folder: Folder,
}

impl Inhabited {
    /// Starts a house with one node, gives it keys and asks with each of them once.
    pub(super) async fn open(keys: usize, stores: Stores) -> Result<Self> {
        progress(&format!("a house of {keys} keys"));
        let folder = Folder::open()?;
        let cluster = if stores == Stores::Cluster { Some(Cluster::start().await?) } else { None };
        let env: Env = cluster.iter().map(|cluster| (LEDGER_URL.to_owned(), cluster.url())).collect();
        let house = House::start(HouseOptions { env, geo_files: databases()?, ..HouseOptions::default() }).await?;
        let empty_bytes = database_bytes(&house).await?;
        let mut rows = Rows::default();
        let crowd = Crowd::write(folder.path().join("full"), rows.issue(keys, Scope::Full, false)?.into_iter())?;
        rows.load(&house.postgres, folder.path()).await?;
        let known_bytes = database_bytes(&house).await?;
        let redis_bytes_before = used_memory(&house.redis).await?;
        progress(&format!("asking once with each of {keys} keys"));
        Pace::meet(house.nodes[0].http(), &crowd).await?;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let postgres_bytes = [known_bytes - empty_bytes, database_bytes(&house).await? - empty_bytes];
        Ok(Self { house, cluster, crowd: Arc::new(crowd), redis_bytes_before, postgres_bytes, _folder: folder })
    }

    pub(super) fn name(&self) -> String {
        let store = if self.cluster.is_some() { ", cluster of 3" } else { "" };
        format!("{} keys{store}", self.crowd.callers.len())
    }

    /// What its counter stores hold, replicas left out.
    pub(super) async fn redis_bytes(&self) -> Result<u64> {
        let Some(cluster) = &self.cluster else { return used_memory(&self.house.redis).await };
        let mut sum = 0;
        for server in &cluster.servers[..cluster.servers.len() / 2] {
            sum += used_memory(server).await?;
        }
        Ok(sum)
    }
}

async fn database_bytes(house: &House) -> Result<u64> {
    Ok(house.postgres.psql(DATABASE, &format!("select pg_database_size('{DATABASE}')")).await?.parse()?)
}

pub(super) async fn used_memory(redis: &Redis) -> Result<u64> {
    let info = redis.info("memory").await?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("Redis' memory")?;
    Ok(line.trim().parse()?)
}
