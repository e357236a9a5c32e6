//! The servers that own slots, and what a node knows of each. A failure of one does not concern the keys of another.

use std::sync::Arc;

use futures_util::future::join_all;
use ipseity_domain::{BURST_WINDOW_S, KeyId};
use tokio::time::Instant;

use crate::error::LedgerError;
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::redis::breaker::Breaker;
use crate::redis::clock::ServerClock;
use crate::redis::identity::DataSet;
use crate::redis::node::RedisNode;

/// Home's replies have an estimate of Redis's clock, which varies by less.
const HOME_FALL_MIN_MS: u64 = 20;

/// How far clocks may move apart in a burst window.
const DRIFT_IN_WINDOW_MS: u64 = 30;

/// The server that owns the slot of a key. Without a cluster, it owns all. For a remote node, home does.
#[derive(Clone)]
pub struct Owner(OwnerKind);

#[derive(Clone)]
enum OwnerKind {
    Redis(Arc<RedisNode>),
    Home(Arc<Home>),
}

/// What a remote node knows of home.
struct Home {
    breaker: Breaker,
    clock: ServerClock,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (OwnerKind::Redis(node), OwnerKind::Redis(other)) => Arc::ptr_eq(node, other),
            (OwnerKind::Home(home), OwnerKind::Home(other)) => Arc::ptr_eq(home, other),
            (OwnerKind::Redis(_), OwnerKind::Home(_)) | (OwnerKind::Home(_), OwnerKind::Redis(_)) => false,
        }
    }
}

impl Owner {
    /// Home, for a remote node that has not reached it yet.
    #[must_use]
    pub fn home() -> Self {
        // Failed charges do not open this breaker: home also answers that Redis failed.
        let clock = ServerClock::new(std::time::Instant::now(), HOME_FALL_MIN_MS);
        let breaker = Breaker::new(u32::MAX);
        breaker.open();
        Self(OwnerKind::Home(Arc::new(Home { breaker, clock })))
    }

    fn breaker(&self) -> &Breaker {
        match &self.0 {
            OwnerKind::Redis(node) => &node.breaker,
            OwnerKind::Home(home) => &home.breaker,
        }
    }

    fn clock(&self) -> &ServerClock {
        match &self.0 {
            OwnerKind::Redis(node) => &node.clock,
            OwnerKind::Home(home) => &home.clock,
        }
    }

    /// Whether the breaker is open: this node does not charge at this server.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.breaker().is_open()
    }

    /// Counts a charge that was answered.
    pub fn record_success(&self) {
        self.breaker().record_success();
    }

    /// Counts a failed charge. Returns `true` if it opens the breaker. All connections are then closed, because one
    /// without an answer may never answer again.
    #[must_use]
    pub fn record_failure(&self) -> bool {
        let is_opened = self.breaker().record_failure();
        if is_opened && let OwnerKind::Redis(node) = &self.0 {
            node.disconnect();
        }
        is_opened
    }

    /// Opens the breaker.
    pub fn mark_unavailable(&self) {
        self.breaker().open();
    }

    /// Closes the breaker.
    pub fn mark_available(&self) {
        self.breaker().close();
    }

    /// The server's clock, as this node knows it.
    #[must_use]
    pub fn now(&self) -> LedgerTime {
        self.clock().now()
    }

    /// The server's clock at an instant, as this node knows it, or an earlier time.
    #[must_use]
    pub fn at(&self, instant: std::time::Instant) -> LedgerTime {
        self.clock().at(instant)
    }

    /// The burst window of requests whose times this node knows by the clock, in milliseconds: less what the clock may have
    /// been set back in the last minute, and less the error of these times, but at least half.
    #[must_use]
    pub fn burst_window_ms(&self) -> u64 {
        let full_ms = BURST_WINDOW_S * 1000;
        let fallen_ms = match &self.0 {
            OwnerKind::Redis(node) => full_ms.saturating_sub(node.burst_window_ms()),
            OwnerKind::Home(home) => home.clock.fallen_ms(std::time::Instant::now()),
        };
        let error_ms = self.clock().bounds_ms().map_or(0, |(lower_ms, upper_ms)| upper_ms.saturating_sub(lower_ms));
        full_ms - (fallen_ms + error_ms + DRIFT_IN_WINDOW_MS).min(full_ms / 2)
    }

    /// Whether this node knows the server's clock.
    #[must_use]
    pub fn is_clock_synced(&self) -> bool {
        self.clock().is_synced()
    }

    /// Corrects the clock by a reply with the server's time, which it read between `sent` and `received`.
    pub fn sync_clock(&self, now: LedgerTime, sent: std::time::Instant, received: std::time::Instant) {
        self.clock().sync(now, sent, received);
    }

    /// Host and port, or the path of its socket.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.0 {
            OwnerKind::Redis(node) => node.address().to_string(),
            OwnerKind::Home(_) => "home".to_owned(),
        }
    }

    pub(crate) fn redis_node(&self) -> Option<&Arc<RedisNode>> {
        if let OwnerKind::Redis(node) = &self.0 { Some(node) } else { None }
    }
}

impl Ledger {
    /// The owner of a key, by the last known slot map.
    #[must_use]
    pub fn owner_of(&self, key: KeyId) -> Owner {
        self.owner_of_slot(Bucket::of(key).slot())
    }

    pub(crate) fn owner_of_slot(&self, slot: HashSlot) -> Owner {
        Owner(OwnerKind::Redis(self.router.last_known_owner(slot)))
    }

    /// The owner of the demo quota.
    #[must_use]
    pub fn owner_of_demo(&self) -> Owner {
        self.owner_of_slot(HashSlot::of(&layout::demo_key()))
    }

    /// All owners, by the last known slot map.
    #[must_use]
    pub fn owners(&self) -> Vec<Owner> {
        self.router.last_known_owners().into_iter().map(|node| Owner(OwnerKind::Redis(node))).collect()
    }

    /// The time by the slowest clock of all owners that answer, or an earlier time. The estimate of another clock gets worse
    /// with its age.
    #[must_use]
    pub fn slowest_clock(&self) -> Option<LedgerTime> {
        let owners = self.owners();
        let synced = || owners.iter().filter(|owner| owner.is_clock_synced());
        let available = synced().filter(|owner| !owner.is_unavailable()).map(Owner::now).min();
        available.or_else(|| synced().map(Owner::now).min())
    }

    /// Reads the clocks of all owners that answer. An estimate is less exact the older it is.
    pub async fn refresh_clocks(&self) {
        self.refresh_clocks_of(&self.owners()).await;
    }

    pub(crate) async fn refresh_clocks_of(&self, owners: &[Owner]) {
        let nodes = owners.iter().filter(|owner| !owner.is_unavailable()).filter_map(Owner::redis_node);
        // A server that does not answer delays no other.
        join_all(nodes.map(|node| self.read_clock(node))).await;
    }

    /// Identifies the data sets of all owners. It differs if any of them is another one.
    #[must_use]
    pub fn data_sets(&self) -> DataSet {
        let owners = self.owners();
        let data_sets = owners.iter().map(|owner| owner.redis_node().and_then(|node| node.data_set()));
        data_sets.collect::<Option<Vec<_>>>().map_or(DataSet::NONE, DataSet::combine)
    }

    /// The data set of a key's owner.
    #[must_use]
    pub fn data_set_of(&self, key: KeyId) -> DataSet {
        self.owner_of(key).redis_node().and_then(|node| node.data_set()).unwrap_or(DataSet::NONE)
    }

    /// Checks that a server answers. Also succeeds if it owns no slot any more.
    ///
    /// # Errors
    /// Fails if it does not answer in time.
    pub async fn probe(&self, owner: &Owner) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timeout;
        if self.router.has_slot_map() {
            // Not awaited: it waits for all servers, and another one may be frozen.
            self.router.refresh_slot_map_in_background();
        } else {
            self.router.slot_map(deadline).await?;
        }
        if !self.owners().contains(owner) {
            return Ok(());
        }
        let node = owner.redis_node().ok_or(LedgerError::Unreachable)?;
        let connection = node.connection(deadline).await?;
        self.ping_server(Arc::clone(node), connection, deadline).await
    }
}
