//! All that takes part: a house with one node and its callers, the bare servers, and the counter store of one of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use domain::Scope;
use testkit::node::Env;
use testkit::{Folder, House, HouseOptions, Redis, RedisOptions};

use crate::crowd::{Crowd, Rows, mint};
use crate::load::PATH;
use crate::load::pace::Pace;
use crate::progress::progress;
use crate::server::{Programs, Server};

/// Paused keys: enough that none of them is asked for often enough to be remembered.
const PAUSED: usize = 2_000;
/// Answers of which one is taken for the bare servers' own: that of middling length.
const BODIES: usize = 101;
const SEEDS_AT_ONCE: usize = 1_000;

pub(crate) struct Stage {
    pub(crate) house: House,
    pub(crate) plain: Server,
    pub(crate) floor: Server,
    pub(crate) floor_redis: Redis,
    pub(crate) crowds: Crowds,
    /// How many callers ask at once over HTTP/1.1.
    pub(crate) connections: usize,
    /// For whatever is written meanwhile.
    pub(crate) folder: Folder,
}

/// Who asks.
pub(crate) struct Crowds {
    pub(crate) ip: Crowd,
    pub(crate) geo: Crowd,
    pub(crate) full: Crowd,
    /// Without a key.
    pub(crate) missing: Crowd,
    /// With a typo in the key.
    pub(crate) malformed: Crowd,
    /// With a well-formed key that was never issued.
    pub(crate) unknown: Crowd,
    /// With one paused key, all of them.
    pub(crate) flooded: Crowd,
    /// With many paused keys.
    pub(crate) paused: Crowd,
}

impl Crowds {
    /// Mints the keys and writes down who has them.
    fn open(keys: usize, folder: &Path, rows: &mut Rows) -> Result<Self> {
        let write = |name: &str, keys: Vec<String>| Crowd::write(folder.join(name), keys.into_iter());
        let typo = |mut key: String| {
            let last = key.pop();
            key.push(if last == Some('0') { '1' } else { '0' });
            key
        };
        let strangers = |count: usize| (0..count).map(|_| mint().expose().to_owned());
        let paused = rows.issue(PAUSED, Scope::Full, true)?;
        Ok(Self {
            ip: write("ip", rows.issue(keys, Scope::Ip, false)?)?,
            geo: write("geo", rows.issue(keys, Scope::Geo, false)?)?,
            full: write("full", rows.issue(keys, Scope::Full, false)?)?,
            missing: write("missing", vec!["-".to_owned(); keys / 10])?,
            malformed: write("malformed", strangers(keys / 10).map(typo).collect())?,
            unknown: write("unknown", strangers(keys / 10).collect())?,
            flooded: write("flooded", vec![paused[0].clone(); keys / 10])?,
            paused: write("paused", paused[1..].to_vec())?,
        })
    }
}

impl Stage {
    /// Starts everything with so many keys of each scope, and these settings of the node.
    pub(crate) async fn open(
        keys: usize,
        connections: usize,
        geo_files: Vec<PathBuf>,
        env: Env,
        programs: &Programs,
    ) -> Result<Self> {
        let folder = Folder::open()?;
        let program = Some(programs.service.clone());
        let house = House::start(HouseOptions { program, env, geo_files, progress, ..HouseOptions::default() }).await?;
        progress(&format!("writing {keys} keys of each scope"));
        let mut rows = Rows::default();
        let crowds = Crowds::open(keys, folder.path(), &mut rows)?;
        rows.load(&house.postgres, folder.path()).await?;
        progress("starting the bare servers");
        let body = folder.path().join("body");
        fs::write(&body, middling_answer(&house, &crowds.full).await?)?;
        let plain = Server::open_static(&programs.subject, &body, &house.certificate).await?;
        let floor_redis = Redis::start(RedisOptions::default()).await?;
        seed(&floor_redis, crowds.full.ids().map(str::to_owned)).await?;
        let floor = Server::open_floor(&programs.subject, &body, &floor_redis).await?;
        Ok(Self { house, plain, floor, floor_redis, crowds, connections, folder })
    }

    /// Has every key of every crowd asked with once, so that the counter store knows it.
    pub(crate) async fn meet_all(&self) -> Result<()> {
        let Crowds { ip, geo, full, unknown, paused, .. } = &self.crowds;
        for crowd in [ip, geo, full] {
            self.meet(crowd).await?;
        }
        for crowd in [unknown, paused] {
            let ran = Pace::once(self.house.nodes[0].http(), crowd).run().await?;
            ensure!(ran.refused == ran.requests, "keys are answered that must not be");
        }
        Ok(())
    }

    /// The same with one crowd, whose keys are sound.
    pub(crate) async fn meet(&self, crowd: &Crowd) -> Result<()> {
        progress(&format!("asking once with each of {} keys", crowd.callers.len()));
        Pace::meet(self.house.nodes[0].http(), crowd).await
    }
}

/// Writes the records that the floor's script reads.
pub(crate) async fn seed(redis: &Redis, ids: impl Iterator<Item = String>) -> Result<()> {
    let mut connection = redis.connection().await?;
    let ids: Vec<String> = ids.collect();
    for some in ids.chunks(SEEDS_AT_ONCE) {
        let mut pipe = redis::pipe();
        for id in some {
            let record = [("state", "active"), ("limit", "10000"), ("day", "0"), ("used", "0"), ("scope", "full")];
            pipe.hset_multiple(format!("k:{{{id}}}"), &record).ignore();
        }
        pipe.exec_async(&mut connection).await?;
    }
    Ok(())
}

async fn middling_answer(house: &House, crowd: &Crowd) -> Result<Vec<u8>> {
    let mut caller = house.nodes[0].caller();
    let mut bodies = Vec::new();
    for (key, address) in crowd.callers.iter().take(BODIES) {
        let headers = [("authorization", format!("Bearer {key}")), ("x-forwarded-for", address.to_string())];
        let reply = caller.get(PATH, &headers.each_ref().map(|(name, value)| (*name, value.as_str()))).await?;
        ensure!(reply.status == 200, "a key is answered {}", reply.status);
        bodies.push(reply.body.to_vec());
    }
    bodies.sort_by_key(Vec::len);
    let middle = bodies.len() / 2;
    bodies.into_iter().nth(middle).context("a crowd of nobody")
}
