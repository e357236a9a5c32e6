//! The kinds of fault: how each begins and ends, and what it may cost.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use testkit::relay::Faults;
use tokio::time::{Instant, sleep};

use crate::load::Addresses;
use crate::stage::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    RedisKilled,
    RedisLost,
    RedisKilledTwice,
    RedisFrozen,
    RedisFlushed,
    RedisRestored,
    ScriptsFlushed,
    LedgerLineCut,
    LedgerLineOfOneNodeCut,
    LedgerLineHalfOpen,
    LedgerRepliesDropped,
    LedgerLineReset,
    LedgerLineSlow,
    LedgerLineTooSlow,
    LedgerLineThrottled,
    PostgresKilled,
    PostgresFrozen,
    StoreLineCut,
    StoreLineHalfOpen,
    StoreRepliesDropped,
    StoreLineTooSlow,
    BothKilled,
    BothFrozen,
    BothLinesCut,
    NodeKilled,
    NodeReplaced,
    NodeKilledWhileRedisIsAway,
    PausedWhileRedisIsAway,
    RevokedWhileRedisIsAway,
    ClientsHangUp,
}

impl Kind {
    pub(crate) const ALL: [Self; 31] = [
        Self::Nothing,
        Self::RedisKilled,
        Self::RedisLost,
        Self::RedisKilledTwice,
        Self::RedisFrozen,
        Self::RedisFlushed,
        Self::RedisRestored,
        Self::ScriptsFlushed,
        Self::LedgerLineCut,
        Self::LedgerLineOfOneNodeCut,
        Self::LedgerLineHalfOpen,
        Self::LedgerRepliesDropped,
        Self::LedgerLineReset,
        Self::LedgerLineSlow,
        Self::LedgerLineTooSlow,
        Self::LedgerLineThrottled,
        Self::PostgresKilled,
        Self::PostgresFrozen,
        Self::StoreLineCut,
        Self::StoreLineHalfOpen,
        Self::StoreRepliesDropped,
        Self::StoreLineTooSlow,
        Self::BothKilled,
        Self::BothFrozen,
        Self::BothLinesCut,
        Self::NodeKilled,
        Self::NodeReplaced,
        Self::NodeKilledWhileRedisIsAway,
        Self::PausedWhileRedisIsAway,
        Self::RevokedWhileRedisIsAway,
        Self::ClientsHangUp,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::RedisKilled => "redis-killed",
            Self::RedisLost => "redis-lost",
            Self::RedisKilledTwice => "redis-killed-twice",
            Self::RedisFrozen => "redis-frozen",
            Self::RedisFlushed => "redis-flushed",
            Self::RedisRestored => "redis-restored",
            Self::ScriptsFlushed => "scripts-flushed",
            Self::LedgerLineCut => "ledger-line-cut",
            Self::LedgerLineOfOneNodeCut => "ledger-line-of-one-node-cut",
            Self::LedgerLineHalfOpen => "ledger-line-half-open",
            Self::LedgerRepliesDropped => "ledger-replies-dropped",
            Self::LedgerLineReset => "ledger-line-reset",
            Self::LedgerLineSlow => "ledger-line-slow",
            Self::LedgerLineTooSlow => "ledger-line-too-slow",
            Self::LedgerLineThrottled => "ledger-line-throttled",
            Self::PostgresKilled => "postgres-killed",
            Self::PostgresFrozen => "postgres-frozen",
            Self::StoreLineCut => "store-line-cut",
            Self::StoreLineHalfOpen => "store-line-half-open",
            Self::StoreRepliesDropped => "store-replies-dropped",
            Self::StoreLineTooSlow => "store-line-too-slow",
            Self::BothKilled => "both-killed",
            Self::BothFrozen => "both-frozen",
            Self::BothLinesCut => "both-lines-cut",
            Self::NodeKilled => "node-killed",
            Self::NodeReplaced => "node-replaced",
            Self::NodeKilledWhileRedisIsAway => "node-killed-while-redis-is-away",
            Self::PausedWhileRedisIsAway => "paused-while-redis-is-away",
            Self::RevokedWhileRedisIsAway => "revoked-while-redis-is-away",
            Self::ClientsHangUp => "clients-hang-up",
        }
    }

    /// Whether the counter store forgets something: at most what one interval admitted before is lost.
    pub(crate) const fn loses_counts(self) -> bool {
        matches!(self, Self::RedisLost | Self::RedisFlushed | Self::RedisRestored)
    }

    /// Whether a node dies with requests that it admitted alone: these are lost.
    pub(crate) const fn loses_a_node(self) -> bool {
        matches!(self, Self::NodeKilledWhileRedisIsAway)
    }

    pub(crate) const fn keeps_a_store(self) -> bool {
        !matches!(self, Self::BothKilled | Self::BothFrozen | Self::BothLinesCut)
    }

    /// Whether a node is not there for a while, and its callers find nobody.
    pub(crate) const fn misses_a_node(self) -> bool {
        matches!(self, Self::NodeKilled | Self::NodeReplaced | Self::NodeKilledWhileRedisIsAway)
    }

    /// Makes the fault, lets it last, and ends it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not named here is a fault of a line")]
    pub(crate) async fn strike(
        self,
        stage: &mut Stage,
        addresses: &Addresses,
        lasting: Duration,
        seed: u64,
    ) -> Result<()> {
        match self {
            Self::Nothing | Self::ClientsHangUp => sleep(lasting).await,
            Self::RedisKilled => redis_away(stage, lasting, false).await?,
            Self::RedisLost => redis_away(stage, lasting, true).await?,
            Self::RedisKilledTwice => {
                redis_away(stage, lasting / 2, false).await?;
                sleep(Duration::from_millis(300)).await;
                redis_away(stage, lasting / 2, false).await?;
            }
            Self::RedisFrozen => {
                stage.house.redis.freeze();
                sleep(lasting).await;
                stage.house.redis.thaw();
            }
            Self::RedisFlushed => {
                stage.house.redis.flushall().await?;
                sleep(lasting).await;
            }
            Self::RedisRestored => {
                stage.house.redis.save_snapshot().await?;
                sleep(lasting).await;
                stage.house.redis.restore_snapshot().await?;
            }
            Self::ScriptsFlushed => {
                stage.house.redis.call(&["SCRIPT", "FLUSH"]).await?;
                sleep(lasting).await;
            }
            Self::LedgerLineReset => {
                let until = Instant::now() + lasting;
                while Instant::now() < until {
                    relays(stage, Line::Ledger).for_each(|relay| relay.reset());
                    sleep(Duration::from_millis(100)).await;
                }
            }
            Self::LedgerLineOfOneNodeCut => {
                let relay = relays(stage, Line::Ledger).next().expect("a relay").clone();
                relay.set(Faults { cut: true, ..Faults::none() });
                sleep(lasting).await;
                relay.heal();
            }
            Self::PostgresKilled => {
                stage.house.postgres.kill9();
                sleep(lasting).await;
                stage.house.postgres.restart().await?;
            }
            Self::PostgresFrozen => {
                stage.house.postgres.freeze();
                sleep(lasting).await;
                stage.house.postgres.thaw();
            }
            Self::BothKilled => {
                stage.house.postgres.kill9();
                stage.house.redis.kill9();
                sleep(lasting).await;
                stage.house.redis.restart().await?;
                stage.house.postgres.restart().await?;
            }
            Self::BothFrozen => {
                stage.house.postgres.freeze();
                stage.house.redis.freeze();
                sleep(lasting).await;
                stage.house.redis.thaw();
                stage.house.postgres.thaw();
            }
            Self::NodeKilled => {
                stage.house.nodes[1].kill9();
                replace_node(stage, addresses).await?;
                sleep(lasting).await;
            }
            Self::NodeReplaced => {
                stage.house.nodes[1].terminate().await?;
                replace_node(stage, addresses).await?;
                sleep(lasting).await;
            }
            Self::NodeKilledWhileRedisIsAway => {
                stage.house.redis.kill9();
                sleep(lasting).await;
                stage.house.nodes[1].kill9();
                stage.house.redis.restart().await?;
                replace_node(stage, addresses).await?;
            }
            Self::PausedWhileRedisIsAway | Self::RevokedWhileRedisIsAway => redis_away(stage, lasting, false).await?,
            line => {
                let (which, faults) = line.faults(seed);
                relays(stage, which).for_each(|relay| relay.set(faults));
                sleep(lasting).await;
                relays(stage, which).for_each(testkit::Relay::heal);
            }
        }
        Ok(())
    }

    /// What is wrong with the lines.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others leave the lines alone")]
    fn faults(self, seed: u64) -> (Line, Faults) {
        let none = Faults { seed, ..Faults::none() };
        let ms = Duration::from_millis;
        match self {
            Self::LedgerLineCut => (Line::Ledger, Faults { cut: true, ..none }),
            Self::LedgerLineHalfOpen => (Line::Ledger, Faults { half_open: true, ..none }),
            Self::LedgerRepliesDropped => (Line::Ledger, Faults { dropped_replies: 0.2, ..none }),
            Self::LedgerLineSlow => (Line::Ledger, Faults { delay: ms(5), jitter: ms(10), ..none }),
            Self::LedgerLineTooSlow => (Line::Ledger, Faults { delay: ms(40), jitter: ms(20), ..none }),
            Self::LedgerLineThrottled => (Line::Ledger, Faults { bytes_per_second: NonZeroU32::new(8_000), ..none }),
            Self::StoreLineCut => (Line::Store, Faults { cut: true, ..none }),
            Self::StoreLineHalfOpen => (Line::Store, Faults { half_open: true, ..none }),
            Self::StoreRepliesDropped => (Line::Store, Faults { dropped_replies: 0.2, ..none }),
            Self::StoreLineTooSlow => (Line::Store, Faults { delay: ms(600), ..none }),
            Self::BothLinesCut => (Line::Both, Faults { cut: true, ..none }),
            _ => (Line::Both, none),
        }
    }
}

#[derive(Clone, Copy)]
enum Line {
    Ledger,
    Store,
    Both,
}

fn relays(stage: &Stage, line: Line) -> impl Iterator<Item = &testkit::Relay> {
    let relays = stage.house.nodes.iter().filter_map(|node| node.relays());
    relays.flat_map(move |relays| match line {
        Line::Ledger => vec![&relays.redis],
        Line::Store => vec![&relays.postgres],
        Line::Both => vec![&relays.redis, &relays.postgres],
    })
}

async fn redis_away(stage: &mut Stage, lasting: Duration, is_lost: bool) -> Result<()> {
    stage.house.redis.kill9();
    if is_lost {
        std::fs::remove_dir_all(stage.house.redis.data())?;
        std::fs::create_dir(stage.house.redis.data())?;
    }
    sleep(lasting).await;
    stage.house.redis.restart().await
}

/// Puts another node in the place of the second.
async fn replace_node(stage: &mut Stage, addresses: &Addresses) -> Result<()> {
    stage.replace(1).await?;
    addresses.lock().expect("no panic")[1] = stage.house.nodes[1].http();
    Ok(())
}
