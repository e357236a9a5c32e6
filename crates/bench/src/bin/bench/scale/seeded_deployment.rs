//! Deployments with many keys, all of which have a record in Redis.

use std::sync::Arc;

use anyhow::{Context, Result};
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::{DATABASE, LEDGER_URL_ENV};
use ipseity_testkit::{Deployment, DeploymentOptions, Redis, RedisCluster, TestDir};

use crate::caller_pool::{CallerPool, SeedKeyRows};
use crate::compare::geo_databases;
use crate::load::paced::PacedLoad;
use crate::progress::progress;

/// Topology of Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RedisTopology {
    Single,
    /// Three primaries with a replica each.
    Cluster,
}

pub(super) struct SeededDeployment {
    pub(super) deployment: Deployment,
    pub(super) cluster: Option<RedisCluster>,
    pub(super) pool: Arc<CallerPool>,
    /// Memory of Redis before the first key.
    pub(super) redis_bytes_before: u64,
    /// Size of PostgreSQL for the keys, and with the usage of one day for each.
    pub(super) postgres_bytes: [u64; 2],
    _dir: TestDir,
}

impl SeededDeployment {
    /// Starts a deployment with one node, inserts keys and uses each once.
    pub(super) async fn open(keys: usize, topology: RedisTopology) -> Result<Self> {
        progress(&format!("starting a deployment with {keys} keys"));
        let dir = TestDir::create()?;
        let cluster = if topology == RedisTopology::Cluster { Some(RedisCluster::start().await?) } else { None };
        let env: Env = cluster.iter().map(|cluster| (LEDGER_URL_ENV.to_owned(), cluster.url())).collect();
        let deployment =
            Deployment::start(DeploymentOptions { env, geo_files: geo_databases()?, ..DeploymentOptions::default() })
                .await?;
        let empty_bytes = database_bytes(&deployment).await?;
        let mut rows = SeedKeyRows::default();
        let pool = CallerPool::write(dir.path().join("full"), rows.add_keys(keys, Scope::Full, false)?.into_iter())?;
        rows.load_into(&deployment.postgres, dir.path()).await?;
        let with_keys_bytes = database_bytes(&deployment).await?;
        let redis_bytes_before = redis_used_memory(&deployment.redis).await?;
        progress(&format!("warming up {keys} keys"));
        PacedLoad::warm_up(deployment.nodes[0].http(), &pool).await?;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let postgres_bytes = [with_keys_bytes - empty_bytes, database_bytes(&deployment).await? - empty_bytes];
        Ok(Self { deployment, cluster, pool: Arc::new(pool), redis_bytes_before, postgres_bytes, _dir: dir })
    }

    pub(super) fn name(&self) -> String {
        let store = if self.cluster.is_some() { ", cluster of 3" } else { "" };
        format!("{} keys{store}", self.pool.callers.len())
    }

    /// Memory of all Redis servers except replicas.
    pub(super) async fn redis_bytes(&self) -> Result<u64> {
        let Some(cluster) = &self.cluster else { return redis_used_memory(&self.deployment.redis).await };
        let mut sum = 0;
        for server in &cluster.servers[..cluster.servers.len() / 2] {
            sum += redis_used_memory(server).await?;
        }
        Ok(sum)
    }
}

async fn database_bytes(deployment: &Deployment) -> Result<u64> {
    Ok(deployment.postgres.psql(DATABASE, &format!("select pg_database_size('{DATABASE}')")).await?.parse()?)
}

pub(super) async fn redis_used_memory(redis: &Redis) -> Result<u64> {
    let info = redis.info("memory").await?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("no used_memory in INFO")?;
    Ok(line.trim().parse()?)
}
