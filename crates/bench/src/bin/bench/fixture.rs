//! Everything that takes part: a deployment with one node, the callers, the bare servers, and the Redis of one of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Redis, RedisOptions, TestDir};

use crate::caller_pool::{CallerPool, SeedKeyRows, generate_key, restrict_keys};
use crate::comparison_server::{BenchPrograms, ComparisonServer};
use crate::load::LOOKUP_PATH;
use crate::load::paced::PacedLoad;
use crate::progress::progress;

/// Enough paused keys that none is used often enough to be cached.
const PAUSED_KEYS: usize = 2_000;
/// Number of sampled responses. The one of median length becomes the body of the bare servers.
const BODY_SAMPLES: usize = 101;
const SEED_BATCH: usize = 1_000;

pub(crate) struct BenchFixture {
    pub(crate) deployment: Deployment,
    pub(crate) static_server: ComparisonServer,
    pub(crate) floor_server: ComparisonServer,
    pub(crate) floor_redis: Redis,
    pub(crate) pools: CallerPools,
    /// Concurrent HTTP/1.1 connections.
    pub(crate) connections: usize,
    /// Directory for temporary files.
    pub(crate) dir: TestDir,
}

/// Pools of callers.
pub(crate) struct CallerPools {
    pub(crate) ip: CallerPool,
    pub(crate) geo: CallerPool,
    pub(crate) full: CallerPool,
    /// From pages.
    pub(crate) page: CallerPool,
    /// From pages, with keys that have origins, networks, an expiry and a limit per caller.
    pub(crate) restricted: CallerPool,
    /// Without a key.
    pub(crate) no_key: CallerPool,
    /// With a typo in the key.
    pub(crate) malformed_key: CallerPool,
    /// With a well-formed key that was never issued.
    pub(crate) unknown_keys: CallerPool,
    /// All with the same paused key.
    pub(crate) one_paused_key: CallerPool,
    /// With many paused keys.
    pub(crate) paused_keys: CallerPool,
}

impl CallerPools {
    /// Generates the keys and writes the pools to files.
    fn open(keys: usize, dir: &Path, rows: &mut SeedKeyRows) -> Result<Self> {
        let write = |name: &str, keys: Vec<String>| CallerPool::write(dir.join(name), keys.into_iter());
        let write_pages = |name: &str, keys: Vec<String>| CallerPool::write_pages(dir.join(name), keys.into_iter());
        let typo = |mut key: String| {
            let last = key.pop();
            key.push(if last == Some('0') { '1' } else { '0' });
            key
        };
        let unknown_keys = |count: usize| (0..count).map(|_| generate_key().expose().to_owned());
        let paused = rows.add_keys(PAUSED_KEYS, Scope::Full, true)?;
        Ok(Self {
            ip: write("ip", rows.add_keys(keys, Scope::Ip, false)?)?,
            geo: write("geo", rows.add_keys(keys, Scope::Geo, false)?)?,
            full: write("full", rows.add_keys(keys, Scope::Full, false)?)?,
            page: write_pages("page", rows.add_keys(keys, Scope::Full, false)?)?,
            restricted: write_pages("restricted", rows.add_keys(keys, Scope::Full, false)?)?,
            no_key: write("missing", vec!["-".to_owned(); keys / 10])?,
            malformed_key: write("malformed", unknown_keys(keys / 10).map(typo).collect())?,
            unknown_keys: write("unknown", unknown_keys(keys / 10).collect())?,
            one_paused_key: write("flooded", vec![paused[0].clone(); keys / 10])?,
            paused_keys: write("paused", paused[1..].to_vec())?,
        })
    }
}

impl BenchFixture {
    /// Starts everything with this many keys of each scope and these settings of the node.
    pub(crate) async fn open(
        keys: usize,
        connections: usize,
        geo_files: Vec<PathBuf>,
        env: Env,
        programs: &BenchPrograms,
    ) -> Result<Self> {
        let dir = TestDir::create()?;
        let program = Some(programs.service.clone());
        let deployment =
            Deployment::start(DeploymentOptions { program, env, geo_files, progress, ..DeploymentOptions::default() })
                .await?;
        progress(&format!("inserting {keys} keys of each scope"));
        let mut rows = SeedKeyRows::default();
        let pools = CallerPools::open(keys, dir.path(), &mut rows)?;
        rows.load_into(&deployment.postgres, dir.path()).await?;
        restrict_keys(&deployment.postgres, &pools.restricted).await?;
        progress("starting the bare servers");
        let body = dir.path().join("body");
        fs::write(&body, median_response(&deployment, &pools.full).await?)?;
        let static_server =
            ComparisonServer::start_static(&programs.reference_server, &body, &deployment.certificate).await?;
        let floor_redis = Redis::start(RedisOptions::default()).await?;
        seed_records(&floor_redis, pools.full.key_ids().map(str::to_owned)).await?;
        let floor_server = ComparisonServer::start_floor(&programs.reference_server, &body, &floor_redis).await?;
        Ok(Self { deployment, static_server, floor_server, floor_redis, pools, connections, dir })
    }

    /// Uses every key of every pool once, so that Redis has its record.
    pub(crate) async fn warm_up_all(&self) -> Result<()> {
        let CallerPools { ip, geo, full, unknown_keys: unknown, paused_keys: paused, .. } = &self.pools;
        for pool in [ip, geo, full] {
            self.warm_up(pool).await?;
        }
        for pool in [unknown, paused] {
            let result = PacedLoad::each_caller_once(self.deployment.nodes[0].http(), pool).run().await?;
            ensure!(result.refused == result.requests, "invalid keys were accepted");
        }
        Ok(())
    }

    /// Uses every key of a pool once; all must be valid.
    pub(crate) async fn warm_up(&self, pool: &CallerPool) -> Result<()> {
        progress(&format!("warming up {} keys", pool.callers.len()));
        PacedLoad::warm_up(self.deployment.nodes[0].http(), pool).await
    }
}

/// Writes the records that the floor's script reads.
pub(crate) async fn seed_records(redis: &Redis, ids: impl Iterator<Item = String>) -> Result<()> {
    let mut connection = redis.connect().await?;
    let ids: Vec<String> = ids.collect();
    for batch in ids.chunks(SEED_BATCH) {
        let mut pipe = redis::pipe();
        for id in batch {
            let record = [("state", "active"), ("limit", "10000"), ("day", "0"), ("used", "0"), ("scope", "full")];
            pipe.hset_multiple(format!("k:{{{id}}}"), &record).ignore();
        }
        pipe.exec_async(&mut connection).await?;
    }
    Ok(())
}

async fn median_response(deployment: &Deployment, pool: &CallerPool) -> Result<Vec<u8>> {
    let mut caller = deployment.nodes[0].client();
    let mut bodies = Vec::new();
    for (key, address) in pool.callers.iter().take(BODY_SAMPLES) {
        let headers = [("authorization", format!("Bearer {key}")), ("x-forwarded-for", address.to_string())];
        let reply = caller.get(LOOKUP_PATH, &headers.each_ref().map(|(name, value)| (*name, value.as_str()))).await?;
        ensure!(reply.status == 200, "a key returned {}", reply.status);
        bodies.push(reply.body.to_vec());
    }
    bodies.sort_by_key(Vec::len);
    let middle = bodies.len() / 2;
    bodies.into_iter().nth(middle).context("the pool is empty")
}
