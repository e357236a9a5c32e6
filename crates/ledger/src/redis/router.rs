//! Finds the server for a request: the owner of the slot in a cluster, the primary of several servers or of Sentinel,
//! or the only server.
//!
//! Replicas are never used. They lag behind their primary, and a verdict needs the current state.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::LedgerError;
use crate::layout::HashSlot;
use crate::redis::connection::RedisConnection;
use crate::redis::node::{NodeSettings, RedisNode};
use crate::redis::sentinel::Sentinels;
use crate::redis::slot_map::{ClusterView, SlotMap};

/// Time limit for finding a server that answers. It may exceed the deadline of the request that started it.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(4);
/// How long to wait for the other servers after the first reply. A frozen server must not delay the refresh.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);
/// Time limit for the server that Sentinel reports. Sentinel is asked again after it, and may report another by then.
const REPORTED_PRIMARY_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct RedisRouter {
    /// With Sentinel, a server without a name, which is never reached. It has the settings of the others.
    seeds: Vec<Arc<RedisNode>>,
    sentinels: Option<Sentinels>,
    /// The seeds, and the servers that a cluster has reported.
    nodes: StdMutex<Vec<Arc<RedisNode>>>,
    slot_map: ArcSwapOption<SlotMap>,
    settings: Arc<NodeSettings>,
    /// Held by the task that refreshes the slot map. Other requests wait for it.
    refreshing: Arc<Mutex<()>>,
}

impl RedisRouter {
    /// Parses URLs separated by commas, or one URL of Sentinels.
    pub(crate) fn new(urls: &str, settings: &Arc<NodeSettings>) -> Result<Self, LedgerError> {
        let sentinels = if Sentinels::is_url(urls) { Some(Sentinels::parse(urls, &settings.tls)?) } else { None };
        let infos: Vec<ConnectionInfo> = match &sentinels {
            Some(sentinels) => vec![sentinels.server.clone()],
            None => urls.split(',').map(|url| url.trim().into_connection_info()).collect::<Result<_, RedisError>>()?,
        };
        let seed = |info| Ok(Arc::new(RedisNode::new(info, Arc::clone(settings))?));
        let seeds: Vec<_> = infos.into_iter().map(seed).collect::<Result<_, LedgerError>>()?;
        let nodes = StdMutex::new(seeds.clone());
        Ok(Self {
            seeds,
            sentinels,
            nodes,
            slot_map: ArcSwapOption::empty(),
            settings: Arc::clone(settings),
            refreshing: Arc::default(),
        })
    }

    /// Returns the owner of a slot and a connection to it.
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

    /// Returns the owner of a slot by the last known slot map. Before there is one, it is the first seed.
    pub(crate) fn last_known_owner(&self, slot: HashSlot) -> Arc<RedisNode> {
        let slot_map = self.slot_map.load();
        Arc::clone(slot_map.as_ref().map_or(&self.seeds[0], |slot_map| slot_map.owner(slot)))
    }

    pub(crate) const fn sentinels(&self) -> Option<&Sentinels> {
        self.sentinels.as_ref()
    }

    pub(crate) fn has_slot_map(&self) -> bool {
        self.slot_map.load().is_some()
    }

    /// Returns all servers that own a slot, by the last known slot map.
    pub(crate) fn last_known_owners(&self) -> Vec<Arc<RedisNode>> {
        let slot_map = self.slot_map.load();
        slot_map.as_ref().map_or_else(|| vec![Arc::clone(&self.seeds[0])], |slot_map| slot_map.owners())
    }

    /// Returns all servers that own a slot, and a connection to each.
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

    /// Returns the server at an address that another server of the cluster has reported.
    pub(crate) fn node_at(&self, address: &ConnectionAddr, via: &RedisNode) -> Result<Arc<RedisNode>, LedgerError> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = nodes.iter().find(|node| node.address() == address) {
            return Ok(Arc::clone(existing));
        }
        let node = Arc::new(via.sibling(address.clone())?);
        nodes.push(Arc::clone(&node));
        Ok(node)
    }

    /// Notes that a server has redirected a request to another.
    pub(crate) fn note_redirect(&self, from: &Arc<RedisNode>) {
        self.settings.note_owner_change(std::slice::from_ref(from));
    }

    /// Refreshes the slot map without delaying any request.
    pub(crate) fn refresh_slot_map_in_background(self: &Arc<Self>) {
        let is_single_node =
            self.sentinels.is_none() && self.nodes.lock().unwrap_or_else(PoisonError::into_inner).len() == 1;
        if is_single_node || self.fresh_slot_map().is_some() {
            return;
        }
        if let Ok(guard) = Arc::clone(&self.refreshing).try_lock_owned() {
            tokio::spawn(Arc::clone(self).refresh_slot_map(guard));
        }
    }

    pub(crate) async fn slot_map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<SlotMap>, LedgerError> {
        if let Some(slot_map) = self.fresh_slot_map() {
            return Ok(slot_map);
        }
        let refresh = async {
            let guard = Arc::clone(&self.refreshing).lock_owned().await;
            if let Some(slot_map) = self.fresh_slot_map() {
                return Ok(slot_map);
            }
            // In a separate task, which continues if this request times out. A later request uses the result.
            tokio::spawn(Arc::clone(self).refresh_slot_map(guard)).await.unwrap_or(Err(LedgerError::Unreachable))
        };
        Box::pin(timeout_at(deadline, refresh)).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    fn fresh_slot_map(&self) -> Option<Arc<SlotMap>> {
        self.slot_map.load_full().filter(|slot_map| slot_map.is_fresh())
    }

    /// Finds the owners of all slots, and disconnects from servers that own none.
    async fn refresh_slot_map(self: Arc<Self>, _guard: OwnedMutexGuard<()>) -> Result<Arc<SlotMap>, LedgerError> {
        let slot_map = match &self.sentinels {
            Some(sentinels) => SlotMap::standalone(self.query_reported_primary(sentinels).await?),
            None => self.query_slot_map().await?,
        };
        let slot_map = Arc::new(slot_map);
        if let Some(old) = self.slot_map.load_full()
            && !old.has_same_owners(&slot_map)
        {
            self.settings.note_owner_change(&old.owners());
        }
        self.slot_map.store(Some(Arc::clone(&slot_map)));
        self.prune_nodes(&slot_map.owners());
        Ok(slot_map)
    }

    /// Asks Sentinel for the primary, and the primary for its role: Sentinel may not have noticed yet that it changed.
    /// Then asks Sentinel again: a frozen primary that continues does not know yet that it was replaced.
    async fn query_reported_primary(&self, sentinels: &Sentinels) -> Result<Arc<RedisNode>, LedgerError> {
        let address = sentinels.find_primary().await?;
        let node = self.node_at(&address, &self.seeds[0])?;
        let status = timeout(REPORTED_PRIMARY_TIMEOUT, query_node(0, &node)).await;
        let is_primary = status.unwrap_or(Err(LedgerError::Unreachable))?.is_primary;
        if is_primary && sentinels.find_primary().await? == address {
            return Ok(node);
        }
        node.disconnect();
        Err(LedgerError::NoPrimary(format!("Sentinel reports {address}, which is not a primary any more")))
    }

    /// Asks all servers concurrently for the slot map.
    async fn query_slot_map(&self) -> Result<SlotMap, LedgerError> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let statuses = query_nodes(&nodes).await?;
        let cluster_views = statuses.iter().filter_map(|statuses| Some((statuses, statuses.view.as_ref()?)));
        if let Some((statuses, view)) = cluster_views.max_by_key(|(_, view)| view.epoch) {
            let source = Arc::clone(&nodes[statuses.index]);
            return SlotMap::from_cluster_view(Arc::clone(&source), view, |address| self.node_at(&address, &source));
        }
        // The first primary, or the claimed one if there are several. Without a primary, the first server, which
        // rejects writes with READONLY.
        let first =
            statuses.iter().min_by_key(|statuses| (!statuses.is_primary, !statuses.is_preferred, statuses.index));
        Ok(SlotMap::standalone(Arc::clone(&nodes[first.ok_or(LedgerError::Unreachable)?.index])))
    }

    /// Disconnects from servers that own no slot. Otherwise a replica would keep its old identity after it is promoted.
    fn prune_nodes(&self, owners: &[Arc<RedisNode>]) {
        let is_among =
            |nodes: &[Arc<RedisNode>], node: &Arc<RedisNode>| nodes.iter().any(|other| Arc::ptr_eq(other, node));
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().filter(|node| !is_among(owners, node)).for_each(|node| node.disconnect());
        nodes.retain(|node| is_among(owners, node) || is_among(&self.seeds, node));
    }
}

/// The role of a server, and the slot map that it reports.
struct RedisNodeStatus {
    index: usize,
    is_primary: bool,
    is_preferred: bool,
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
    let is_preferred = node.trusted().prefer(&connection.identity);
    Ok(RedisNodeStatus { index, is_primary: connection.identity.is_primary, is_preferred, view })
}
