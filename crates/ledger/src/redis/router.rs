//! Finds the server to call: the owner of a slot in a cluster, the primary among several addresses, or the only one there is.
//!
//! Deliberately absent: replicas. They know less than their primary, and a verdict must know it all.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::LedgerError;
use crate::layout::HashSlot;
use crate::redis::connection::RedisConnection;
use crate::redis::node::RedisNode;
use crate::redis::slot_map::{ClusterView, SlotMap};

/// Time to find anybody who answers, for whoever still waits for it.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the others are waited for once one has answered: a frozen server must not hold up what the others know.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);

pub(crate) struct RedisRouter {
    seeds: Vec<Arc<RedisNode>>,
    /// The seeds, and the servers that a cluster has told of.
    nodes: StdMutex<Vec<Arc<RedisNode>>>,
    slot_map: ArcSwapOption<SlotMap>,
    /// Held by the one that learns the map; the others wait for its outcome.
    refreshing: Arc<Mutex<()>>,
}

impl RedisRouter {
    /// Takes addresses that are separated by commas.
    pub(crate) fn new(urls: &str) -> Result<Self, LedgerError> {
        let seed = |url: &str| Ok(Arc::new(RedisNode::new(url.trim().into_connection_info()?)?));
        let seeds: Vec<_> = urls.split(',').map(seed).collect::<Result<_, LedgerError>>()?;
        let nodes = StdMutex::new(seeds.clone());
        Ok(Self { seeds, nodes, slot_map: ArcSwapOption::empty(), refreshing: Arc::default() })
    }

    /// The owner of a slot, and a session with it.
    pub(crate) async fn find_owner(
        self: &Arc<Self>,
        slot: HashSlot,
        deadline: Instant,
    ) -> Result<(Arc<RedisNode>, Arc<RedisConnection>), LedgerError> {
        if let Some(slot_map) = &*self.slot_map.load()
            && let Some(connection) = slot_map.owner(slot).live_connection()
        {
            return Ok((Arc::clone(slot_map.owner(slot)), connection));
        }
        let node = Arc::clone(self.slot_map(deadline).await?.owner(slot));
        let connection = node.connection(deadline).await?;
        Ok((node, connection))
    }

    /// All that own a slot, and a session with each.
    pub(crate) async fn find_owners(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Vec<(Arc<RedisNode>, Arc<RedisConnection>)>, LedgerError> {
        let mut owners = Vec::new();
        for node in self.slot_map(deadline).await?.owners() {
            let connection = node.connection(deadline).await?;
            owners.push((node, connection));
        }
        Ok(owners)
    }

    /// The link to an address that a server of the cluster has named.
    pub(crate) fn node_at(&self, address: &ConnectionAddr, via: &RedisNode) -> Result<Arc<RedisNode>, LedgerError> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = nodes.iter().find(|node| node.address() == address) {
            return Ok(Arc::clone(existing));
        }
        let node = Arc::new(via.sibling(address.clone())?);
        nodes.push(Arc::clone(&node));
        Ok(node)
    }

    /// Learns the map again, behind the back of the calls: what one of them met says that it may be old.
    pub(crate) fn refresh_slot_map_in_background(self: &Arc<Self>) {
        let is_single_node = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).len() == 1;
        if is_single_node || self.fresh_slot_map().is_some() {
            return;
        }
        if let Ok(guard) = Arc::clone(&self.refreshing).try_lock_owned() {
            tokio::spawn(Arc::clone(self).refresh_slot_map(guard));
        }
    }

    async fn slot_map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<SlotMap>, LedgerError> {
        if let Some(slot_map) = self.fresh_slot_map() {
            return Ok(slot_map);
        }
        let refresh = async {
            let guard = Arc::clone(&self.refreshing).lock_owned().await;
            if let Some(slot_map) = self.fresh_slot_map() {
                return Ok(slot_map);
            }
            // A task of its own: it goes on when whoever waits for it has left, and the next one finds it done.
            tokio::spawn(Arc::clone(self).refresh_slot_map(guard)).await.unwrap_or(Err(LedgerError::Unreachable))
        };
        Box::pin(timeout_at(deadline, refresh)).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    fn fresh_slot_map(&self) -> Option<Arc<SlotMap>> {
        self.slot_map.load_full().filter(|slot_map| slot_map.is_fresh())
    }

    /// Asks all servers at once who owns what, and lets go of those that own nothing.
    async fn refresh_slot_map(self: Arc<Self>, _guard: OwnedMutexGuard<()>) -> Result<Arc<SlotMap>, LedgerError> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let statuses = query_nodes(&nodes).await?;
        let cluster_views = statuses.iter().filter_map(|statuses| Some((statuses, statuses.view.as_ref()?)));
        let slot_map = if let Some((statuses, view)) = cluster_views.max_by_key(|(_, view)| view.epoch) {
            let source = Arc::clone(&nodes[statuses.index]);
            SlotMap::from_cluster_view(Arc::clone(&source), view, |address| self.node_at(&address, &source))?
        } else {
            // The first primary in the list; if there is none, the first server, which says so to whoever calls it.
            let first = statuses.iter().min_by_key(|statuses| (!statuses.is_primary, statuses.index));
            SlotMap::standalone(Arc::clone(&nodes[first.ok_or(LedgerError::Unreachable)?.index]))
        };
        let slot_map = Arc::new(slot_map);
        self.slot_map.store(Some(Arc::clone(&slot_map)));
        self.prune_nodes(&slot_map.owners());
        Ok(slot_map)
    }

    pub(crate) fn disconnect_all(&self) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|node| node.disconnect());
    }

    /// A replica that was asked before it was promoted would be known by what it was then.
    fn prune_nodes(&self, owners: &[Arc<RedisNode>]) {
        let is_among =
            |nodes: &[Arc<RedisNode>], node: &Arc<RedisNode>| nodes.iter().any(|other| Arc::ptr_eq(other, node));
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().filter(|node| !is_among(owners, node)).for_each(|node| node.disconnect());
        nodes.retain(|node| is_among(owners, node) || is_among(&self.seeds, node));
    }
}

/// What a server says of itself and its cluster, if it is of one.
struct RedisNodeStatus {
    index: usize,
    is_primary: bool,
    view: Option<ClusterView>,
}

async fn query_nodes(nodes: &[Arc<RedisNode>]) -> Result<Vec<RedisNodeStatus>, LedgerError> {
    let mut queries: JoinSet<_> =
        nodes.iter().cloned().enumerate().map(|(index, node)| async move { query_node(index, &node).await }).collect();
    let mut deadline = Instant::now() + DISCOVERY_TIMEOUT;
    let (mut statuses, mut last_error) = (Vec::new(), LedgerError::Unreachable);
    while let Ok(Some(status)) = timeout_at(deadline, queries.join_next()).await {
        match status.unwrap_or(Err(LedgerError::Unreachable)) {
            Ok(status) => {
                statuses.push(status);
                deadline = deadline.min(Instant::now() + STRAGGLER_TIMEOUT);
            }
            Err(error) => last_error = error,
        }
    }
    if statuses.is_empty() { Err(last_error) } else { Ok(statuses) }
}

async fn query_node(index: usize, node: &Arc<RedisNode>) -> Result<RedisNodeStatus, LedgerError> {
    let connection = match node.live_connection() {
        Some(connection) => {
            let refreshed = node.refresh_identity(&connection).await.inspect_err(|_| connection.mark_dead())?;
            refreshed.unwrap_or(connection)
        }
        None => node.connection(Instant::now() + DISCOVERY_TIMEOUT).await?,
    };
    let view = if connection.identity.is_cluster { Some(ClusterView::fetch(&connection).await?) } else { None };
    Ok(RedisNodeStatus { index, is_primary: connection.identity.is_primary, view })
}
