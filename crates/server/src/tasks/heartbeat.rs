//! Records in PostgreSQL that this node runs, and which sites are connected to it. Reads the sites of all nodes for the status page.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipseity_api::Api;
use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_keys::DeploymentGuard;
use ipseity_store::{NodeHeartbeat, Store};

use crate::config::Config;
use crate::node::home_listener::ConnectedSites;
use crate::node::readiness::Readiness;
use crate::node::status::NodeStatus;
use crate::tasks::periodic::run_every;

/// Limits the load on PostgreSQL.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

pub(crate) struct HeartbeatWorker {
    store: Store,
    guard: Arc<DeploymentGuard>,
    api: Arc<Api>,
    readiness: Arc<Readiness>,
    connected_sites: Arc<ConnectedSites>,
    status: Arc<NodeStatus>,
    host_name: String,
    site: String,
    started_s: i64,
    interval: Duration,
}

impl HeartbeatWorker {
    pub(crate) fn new(
        config: &Config,
        store: Store,
        guard: Arc<DeploymentGuard>,
        api: Arc<Api>,
        readiness: Arc<Readiness>,
        connected_sites: Arc<ConnectedSites>,
        status: Arc<NodeStatus>,
    ) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            store,
            guard,
            api,
            readiness,
            connected_sites,
            status,
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            site: config.edge.colo.clone(),
            started_s: i64::try_from(started.as_secs()).unwrap_or(i64::MAX),
            interval: Duration::from_secs(config.ops.heartbeat_interval_s).max(INTERVAL_MIN),
        }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        run_every(self.interval, &drain, || self.run_once()).await;
    }

    async fn run_once(&self) {
        let heartbeat = NodeHeartbeat {
            id: self.guard.node_id(),
            name: &self.host_name,
            site: &self.site,
            version: env!("CARGO_PKG_VERSION"),
            started_s: self.started_s,
            is_draining: self.readiness.is_draining(),
            is_degraded: self.api.admission().is_degraded(),
            connected_sites: &self.connected_sites.take(),
        };
        if let Err(error) = self.store.nodes().heartbeat(&heartbeat).await {
            tracing::warn!(error = %causes(&error), "heartbeat not written");
            return;
        }
        match self.store.nodes().list().await {
            Ok(nodes) => self.status.set_nodes(nodes),
            Err(error) => tracing::warn!(error = %causes(&error), "heartbeats not read"),
        }
    }
}
