//! What the status page shows about this node. It reads the results of background tasks and probes nothing.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipseity_geo::Atlas;
use ipseity_portal::{ProbeState, ServiceHealth, SiteHeartbeat};
use ipseity_store::{NodeRole, NodeSummary};

use crate::node::readiness::Readiness;

const DAY_S: u64 = 86_400;
/// Without PostgreSQL, this node reads no heartbeats, and sites cannot write them. So they say nothing about the sites.
const HEARTBEATS_VALID: Duration = Duration::from_secs(90);

/// What is known about this node, from the moment that it serves.
#[derive(Default)]
pub(crate) struct NodeStatus {
    readiness: OnceLock<Arc<Readiness>>,
    /// The last heartbeats of sites, and when they were read.
    heartbeats: Mutex<Option<(Instant, Vec<SiteHeartbeat>)>>,
}

impl NodeStatus {
    pub(super) fn set_readiness(&self, readiness: &Arc<Readiness>) {
        // A node starts to serve once.
        let _ = self.readiness.set(Arc::clone(readiness));
    }

    /// Keeps the heartbeats of sites.
    pub(crate) fn set_nodes(&self, nodes: Vec<NodeSummary>) {
        let sites = nodes.into_iter().filter(|node| node.role == NodeRole::Remote);
        let heartbeat = |site: NodeSummary| SiteHeartbeat {
            name: site.name,
            seen_ago_s: Some(u64::try_from(site.seen_ago_s).unwrap_or(0)),
        };
        let heartbeats = Some((Instant::now(), sites.map(heartbeat).collect()));
        *self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner) = heartbeats;
    }

    pub(super) fn health(&self, atlas: &Atlas) -> ServiceHealth {
        let readiness = self.readiness.get();
        ServiceHealth {
            answers_lookups: readiness.is_none_or(|readiness| readiness.can_answer()),
            is_degraded: readiness.is_some_and(|readiness| readiness.is_degraded()),
            database: readiness.map_or(ProbeState::NotProbed, |readiness| readiness.database_state()),
            counting: readiness.map_or(ProbeState::NotProbed, |readiness| readiness.counting_state()),
            geo_age_days: geo_age_days(atlas),
            sites: self.sites(),
        }
    }

    fn sites(&self) -> Vec<SiteHeartbeat> {
        let heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((read_at, sites)) = &*heartbeats else { return Vec::new() };
        let is_valid = read_at.elapsed() <= HEARTBEATS_VALID;
        let site = |site: &SiteHeartbeat| SiteHeartbeat {
            name: site.name.clone(),
            seen_ago_s: site.seen_ago_s.filter(|_| is_valid),
        };
        sites.iter().map(site).collect()
    }
}

fn geo_age_days(atlas: &Atlas) -> Option<u64> {
    let oldest_s = atlas.editions().iter().map(|edition| edition.build_epoch_s).min()?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    Some(now_s.saturating_sub(oldest_s) / DAY_S)
}
