//! The kinds of faults and what they concern.

use crate::fixture::FaultTopology;

/// Declares the kinds with their names and the part of the deployment that each concerns.
macro_rules! fault_kinds {
    ($($kind:ident $name:literal $part:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FaultKind {
            $($kind,)+
        }

        impl FaultKind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)+];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            pub(crate) const fn part(self) -> FaultPart {
                match self {
                    $(Self::$kind => FaultPart::$part,)+
                }
            }
        }
    };
}

fault_kinds! {
    NoFault "no-fault" Nothing,
    RedisKilled "redis-killed" Redis,
    RedisKilledTwice "redis-killed-twice" Redis,
    RedisDataLost "redis-data-lost" Redis,
    RedisFlushed "redis-flushed" Redis,
    RedisRestored "redis-restored" Redis,
    ReplicaPromoted "replica-promoted" Redis,
    ReplicaPromotedForOneNode "replica-promoted-for-one-node" Redis,
    RedisFrozen "redis-frozen" Redis,
    RedisStalled "redis-stalled" Redis,
    RedisBusy "redis-busy" Redis,
    RedisOutOfMemory "redis-out-of-memory" Redis,
    RedisReadOnly "redis-read-only" Redis,
    RedisClientsKilled "redis-clients-killed" Redis,
    ScriptsFlushed "scripts-flushed" Redis,
    RedisLinkCut "redis-link-cut" RedisLink,
    RedisLinkFlapping "redis-link-flapping" RedisLink,
    RedisLinkOfOneNodeCut "redis-link-of-one-node-cut" RedisLink,
    RedisLinkOfCommandsCut "redis-link-of-commands-cut" RedisLink,
    RedisLinkHalfOpen "redis-link-half-open" RedisLink,
    RedisLinkOfOneNodeHalfOpen "redis-link-of-one-node-half-open" RedisLink,
    RedisRepliesDropped "redis-replies-dropped" RedisLink,
    RedisRequestsHeld "redis-requests-held" RedisLink,
    RedisLinkReset "redis-link-reset" RedisLink,
    RedisLinkSlow "redis-link-slow" RedisLink,
    RedisLinkTooSlow "redis-link-too-slow" RedisLink,
    RedisLinkThrottled "redis-link-throttled" RedisLink,
    PostgresKilled "postgres-killed" Postgres,
    PostgresRestarted "postgres-restarted" Postgres,
    PostgresFrozen "postgres-frozen" Postgres,
    PostgresSessionsEnded "postgres-sessions-ended" Postgres,
    PostgresFailover "postgres-failover" Postgres,
    PostgresSwitchover "postgres-switchover" Postgres,
    PostgresLinkCut "postgres-link-cut" PostgresLink,
    PostgresLinkOfOneNodeCut "postgres-link-of-one-node-cut" PostgresLink,
    PostgresLinkHalfOpen "postgres-link-half-open" PostgresLink,
    PostgresRepliesDropped "postgres-replies-dropped" PostgresLink,
    PostgresLinkTooSlow "postgres-link-too-slow" PostgresLink,
    BothKilled "both-killed" Both,
    BothFrozen "both-frozen" Both,
    BothLinksCut "both-links-cut" Both,
    NodeIsolated "node-isolated" Both,
    OutboxRowsLocked "outbox-rows-locked" Both,
    NodeKilled "node-killed" Node,
    NodeReplaced "node-replaced" Node,
    NodeFrozen "node-frozen" Node,
    NodeStalled "node-stalled" Node,
    NodesStalled "nodes-stalled" Node,
    NodeKilledWhileRedisIsDown "node-killed-while-redis-is-down" Both,
    ClientsDisconnect "clients-disconnect" Clients,
    UnknownKeys "unknown-keys" Clients,
    KeysAtBurstLimit "keys-at-burst-limit" Clients,
    PausedWhileRedisIsDown "paused-while-redis-is-down" Both,
    ClockForward "clock-forward" Clock,
    ClockBack "clock-back" Clock,
    ClockDaysAhead "clock-days-ahead" Clock,
    ClockUnsteady "clock-unsteady" Clock,
    Midnight "midnight" Clock,
    ShardKilled "shard-killed" Shard,
    ShardFrozen "shard-frozen" Shard,
    ShardRepliesDropped "shard-replies-dropped" Shard,
    ShardClockAhead "shard-clock-ahead" ShardClock,
    SlotsMoved "slots-moved" Slots,
    SitesWithoutFault "sites-without-fault" Site,
    SiteLinkCut "site-link-cut" Site,
    SiteLinkHalfOpen "site-link-half-open" Site,
    SiteLinkReset "site-link-reset" Site,
    SiteLinkSlow "site-link-slow" Site,
    SiteRepliesDropped "site-replies-dropped" Site,
    SiteRepliesHeld "site-replies-held" Site,
    SiteRequestsHeld "site-requests-held" Site,
    RemoteNodeKilled "remote-node-killed" Site,
    RemoteNodeFrozen "remote-node-frozen" Site,
    HomeNodeKilled "home-node-killed" Site,
    HomeNodeFrozen "home-node-frozen" Site,
    SentinelFailover "sentinel-failover" Sentinel,
    PostgresMultiHostFailover "postgres-multi-host-failover" Standby,
    RedisTls "redis-tls" RedisTls,
}

/// The part of the deployment that a fault concerns. Two faults of one part are not combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultPart {
    Nothing,
    Redis,
    RedisLink,
    Postgres,
    PostgresLink,
    /// Several of the above.
    Both,
    Node,
    Clients,
    Clock,
    Shard,
    ShardClock,
    Slots,
    /// Remote nodes, or the home node that they use.
    Site,
    /// A primary of Redis with Sentinels.
    Sentinel,
    /// A primary of PostgreSQL with a standby in the same URL.
    Standby,
    /// A Redis with TLS.
    RedisTls,
}

impl FaultKind {
    pub(crate) const fn topology(self) -> FaultTopology {
        match self.part() {
            FaultPart::Shard | FaultPart::ShardClock | FaultPart::Slots => FaultTopology::Sharded,
            FaultPart::Site => FaultTopology::Sites,
            FaultPart::Sentinel => FaultTopology::Sentinel,
            FaultPart::Standby => FaultTopology::Standby,
            FaultPart::RedisTls => FaultTopology::RedisTls,
            FaultPart::Nothing
            | FaultPart::Redis
            | FaultPart::RedisLink
            | FaultPart::Postgres
            | FaultPart::PostgresLink
            | FaultPart::Both
            | FaultPart::Node
            | FaultPart::Clients
            | FaultPart::Clock => FaultTopology::Single,
        }
    }

    /// Kinds of the short form, which CI runs: at least one for each part and each checker.
    pub(crate) const SHORT: &[Self] = &[
        Self::NoFault,
        Self::RedisKilled,
        Self::RedisRestored,
        Self::RedisBusy,
        Self::RedisLinkOfOneNodeCut,
        Self::RedisLinkOfCommandsCut,
        Self::RedisRepliesDropped,
        Self::RedisRequestsHeld,
        Self::PostgresKilled,
        Self::PostgresFailover,
        Self::BothKilled,
        Self::OutboxRowsLocked,
        Self::NodeKilled,
        Self::NodeFrozen,
        Self::NodeStalled,
        Self::ClientsDisconnect,
        Self::UnknownKeys,
        Self::ClockBack,
        Self::Midnight,
        Self::ShardKilled,
        Self::SlotsMoved,
        Self::SitesWithoutFault,
        Self::SiteLinkCut,
        Self::SiteRepliesHeld,
        Self::RemoteNodeKilled,
        Self::HomeNodeKilled,
    ];

    /// Whether it can happen together with another.
    pub(crate) fn combines_with(self, other: Self) -> bool {
        !self.is_solo() && !other.is_solo() && self.part().partners().contains(&other.part())
    }

    /// Whether it changes so much that a second fault would not be known to strike. A second primary is not noticed while
    /// PostgreSQL is unreachable.
    const fn is_solo(self) -> bool {
        matches!(
            self,
            Self::KeysAtBurstLimit
                | Self::PostgresFailover
                | Self::PostgresSwitchover
                | Self::ReplicaPromotedForOneNode
        )
    }

    /// Whether it needs a replica of Redis.
    pub(crate) const fn needs_replica(self) -> bool {
        matches!(self, Self::ReplicaPromoted | Self::ReplicaPromotedForOneNode)
    }

    /// Whether it ends with the start of a node, which needs both stores.
    pub(crate) const fn starts_node(self) -> bool {
        matches!(self, Self::NodeKilled | Self::NodeReplaced | Self::RemoteNodeKilled | Self::HomeNodeKilled)
    }

    /// Whether Redis or PostgreSQL loses data. Such a run must be longer than three flush intervals.
    pub(crate) const fn loses_data(self) -> bool {
        matches!(
            self,
            Self::RedisDataLost
                | Self::RedisFlushed
                | Self::RedisRestored
                | Self::ReplicaPromoted
                | Self::PostgresFailover
        )
    }
}

impl FaultPart {
    /// Parts whose faults can be combined with one of this part.
    const fn partners(self) -> &'static [Self] {
        match self {
            Self::Nothing => &[],
            Self::Both | Self::Sentinel | Self::Standby | Self::RedisTls => &[Self::Clients],
            Self::Redis => {
                &[Self::RedisLink, Self::Postgres, Self::PostgresLink, Self::Node, Self::Clients, Self::Site]
            }
            Self::RedisLink => {
                &[Self::Redis, Self::Postgres, Self::PostgresLink, Self::Node, Self::Clients, Self::Clock]
            }
            Self::Clock => {
                &[Self::RedisLink, Self::Postgres, Self::PostgresLink, Self::Node, Self::Clients, Self::Site]
            }
            Self::Site => &[Self::Redis, Self::Postgres, Self::PostgresLink, Self::Clients, Self::Clock],
            Self::Postgres | Self::PostgresLink => &[
                Self::Redis,
                Self::RedisLink,
                Self::Node,
                Self::Clients,
                Self::Clock,
                Self::Shard,
                Self::ShardClock,
                Self::Slots,
                Self::Site,
            ],
            Self::Node => &[
                Self::Redis,
                Self::RedisLink,
                Self::Postgres,
                Self::PostgresLink,
                Self::Clients,
                Self::Clock,
                Self::Shard,
                Self::Slots,
            ],
            Self::Clients => &[
                Self::Redis,
                Self::RedisLink,
                Self::Postgres,
                Self::PostgresLink,
                Self::Both,
                Self::Node,
                Self::Clock,
                Self::Shard,
                Self::Site,
                Self::Sentinel,
                Self::Standby,
                Self::RedisTls,
            ],
            Self::Shard => &[Self::ShardClock, Self::Postgres, Self::PostgresLink, Self::Node, Self::Clients],
            Self::ShardClock => &[Self::Shard, Self::Slots, Self::Postgres, Self::PostgresLink],
            Self::Slots => &[Self::ShardClock, Self::Postgres, Self::PostgresLink, Self::Node],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_many_and_combine_both_ways() {
        assert!(FaultKind::ALL.len() >= 45);
        for first in FaultKind::ALL {
            for second in FaultKind::ALL {
                let (one, other) = (first.combines_with(*second), second.combines_with(*first));
                assert_eq!(one, other, "{} and {}", first.name(), second.name());
            }
        }
    }
}
