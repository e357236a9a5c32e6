//! The kinds of faults: how to inject and clear them, and what each may lose.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use ipseity_testkit::fault_proxy::FaultConfig;
use tokio::time::{Instant, sleep};

use crate::fixture::FaultFixture;
use crate::load::NodeAddresses;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    NoFault,
    RedisKilled,
    RedisDataLost,
    RedisKilledTwice,
    RedisFrozen,
    RedisFlushed,
    RedisRestored,
    ScriptsFlushed,
    RedisLinkCut,
    RedisLinkOfOneNodeCut,
    RedisLinkHalfOpen,
    RedisRepliesDropped,
    RedisLinkReset,
    RedisLinkSlow,
    RedisLinkTooSlow,
    RedisLinkThrottled,
    PostgresKilled,
    PostgresFrozen,
    PostgresLinkCut,
    PostgresLinkHalfOpen,
    PostgresRepliesDropped,
    PostgresLinkTooSlow,
    BothKilled,
    BothFrozen,
    BothLinksCut,
    NodeKilled,
    NodeReplaced,
    NodeKilledWhileRedisIsDown,
    PausedWhileRedisIsDown,
    RevokedWhileRedisIsDown,
    ClientsDisconnect,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 31] = [
        Self::NoFault,
        Self::RedisKilled,
        Self::RedisDataLost,
        Self::RedisKilledTwice,
        Self::RedisFrozen,
        Self::RedisFlushed,
        Self::RedisRestored,
        Self::ScriptsFlushed,
        Self::RedisLinkCut,
        Self::RedisLinkOfOneNodeCut,
        Self::RedisLinkHalfOpen,
        Self::RedisRepliesDropped,
        Self::RedisLinkReset,
        Self::RedisLinkSlow,
        Self::RedisLinkTooSlow,
        Self::RedisLinkThrottled,
        Self::PostgresKilled,
        Self::PostgresFrozen,
        Self::PostgresLinkCut,
        Self::PostgresLinkHalfOpen,
        Self::PostgresRepliesDropped,
        Self::PostgresLinkTooSlow,
        Self::BothKilled,
        Self::BothFrozen,
        Self::BothLinksCut,
        Self::NodeKilled,
        Self::NodeReplaced,
        Self::NodeKilledWhileRedisIsDown,
        Self::PausedWhileRedisIsDown,
        Self::RevokedWhileRedisIsDown,
        Self::ClientsDisconnect,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoFault => "no-fault",
            Self::RedisKilled => "redis-killed",
            Self::RedisDataLost => "redis-data-lost",
            Self::RedisKilledTwice => "redis-killed-twice",
            Self::RedisFrozen => "redis-frozen",
            Self::RedisFlushed => "redis-flushed",
            Self::RedisRestored => "redis-restored",
            Self::ScriptsFlushed => "scripts-flushed",
            Self::RedisLinkCut => "redis-link-cut",
            Self::RedisLinkOfOneNodeCut => "redis-link-of-one-node-cut",
            Self::RedisLinkHalfOpen => "redis-link-half-open",
            Self::RedisRepliesDropped => "redis-replies-dropped",
            Self::RedisLinkReset => "redis-link-reset",
            Self::RedisLinkSlow => "redis-link-slow",
            Self::RedisLinkTooSlow => "redis-link-too-slow",
            Self::RedisLinkThrottled => "redis-link-throttled",
            Self::PostgresKilled => "postgres-killed",
            Self::PostgresFrozen => "postgres-frozen",
            Self::PostgresLinkCut => "postgres-link-cut",
            Self::PostgresLinkHalfOpen => "postgres-link-half-open",
            Self::PostgresRepliesDropped => "postgres-replies-dropped",
            Self::PostgresLinkTooSlow => "postgres-link-too-slow",
            Self::BothKilled => "both-killed",
            Self::BothFrozen => "both-frozen",
            Self::BothLinksCut => "both-links-cut",
            Self::NodeKilled => "node-killed",
            Self::NodeReplaced => "node-replaced",
            Self::NodeKilledWhileRedisIsDown => "node-killed-while-redis-is-down",
            Self::PausedWhileRedisIsDown => "paused-while-redis-is-down",
            Self::RevokedWhileRedisIsDown => "revoked-while-redis-is-down",
            Self::ClientsDisconnect => "clients-disconnect",
        }
    }

    /// Whether Redis loses data. At most the requests admitted since the last usage flush are lost.
    pub(crate) const fn loses_counts(self) -> bool {
        matches!(self, Self::RedisDataLost | Self::RedisFlushed | Self::RedisRestored)
    }

    /// Whether a node is killed while it has pending charges, which are lost.
    pub(crate) const fn loses_node_state(self) -> bool {
        matches!(self, Self::NodeKilledWhileRedisIsDown)
    }

    pub(crate) const fn keeps_one_store(self) -> bool {
        !matches!(self, Self::BothKilled | Self::BothFrozen | Self::BothLinksCut)
    }

    /// Whether a node is down for a while, so that its clients cannot connect.
    pub(crate) const fn has_node_downtime(self) -> bool {
        matches!(self, Self::NodeKilled | Self::NodeReplaced | Self::NodeKilledWhileRedisIsDown)
    }

    /// Injects the fault, waits and clears it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other kinds are link faults")]
    pub(crate) async fn inject(
        self,
        fixture: &mut FaultFixture,
        addresses: &NodeAddresses,
        duration: Duration,
        seed: u64,
    ) -> Result<()> {
        match self {
            Self::NoFault | Self::ClientsDisconnect => sleep(duration).await,
            Self::RedisKilled => stop_redis(fixture, duration, false).await?,
            Self::RedisDataLost => stop_redis(fixture, duration, true).await?,
            Self::RedisKilledTwice => {
                stop_redis(fixture, duration / 2, false).await?;
                sleep(Duration::from_millis(300)).await;
                stop_redis(fixture, duration / 2, false).await?;
            }
            Self::RedisFrozen => {
                fixture.deployment.redis.freeze();
                sleep(duration).await;
                fixture.deployment.redis.thaw();
            }
            Self::RedisFlushed => {
                fixture.deployment.redis.flushall().await?;
                sleep(duration).await;
            }
            Self::RedisRestored => {
                fixture.deployment.redis.save_snapshot().await?;
                sleep(duration).await;
                fixture.deployment.redis.restore_snapshot().await?;
            }
            Self::ScriptsFlushed => {
                fixture.deployment.redis.run_command(&["SCRIPT", "FLUSH"]).await?;
                sleep(duration).await;
            }
            Self::RedisLinkReset => {
                let until = Instant::now() + duration;
                while Instant::now() < until {
                    fault_proxies(fixture, StoreLink::Redis).for_each(|proxy| proxy.reset_connections());
                    sleep(Duration::from_millis(100)).await;
                }
            }
            Self::RedisLinkOfOneNodeCut => {
                let proxy = fault_proxies(fixture, StoreLink::Redis).next().expect("proxy exists").clone();
                proxy.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
                sleep(duration).await;
                proxy.clear_faults();
            }
            Self::PostgresKilled => {
                fixture.deployment.postgres.kill9();
                sleep(duration).await;
                fixture.deployment.postgres.restart().await?;
            }
            Self::PostgresFrozen => {
                fixture.deployment.postgres.freeze();
                sleep(duration).await;
                fixture.deployment.postgres.thaw();
            }
            Self::BothKilled => {
                fixture.deployment.postgres.kill9();
                fixture.deployment.redis.kill9();
                sleep(duration).await;
                fixture.deployment.redis.restart().await?;
                fixture.deployment.postgres.restart().await?;
            }
            Self::BothFrozen => {
                fixture.deployment.postgres.freeze();
                fixture.deployment.redis.freeze();
                sleep(duration).await;
                fixture.deployment.redis.thaw();
                fixture.deployment.postgres.thaw();
            }
            Self::NodeKilled => {
                fixture.deployment.nodes[1].kill9();
                replace_node(fixture, addresses).await?;
                sleep(duration).await;
            }
            Self::NodeReplaced => {
                fixture.deployment.nodes[1].terminate().await?;
                replace_node(fixture, addresses).await?;
                sleep(duration).await;
            }
            Self::NodeKilledWhileRedisIsDown => {
                fixture.deployment.redis.kill9();
                sleep(duration).await;
                fixture.deployment.nodes[1].kill9();
                fixture.deployment.redis.restart().await?;
                replace_node(fixture, addresses).await?;
            }
            Self::PausedWhileRedisIsDown | Self::RevokedWhileRedisIsDown => {
                stop_redis(fixture, duration, false).await?
            }
            link_fault => {
                let (link, faults) = link_fault.link_faults(seed);
                fault_proxies(fixture, link).for_each(|proxy| proxy.set_faults(faults));
                sleep(duration).await;
                fault_proxies(fixture, link).for_each(ipseity_testkit::FaultProxy::clear_faults);
            }
        }
        Ok(())
    }

    /// The faults of the links.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds do not change links")]
    fn link_faults(self, seed: u64) -> (StoreLink, FaultConfig) {
        let none = FaultConfig { seed, ..FaultConfig::none() };
        let ms = Duration::from_millis;
        match self {
            Self::RedisLinkCut => (StoreLink::Redis, FaultConfig { cut: true, ..none }),
            Self::RedisLinkHalfOpen => (StoreLink::Redis, FaultConfig { half_open: true, ..none }),
            Self::RedisRepliesDropped => (StoreLink::Redis, FaultConfig { reply_drop_rate: 0.2, ..none }),
            Self::RedisLinkSlow => (StoreLink::Redis, FaultConfig { delay: ms(5), jitter: ms(10), ..none }),
            Self::RedisLinkTooSlow => (StoreLink::Redis, FaultConfig { delay: ms(40), jitter: ms(20), ..none }),
            Self::RedisLinkThrottled => {
                (StoreLink::Redis, FaultConfig { bytes_per_second: NonZeroU32::new(8_000), ..none })
            }
            Self::PostgresLinkCut => (StoreLink::Postgres, FaultConfig { cut: true, ..none }),
            Self::PostgresLinkHalfOpen => (StoreLink::Postgres, FaultConfig { half_open: true, ..none }),
            Self::PostgresRepliesDropped => (StoreLink::Postgres, FaultConfig { reply_drop_rate: 0.2, ..none }),
            Self::PostgresLinkTooSlow => (StoreLink::Postgres, FaultConfig { delay: ms(600), ..none }),
            Self::BothLinksCut => (StoreLink::Both, FaultConfig { cut: true, ..none }),
            _ => (StoreLink::Both, none),
        }
    }
}

#[derive(Clone, Copy)]
enum StoreLink {
    Redis,
    Postgres,
    Both,
}

fn fault_proxies(fixture: &FaultFixture, link: StoreLink) -> impl Iterator<Item = &ipseity_testkit::FaultProxy> {
    let proxies = fixture.deployment.nodes.iter().filter_map(|node| node.fault_proxies());
    proxies.flat_map(move |proxies| match link {
        StoreLink::Redis => vec![&proxies.redis],
        StoreLink::Postgres => vec![&proxies.postgres],
        StoreLink::Both => vec![&proxies.redis, &proxies.postgres],
    })
}

async fn stop_redis(fixture: &mut FaultFixture, duration: Duration, loses_data: bool) -> Result<()> {
    fixture.deployment.redis.kill9();
    if loses_data {
        std::fs::remove_dir_all(fixture.deployment.redis.data_dir())?;
        std::fs::create_dir(fixture.deployment.redis.data_dir())?;
    }
    sleep(duration).await;
    fixture.deployment.redis.restart().await
}

/// Replaces the second node.
async fn replace_node(fixture: &mut FaultFixture, addresses: &NodeAddresses) -> Result<()> {
    fixture.replace_node(1).await?;
    addresses.lock().expect("lock is not poisoned")[1] = fixture.deployment.nodes[1].http();
    Ok(())
}
