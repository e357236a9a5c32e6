//! Faults of a Redis Cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_testkit::FaultConfig;

use crate::counts::keys_on_shard;
use crate::fault_kind::FaultKind;
use crate::fixture::ShardedRedis;
use crate::history::{FaultEffect, FaultWindow};
use crate::inject::{ActiveFault, Injection};
use crate::links::{LinkFault, LinkScope, LinkTarget};

/// Further ahead than a node's estimate of the clock may be wrong.
const SHARD_AHEAD_MS: i64 = 3_000;
/// Slots that are moved in one step.
const MOVED_SLOTS: u16 = 64;

impl Injection<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn begin_shards(&mut self, active: &mut ActiveFault) -> Result<()> {
        let shard = active.shard;
        match active.kind {
            FaultKind::ShardKilled => {
                self.open_for_shard(active).await?;
                self.sharded()?.cluster.servers[shard].kill9();
            }
            FaultKind::ShardFrozen => {
                self.open_for_shard(active).await?;
                self.sharded()?.cluster.servers[shard].freeze();
            }
            FaultKind::ShardRepliesDropped => {
                self.open_for_shard(active).await?;
                self.drop_replies(active, LinkScope::Shard(shard));
            }
            FaultKind::ShardClockAhead => {
                let from = self.now();
                self.sharded()?.clocks[shard].set_offset_ms(SHARD_AHEAD_MS);
                self.record(FaultEffect::ClockStep, from);
                // A node must not judge the others' charges by this clock.
                self.open(active, FaultEffect::RedisUnreachable);
                self.drop_replies(active, LinkScope::Nodes);
            }
            FaultKind::SlotsMoved => self.open(active, FaultEffect::RedisUnreachable),
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn tick_shards(&mut self, active: &ActiveFault) -> Result<()> {
        if active.kind == FaultKind::SlotsMoved {
            let (from, offset) = (active.shard, self.rng.u16(..4_000));
            let cluster = &self.sharded()?.cluster;
            let first = cluster.initial_slots(from).start() + offset;
            let to = (from + 1) % cluster.servers.len();
            cluster.move_slots(first..=first + MOVED_SLOTS, from, to).await?;
            // Moved back, so that the next step can move them again.
            cluster.move_slots(first..=first + MOVED_SLOTS, to, from).await?;
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn end_shards(&mut self, active: &mut ActiveFault) -> Result<()> {
        let shard = active.shard;
        match active.kind {
            FaultKind::ShardKilled => {
                self.sharded()?.cluster.servers[shard].restart().await?;
                self.sharded()?.cluster.wait_until_healthy().await?;
            }
            FaultKind::ShardFrozen => {
                self.sharded()?.cluster.servers[shard].thaw();
                self.sharded()?.cluster.wait_until_healthy().await?;
            }
            FaultKind::ShardClockAhead => self.fixture.is_ruined = true,
            _ => {}
        }
        Ok(())
    }

    fn sharded(&mut self) -> Result<&mut ShardedRedis> {
        self.fixture.shards.as_mut().context("Redis is not sharded")
    }

    fn drop_replies(&mut self, active: &mut ActiveFault, scope: LinkScope) {
        let config = FaultConfig { reply_drop_rate: 0.2, seed: self.rng.u64(..), ..FaultConfig::none() };
        active.links.push(self.fixture.add_link_fault(LinkFault { target: LinkTarget::Redis, scope, config }));
    }

    /// Records that Redis is unreachable for the keys of one server only.
    async fn open_for_shard(&self, active: &mut ActiveFault) -> Result<()> {
        let ids: Vec<String> = self.load.recorder.history().keys.iter().map(|key| key.id.clone()).collect();
        let mut keys: BTreeSet<usize> = keys_on_shard(self.fixture, active.shard, &ids).await?.into_iter().collect();
        // Keys without a record yet may be on this server too.
        let used: BTreeSet<usize> = self.load.recorder.history().requests.iter().map(|request| request.key).collect();
        keys.extend((0..ids.len()).filter(|key| !used.contains(key)));
        active.windows.push(self.load.recorder.push_window(FaultWindow {
            effect: FaultEffect::RedisUnreachable,
            process: None,
            keys: Some(keys),
            from: self.load.recorder.now(),
            until: Duration::MAX,
        }));
        Ok(())
    }
}
