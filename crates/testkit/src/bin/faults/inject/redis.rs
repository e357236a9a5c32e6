//! Faults of a single Redis and of its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ipseity_testkit::{Redis, RedisOptions, eventually};
use tokio::time::sleep;

use crate::fault_kind::FaultKind;
use crate::history::{FaultEffect, FaultWindow};
use crate::inject::{ActiveFault, Injection};

const DAY_MS: u64 = 86_400_000;
const CLOCK_STEP_MS: i64 = 120_000;
const DAYS_AHEAD_MS: i64 = 2 * 86_400_000;
/// Time for nodes to follow a clock that was set before the load started.
const CLOCK_SETTLE: Duration = Duration::from_millis(1_500);
/// Longer than the interval at which nodes read the identity of Redis, which its first replica changes.
const REPLICA_SETTLE: Duration = Duration::from_millis(2_500);
/// The node that uses the promoted replica if only one does.
const MOVED_NODE: usize = 0;

impl Injection<'_> {
    /// Sets the clock of Redis so that midnight comes a moment after the fault begins.
    pub(super) async fn prepare_midnight(&mut self, until_fault: Duration) -> Result<()> {
        let now_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
        let midnight = self.now() + CLOCK_SETTLE + until_fault + self.random_ms(200..1_000);
        let until_midnight = u64::try_from((midnight - self.now()).as_millis())?;
        let offset = (DAY_MS + DAY_MS - now_ms % DAY_MS - until_midnight) % DAY_MS;
        self.fixture.clock.set_offset_ms(i64::try_from(offset)?);
        self.fixture.is_ruined = true;
        self.midnight = Some(midnight);
        sleep(CLOCK_SETTLE).await;
        Ok(())
    }

    pub(super) async fn prepare_replica(&mut self) -> Result<()> {
        let clock = Some(self.fixture.clock.clone());
        let replica = Redis::start(RedisOptions { appendonly: true, clock, ..RedisOptions::default() }).await?;
        replica.replicate_from(&self.fixture.deployment.redis).await?;
        self.redis_replica = Some(replica);
        sleep(REPLICA_SETTLE).await;
        Ok(())
    }

    /// Promotes the replica for all nodes, and kills the old primary.
    async fn promote_replica(&mut self) -> Result<()> {
        let Some(replica) = self.redis_replica.take() else { return Ok(()) };
        self.kill_redis();
        replica.promote().await?;
        self.fixture.replace_redis(replica);
        Ok(())
    }

    fn move_node_to(&self, redis: &Redis) {
        self.fixture.link_proxies().nodes[MOVED_NODE].redis.set_upstream(redis.address());
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn begin_redis(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::RedisKilled
            | FaultKind::RedisKilledTwice
            | FaultKind::PausedWhileRedisIsDown
            | FaultKind::NodeKilledWhileRedisIsDown
            | FaultKind::OutboxRowsLocked
            | FaultKind::RedisTls
            | FaultKind::BothKilled => {
                self.open(active, FaultEffect::RedisUnreachable);
                self.kill_redis();
            }
            // The replica is on the same machine, and receives what was written before.
            FaultKind::SentinelFailover => {
                self.open(active, FaultEffect::RedisUnreachable);
                if self.rng.bool() {
                    self.kill_redis();
                } else {
                    // For the nodes as if it were killed: when it continues, another one is the primary.
                    let from = self.now();
                    self.fixture.deployment.redis.freeze();
                    self.record(FaultEffect::RedisKilled, from);
                }
            }
            FaultKind::RedisDataLost => {
                self.open(active, FaultEffect::RedisUnreachable);
                let from = self.now();
                self.kill_redis();
                let data_dir = self.fixture.deployment.redis.data_dir();
                std::fs::remove_dir_all(&data_dir)?;
                std::fs::create_dir(&data_dir)?;
                self.record(FaultEffect::RedisMemoryLost, from);
            }
            FaultKind::RedisFlushed => {
                let from = self.now();
                self.fixture.deployment.redis.flushall().await?;
                self.record(FaultEffect::RedisMemoryLost, from);
            }
            FaultKind::RedisRestored => {
                let from = self.now();
                self.fixture.deployment.redis.save_snapshot().await?;
                // A snapshot blocks Redis.
                self.record(FaultEffect::RedisUnreachable, from);
            }
            FaultKind::ReplicaPromoted => {
                self.open(active, FaultEffect::RedisUnreachable);
                let from = self.now();
                self.promote_replica().await?;
                self.record(FaultEffect::RedisMemoryLost, from);
            }
            FaultKind::ReplicaPromotedForOneNode => {
                self.open_for_node(active, FaultEffect::RedisUnreachable, MOVED_NODE);
                if let Some(replica) = &self.redis_replica {
                    replica.promote().await?;
                    self.move_node_to(replica);
                }
            }
            FaultKind::RedisFrozen | FaultKind::BothFrozen => {
                self.open(active, FaultEffect::RedisUnreachable);
                self.fixture.deployment.redis.freeze();
            }
            FaultKind::RedisStalled | FaultKind::RedisBusy | FaultKind::RedisClientsKilled => {
                self.open(active, FaultEffect::RedisUnreachable);
            }
            FaultKind::RedisOutOfMemory => {
                self.open(active, FaultEffect::RedisUnreachable);
                self.configure_redis("maxmemory", "1mb").await?;
            }
            FaultKind::RedisReadOnly => {
                self.open(active, FaultEffect::RedisUnreachable);
                self.configure_redis("min-replicas-to-write", "1").await?;
            }
            FaultKind::ScriptsFlushed => {
                self.fixture.deployment.redis.run_command(&["SCRIPT", "FLUSH"]).await?;
            }
            FaultKind::ClockForward => self.step_clock(CLOCK_STEP_MS),
            FaultKind::ClockBack => self.step_clock(-CLOCK_STEP_MS),
            FaultKind::ClockDaysAhead => {
                self.open(active, FaultEffect::WrongDay);
                self.step_clock(DAYS_AHEAD_MS);
            }
            FaultKind::Midnight => {
                let from = self.midnight.unwrap_or_default();
                self.load.recorder.push_window(FaultWindow {
                    effect: FaultEffect::Midnight,
                    process: None,
                    keys: None,
                    from,
                    until: from,
                });
            }
            _ => {}
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds do nothing in between")]
    pub(super) async fn tick_redis(&mut self, active: &ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::RedisKilledTwice if self.rng.u8(..8) == 0 => {
                self.fixture.deployment.redis.restart().await?;
                sleep(self.random_ms(50..400)).await;
                self.kill_redis();
            }
            FaultKind::RedisStalled => {
                self.fixture.deployment.redis.freeze();
                sleep(self.random_ms(30..200)).await;
                self.fixture.deployment.redis.thaw();
            }
            FaultKind::RedisBusy => {
                let busy = "local t = redis.call('TIME') local s = t[1] * 1000000 + t[2] repeat t = redis.call('TIME') \
                            until t[1] * 1000000 + t[2] > s + tonumber(ARGV[1]) return 1";
                let us = (self.rng.u64(20..150) * 1_000).to_string();
                // Redis may be unreachable because of another fault.
                let _ = self.fixture.deployment.redis.run_command(&["EVAL", busy, "0", &us]).await;
            }
            FaultKind::RedisClientsKilled => {
                let _ = self.fixture.deployment.redis.run_command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            }
            FaultKind::ClockUnsteady => self.fixture.clock.set_offset_ms(self.rng.i64(-200..200)),
            _ => {}
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn end_redis(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::RedisKilled
            | FaultKind::RedisKilledTwice
            | FaultKind::RedisDataLost
            | FaultKind::PausedWhileRedisIsDown
            | FaultKind::OutboxRowsLocked
            | FaultKind::RedisTls
            | FaultKind::BothKilled => self.fixture.deployment.redis.restart().await?,
            FaultKind::SentinelFailover => {
                let stores = &mut self.fixture.stores;
                let replica = stores.redis_replica.take().context("there is a replica")?;
                let sentinels = stores.sentinels.as_mut().context("there are Sentinels")?;
                sentinels.await_promotion_of(&replica).await?;
                self.fixture.is_ruined = true;
                let old = std::mem::replace(&mut self.fixture.deployment.redis, replica);
                // A frozen one is a primary again until a Sentinel demotes it.
                self.fixture.stores.redis_replica.insert(old).thaw();
            }
            FaultKind::RedisRestored => {
                let from = self.now();
                self.fixture.deployment.redis.restore_snapshot().await?;
                self.record(FaultEffect::RedisKilled, from);
                self.record(FaultEffect::RedisMemoryLost, from);
                self.record(FaultEffect::RedisUnreachable, from);
            }
            FaultKind::ReplicaPromotedForOneNode => self.move_node_to(&self.fixture.deployment.redis),
            FaultKind::RedisFrozen | FaultKind::BothFrozen => self.fixture.deployment.redis.thaw(),
            FaultKind::RedisOutOfMemory => self.configure_redis("maxmemory", "0").await?,
            FaultKind::RedisReadOnly => self.configure_redis("min-replicas-to-write", "0").await?,
            FaultKind::ClockForward | FaultKind::ClockBack => self.fixture.is_ruined = true,
            FaultKind::ClockDaysAhead => {
                self.step_clock(-DAYS_AHEAD_MS);
                self.fixture.is_ruined = true;
            }
            FaultKind::ClockUnsteady => self.fixture.clock.set_offset_ms(0),
            _ => {}
        }
        Ok(())
    }

    fn kill_redis(&mut self) {
        let from = self.now();
        self.fixture.deployment.redis.kill9();
        self.record(FaultEffect::RedisKilled, from);
    }

    /// Changes a setting of a Redis that may be restarting.
    async fn configure_redis(&self, name: &str, value: &str) -> Result<()> {
        let redis = &self.fixture.deployment.redis;
        let set = async || redis.run_command(&["CONFIG", "SET", name, value]).await.is_ok();
        eventually("Redis is configured", Duration::from_secs(10), set).await
    }

    fn step_clock(&self, by_ms: i64) {
        let from = self.now();
        self.fixture.clock.advance_ms(by_ms);
        self.record(FaultEffect::ClockStep, from);
    }
}
