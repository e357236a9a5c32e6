//! Injects faults: each begins, may act repeatedly, and ends.

mod clients;
mod links;
mod nodes;
mod postgres;
mod redis;
mod shards;
mod sites;

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use ipseity_testkit::{FaultProxy, Postgres, Redis};
use tokio::task::JoinSet;

use crate::fault_kind::FaultKind;
use crate::fixture::{FaultFixture, NODES, REMOTE_NODES};
use crate::history::{FaultEffect, FaultWindow};
use crate::load::LoadContext;

/// What a node without a store or without home lacks.
const BOTH_UNREACHABLE: [FaultEffect; 2] = [FaultEffect::RedisUnreachable, FaultEffect::PostgresUnreachable];

/// What faults work on.
pub(crate) struct Injection<'a> {
    pub(crate) fixture: &'a mut FaultFixture,
    pub(crate) load: &'a LoadContext,
    pub(crate) rng: Rng,
    /// When midnight comes, if a fault needs it.
    pub(crate) midnight: Option<Duration>,
    /// A replica of Redis, if a fault needs it.
    pub(crate) redis_replica: Option<Redis>,
}

/// A fault that has begun.
pub(crate) struct ActiveFault {
    kind: FaultKind,
    windows: Vec<usize>,
    links: Vec<usize>,
    /// A replica of PostgreSQL and its link to the primary.
    replica: Option<(Postgres, FaultProxy)>,
    tasks: JoinSet<()>,
    /// Server of a cluster.
    shard: usize,
    /// Index of a remote node.
    remote: usize,
}

impl Injection<'_> {
    /// Prepares the deployment before the load starts, so that this itself is no fault.
    pub(crate) async fn prepare(&mut self, kind: FaultKind, until_fault: Duration) -> Result<()> {
        if kind == FaultKind::Midnight {
            self.prepare_midnight(until_fault).await?;
        }
        if kind.needs_replica() {
            self.prepare_replica().await?;
        }
        Ok(())
    }

    pub(crate) async fn begin(&mut self, kind: FaultKind) -> Result<ActiveFault> {
        let mut active = ActiveFault {
            kind,
            windows: Vec::new(),
            links: Vec::new(),
            replica: None,
            tasks: JoinSet::new(),
            shard: self.rng.usize(..3),
            remote: NODES + self.rng.usize(..REMOTE_NODES),
        };
        self.begin_redis(&mut active).await?;
        self.begin_links(&mut active);
        self.begin_postgres(&mut active).await?;
        self.begin_nodes(&mut active).await?;
        self.begin_clients(&mut active).await?;
        self.begin_shards(&mut active).await?;
        self.begin_sites(&mut active);
        Ok(active)
    }

    /// Acts once. Called again and again while the fault is active.
    pub(crate) async fn tick(&mut self, active: &mut ActiveFault) -> Result<()> {
        self.tick_redis(active).await?;
        self.tick_links(active).await;
        self.tick_postgres(active).await?;
        self.tick_nodes(active).await;
        self.tick_shards(active).await
    }

    pub(crate) async fn end(&mut self, mut active: ActiveFault) -> Result<()> {
        self.end_shards(&mut active).await?;
        self.end_sites(&active).await?;
        self.end_clients(&mut active).await;
        self.end_redis(&mut active).await?;
        self.end_postgres(&mut active).await?;
        self.end_nodes(&mut active).await?;
        self.end_links(&mut active);
        active.windows.iter().for_each(|&window| self.load.recorder.close_window(window));
        Ok(())
    }

    /// Records that an effect begins for all processes and lasts until the fault ends.
    fn open(&self, active: &mut ActiveFault, effect: FaultEffect) {
        active.windows.push(self.load.recorder.open_window(effect, None));
    }

    /// The same for the process of one node. Remote nodes need a home node.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other effects do not concern remote nodes")]
    fn open_for_node(&self, active: &mut ActiveFault, effect: FaultEffect, node: usize) {
        let process = self.fixture.processes()[node];
        active.windows.push(self.load.recorder.open_window(effect, Some(process)));
        match effect {
            _ if node >= NODES => {}
            FaultEffect::NodeDown => self.open_for_sites(active, &BOTH_UNREACHABLE),
            FaultEffect::RedisUnreachable | FaultEffect::PostgresUnreachable => self.open_for_sites(active, &[effect]),
            _ => {}
        }
    }

    /// Records effects for all remote nodes.
    fn open_for_sites(&self, active: &mut ActiveFault, effects: &[FaultEffect]) {
        for process in self.fixture.processes().into_iter().skip(NODES) {
            let windows = effects.iter().map(|effect| self.load.recorder.open_window(*effect, Some(process)));
            active.windows.extend(windows);
        }
    }

    /// Records an effect that began at `from` and is over.
    fn record(&self, effect: FaultEffect, from: Duration) {
        let until = self.load.recorder.now();
        self.load.recorder.push_window(FaultWindow { effect, process: None, keys: None, from, until });
    }

    fn now(&self) -> Duration {
        self.load.recorder.now()
    }

    fn random_ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }
}
