//! The listener of a home node for remote nodes.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_api::Admission;
use ipseity_domain::causes;
use ipseity_edge::{Drain, Listener};
use ipseity_home::{ClientIdentity, RequestHandler, SiteList, SiteSessionLimits, SitesAcceptor, serve_session};
use ipseity_ledger::{Ledger, SlotFeed};
use ipseity_store::Store;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::{Config, HomeConfig, millis};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Remote nodes ping more often.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time before the next attempt to accept a connection, for example if there are too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Accepts connections of remote nodes.
pub(crate) struct HomeListener {
    acceptor: SitesAcceptor,
    sites: SitesPoll,
    slot_feed: Arc<SlotFeed>,
    limits: SiteSessionLimits,
    connections_max: usize,
    connected_sites: Arc<ConnectedSites>,
    metrics: RemoteNodeMetrics,
}

impl HomeListener {
    /// `None` if `[home] listen` is empty.
    pub(crate) fn open(
        config: &Config,
        store: Store,
        ledger: Arc<Ledger>,
        registry: &mut Registry,
    ) -> Result<Option<Self>> {
        let settings = &config.home;
        if settings.listen.is_empty() {
            return Ok(None);
        }
        let (sites, listed) = watch::channel(Arc::default());
        Ok(Some(Self {
            acceptor: open_acceptor(settings, listed)?,
            sites: SitesPoll { store, sites, interval: millis(settings.sites_poll_interval_ms) },
            slot_feed: Arc::new(SlotFeed::new(ledger)),
            limits: SiteSessionLimits {
                handshake_timeout: HANDSHAKE_TIMEOUT,
                idle_timeout: IDLE_TIMEOUT,
                concurrent_requests_max: settings.requests_per_connection_max,
            },
            connections_max: settings.connections_max,
            connected_sites: Arc::default(),
            metrics: RemoteNodeMetrics::register(registry),
        }))
    }

    pub(crate) fn connected_sites(&self) -> Arc<ConnectedSites> {
        Arc::clone(&self.connected_sites)
    }

    /// Runs until the drain starts and the open requests are answered.
    pub(crate) async fn run(self, socket: Listener, admission: Arc<Admission>, drain: Drain) {
        let Self { acceptor, sites, slot_feed, limits, connections_max, connected_sites, metrics } = self;
        let listener = socket.into_socket();
        let handler = metrics.count_requests(admission, connected_sites);
        let permits = Arc::new(Semaphore::new(connections_max));
        let mut sessions = JoinSet::new();
        let accept = async {
            loop {
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let Ok((socket, _address)) = listener.accept().await else {
                    sleep(ACCEPT_BACKOFF).await;
                    continue;
                };
                while sessions.try_join_next().is_some() {}
                let (acceptor, handler, drain) = (acceptor.clone(), Arc::clone(&handler), drain.clone());
                let (connections, feed) = (metrics.connections.clone(), Arc::clone(&slot_feed));
                sessions.spawn(async move {
                    connections.inc();
                    serve_session(socket, acceptor, handler, feed, limits, drain.started()).await;
                    connections.dec();
                    drop(permit);
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = sites.run() => {}
            () = slot_feed.run() => {}
            () = drain.started() => {}
        }
        while sessions.join_next().await.is_some() {}
    }
}

/// Validates the certificate for remote nodes, if there may be any.
pub(super) fn check(settings: &HomeConfig) -> Result<()> {
    if settings.listen.is_empty() {
        return Ok(());
    }
    open_acceptor(settings, watch::channel(Arc::default()).1).map(drop)
}

fn open_acceptor(settings: &HomeConfig, sites: watch::Receiver<Arc<SiteList>>) -> Result<SitesAcceptor> {
    SitesAcceptor::new(&identity(settings), sites).context("invalid [home] certificate_file or private_key_file")
}

/// Certificate and private key of this node.
pub(super) fn identity(settings: &HomeConfig) -> ClientIdentity {
    ClientIdentity {
        certificate_file: settings.certificate_file.clone(),
        private_key_file: settings.private_key_file.clone(),
    }
}

/// Reads the list of sites again and again. While PostgreSQL does not answer, the last list is used.
struct SitesPoll {
    store: Store,
    sites: watch::Sender<Arc<SiteList>>,
    interval: Duration,
}

impl SitesPoll {
    async fn run(self) {
        loop {
            match self.store.sites().list().await {
                Ok(rows) => {
                    let listed: SiteList = rows.into_iter().map(|site| (site.certificate_sha256, site.name)).collect();
                    self.sites.send_if_modified(|sites| {
                        let is_changed = **sites != listed;
                        if is_changed {
                            *sites = Arc::new(listed);
                        }
                        is_changed
                    });
                }
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "list of sites not read");
                }
            }
            sleep(self.interval).await;
        }
    }
}

/// The sites that sent a request since the last heartbeat. Remote nodes ping more often.
#[derive(Default)]
pub(crate) struct ConnectedSites(Mutex<HashSet<Arc<str>>>);

impl ConnectedSites {
    fn record(&self, site: &Arc<str>) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !sites.contains(site) {
            sites.insert(Arc::clone(site));
        }
    }

    /// Returns the sites, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        let sites = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        sites.iter().map(ToString::to_string).collect()
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SiteLabel {
    site: String,
}

struct RemoteNodeMetrics {
    connections: Gauge,
    requests: Family<SiteLabel, Counter>,
}

impl RemoteNodeMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self { connections: Gauge::default(), requests: Family::default() };
        let help = "Connections of remote nodes";
        registry.register("remote_node_connections", help, metrics.connections.clone());
        let help = "Requests of remote nodes to this home node, by site";
        registry.register("remote_node_requests", help, metrics.requests.clone());
        metrics
    }

    /// Answers requests of remote nodes, and counts them.
    fn count_requests(&self, admission: Arc<Admission>, connected_sites: Arc<ConnectedSites>) -> RequestHandler {
        let requests = self.requests.clone();
        Arc::new(move |site, line| {
            connected_sites.record(&site);
            requests.get_or_create(&SiteLabel { site: site.to_string() }).inc();
            Box::pin(Arc::clone(&admission).answer_remote_node(site, line))
        })
    }
}
