//! Builds a node from its configuration and runs it until a signal stops it.

pub(crate) mod backends;
mod background;
pub(crate) mod console;
mod edge_limits;
mod geo_tasks;
pub(crate) mod home_listener;
pub(crate) mod listeners;
pub(crate) mod metrics;
pub(crate) mod ops;
mod pairing;
pub(crate) mod portal_setup;
pub(crate) mod proxy_trust;
pub(crate) mod readiness;
pub(crate) mod remote;
pub(crate) mod scanner_keys;
pub(crate) mod sealed_tokens;
pub(crate) mod sign_in_providers;
mod signals;
pub(crate) mod sockets;
pub(crate) mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use axum::Router;
use ipseity_api::{
    Api, ApiLimits, ApiMetrics, Backend, BlockedNetworks, DegradedLimits, MinuteLimits, PublicService, UsageBuffer,
};
use ipseity_domain::{Colo, causes};
use ipseity_edge::{CertResolver, Drain, DrainSwitch, EdgeLimits, EdgeState, Listener, Transport, Trust};
use ipseity_geo::{AtlasReloader, AtlasSources};
use ipseity_keys::{DeploymentGuard, KeyMetrics};
use ipseity_portal::PageRouters;
use prometheus_client::registry::Registry;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::config::public_urls::public_urls;
use crate::config::{Config, millis};
use crate::geo::reload::GeoReloadWorker;
use crate::node::backends::request_backends;
use crate::node::background::{Background, LedgerWorkers, PROBE_INTERVAL_MIN};
use crate::node::console::{ConsoleSources, console_address, serve_console};
use crate::node::edge_limits::{check_capacity, connection_capacity, edge_limits};
use crate::node::geo_tasks::spawn_geo_tasks;
use crate::node::home_listener::HomeListener;
use crate::node::listeners::PublicListeners;
use crate::node::metrics::NodeCollector;
use crate::node::ops::OpsState;
use crate::node::portal_setup::{PageSources, PortalSetup};
use crate::node::readiness::{Dependencies, Readiness, ReadinessCollector};
use crate::node::sealed_tokens::{SealedTokens, open_sealed_tokens};
use crate::node::sign_in_providers::operator_providers;
use crate::node::signals::{Reloader, Signals};
use crate::node::sockets::ListenSockets;
use crate::node::status::NodeStatus;
use crate::tasks::acme::{self, AcmeWorker};
use crate::tasks::blocked_networks::{BlockedNetworksWorker, open_blocked_networks};
use crate::tasks::certificates::{self, CertificateReloadWorker};
use crate::tasks::heartbeat::HeartbeatWorker;
use crate::tasks::recovery;
use crate::tasks::retention::RetentionWorker;
use crate::tasks::sealing_keys::SealingKeysWorker;
use crate::telemetry::log::LogControl;

/// The parts of a node that can be built and validated without PostgreSQL and Redis.
pub(crate) struct PreparedNode {
    atlas_reloader: Arc<AtlasReloader>,
    edge: Arc<EdgeState>,
    cert_resolver: Option<Arc<CertResolver>>,
    sealed_tokens: SealedTokens,
    blocked_networks: Option<Arc<BlockedNetworks>>,
}

impl PreparedNode {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let settings = &config.edge;
        let trust = proxy_trust::build_trust(settings)?;
        let colo =
            match settings.colo.as_str() {
                "" => None,
                code => Some(Colo::parse(code).with_context(|| {
                    format!("[edge] colo is {code:?}. Use three capital letters, or leave it empty.")
                })?),
            };
        ensure!(
            !(settings.http.is_empty() && settings.https.is_empty()),
            "[edge] http and https are both empty. Add at least one address to listen on."
        );
        let cert_resolver = match settings.https.is_empty() {
            true => None,
            false => Some(Arc::new(certificates::open_cert_resolver(config)?)),
        };
        let atlas_reloader = AtlasReloader::open(atlas_sources(config), config.geo.allow_older)
            .context("failed to load the files of [geo]")?;
        Ok(Self {
            atlas_reloader: Arc::new(atlas_reloader),
            edge: Arc::new(EdgeState::new(edge_limits(config), trust, colo)),
            cert_resolver,
            sealed_tokens: open_sealed_tokens(&config.public)?,
            blocked_networks: open_blocked_networks(settings)?,
        })
    }

    /// Validates the settings of the portal.
    pub(crate) fn check_portal(&self, config: &Config) -> Result<()> {
        let sources = PageSources::without_banner(&self.atlas_reloader, &self.sealed_tokens);
        if config.home.is_remote_node() {
            return portal_setup::public_pages(config, sources).map(drop);
        }
        PortalSetup::check(config, sources)
    }
}

/// Validates the certificates between remote nodes and home.
pub(crate) fn check_home(config: &Config) -> Result<()> {
    if config.home.is_remote_node() {
        remote::open_client(config).map(drop)
    } else {
        home_listener::check(&config.home)
    }
}

pub(crate) fn atlas_sources(config: &Config) -> AtlasSources {
    AtlasSources {
        files: config.geo.files.clone(),
        optional_files: config.geo.sources.iter().map(|source| source.file.clone()).collect(),
        hosting_lists: config.geo.hosting_asn_lists.clone(),
        proxy_lists: config.geo.proxy_asn_lists.clone(),
    }
}

/// Runs the service until a signal stops it.
pub(crate) async fn run(config: &Config, config_file: Option<PathBuf>, log_control: Arc<LogControl>) -> Result<()> {
    let signals = Signals::install()?;
    check_capacity(config)?;
    let reloader = Reloader::new(config, config_file, Arc::clone(&log_control));
    let parts = NodeParts::open(config, signals, reloader)?;
    if config.home.is_remote_node() {
        remote::run(config, parts, log_control).await
    } else {
        run_home_node(config, parts, log_control).await
    }
}

/// Runs a node that has PostgreSQL and Redis.
async fn run_home_node(config: &Config, mut parts: NodeParts, log_control: Arc<LogControl>) -> Result<()> {
    let usage_buffer = Arc::new(UsageBuffer::new(config.ledger.usage_buffer_keys_max));
    let guard = Arc::clone(&parts.guard);
    let key_metrics = KeyMetrics::register(parts.registry());
    let portal_setup = PortalSetup::open(config, parts.page_sources(), &guard, &key_metrics, parts.registry())?;
    let acme = acme::http01_router(parts.acme.as_ref());
    let pages = portal_setup.as_ref().map(|portal_setup| ipseity_portal::router(Arc::clone(&portal_setup.portal)));
    let console_metrics = key_metrics.clone();
    let background = Background::open(config, &guard, key_metrics)?;
    let connect_gate = background.charge_gate.as_connect_gate();
    let stores = request_backends(config, guard.trusted_stores(), connect_gate)?;
    let api = open_api(config, Backend::Stores(stores), &parts, &usage_buffer);
    background.charge_gate.set_api(&api);
    let public_service = build_public_service(config, &api, acme, pages);
    let workers = LedgerWorkers::register(config, parts.registry(), &background, &api, usage_buffer);
    let session_limits = portal_setup::session_limits(config);
    let retention =
        RetentionWorker::register(parts.registry(), background.store.clone(), &config.retention, session_limits);
    let home_listener =
        HomeListener::open(config, background.store.clone(), Arc::clone(&background.ledger), parts.registry())?;
    let connected_sites = home_listener.as_ref().map(HomeListener::connected_sites).unwrap_or_default();
    let node_id = guard.node_id();
    let dependencies = Dependencies::Stores {
        store: background.store.clone(),
        ledger: Arc::clone(&background.ledger),
        guard: Arc::clone(&guard),
    };

    let (atlas_reloader, cert_resolver) = (Arc::clone(&parts.atlas_reloader), parts.cert_resolver.clone());
    let (console_guard, status) = (Arc::clone(&parts.guard), Arc::clone(&parts.status));
    // Before the node listens, because the files of secrets may be missing.
    let providers = operator_providers(config)?;

    let mut serving = Serving::start(config, parts, public_service, Arc::clone(&api), dependencies, log_control)?;
    let (drain, tasks) = (serving.drain.clone(), &mut serving.tasks);
    let (outbox, outbox_drain) = (workers.outbox, drain.clone());
    tasks.spawn(async move { outbox.run(outbox_drain).await });
    tasks.spawn(recovery::follow_key_events(Arc::clone(&api), background.store.clone(), drain.clone()));
    tasks.spawn(recovery::follow_clocks(Arc::clone(&api), drain.clone()));
    tasks.spawn(retention.run(drain.clone()));
    let (readiness, store) = (Arc::clone(&serving.ops.readiness), background.store.clone());
    let heartbeat = HeartbeatWorker::new(config, store, guard, Arc::clone(&api), readiness, connected_sites, status);
    tasks.spawn(heartbeat.run(drain.clone()));
    if let Some(portal_setup) = portal_setup {
        tasks.spawn(portal_setup::run_portal_tasks(portal_setup.worker, drain.clone()));
    }
    if let (Some(listener), Some(socket)) = (home_listener, serving.home_socket.take()) {
        tasks.spawn(listener.run(socket, Arc::clone(api.admission()), drain.clone()));
    }
    if let Some(socket) = serving.console_socket.take() {
        let readiness = Arc::clone(&serving.ops.readiness);
        let sources = ConsoleSources {
            guard: console_guard,
            key_metrics: console_metrics,
            atlas_reloader,
            cert_resolver,
            readiness,
        };
        serving.tasks.spawn(serve_console(config, socket, providers, sources, drain.clone())?);
    }
    tokio::join!(
        serving.drain_after_signal(config),
        workers.usage_flush.run(drain.clone()),
        workers.recovery.run(drain)
    );
    workers.recovery.reconcile_before_exit().await;
    workers.usage_flush.flush_before_exit().await;
    serving.join_tasks().await?;
    if let Err(error) = background.key_service.release_data_set().await {
        tracing::debug!(error = %causes(&error), "claim on Redis not released");
    }
    if let Err(error) = background.store.nodes().remove(node_id).await {
        tracing::debug!(error = %causes(&error), "heartbeat not removed");
    }
    serving.stop().await
}

/// What every node has.
pub(crate) struct NodeParts {
    atlas_reloader: Arc<AtlasReloader>,
    edge: Arc<EdgeState>,
    cert_resolver: Option<Arc<CertResolver>>,
    sealed_tokens: SealedTokens,
    guard: Arc<DeploymentGuard>,
    metrics_registry: Registry,
    metrics: ApiMetrics,
    geo_reload: GeoReloadWorker,
    certificate_reload: CertificateReloadWorker,
    blocked_networks: Option<Arc<BlockedNetworks>>,
    blocked_networks_reload: Option<Arc<BlockedNetworksWorker>>,
    acme: Option<AcmeWorker>,
    signals: Signals,
    reloader: Reloader,
    status: Arc<NodeStatus>,
}

impl NodeParts {
    fn open(config: &Config, signals: Signals, reloader: Reloader) -> Result<Self> {
        let PreparedNode { atlas_reloader, edge, cert_resolver, sealed_tokens, blocked_networks } =
            PreparedNode::open(config)?;
        let guard = Arc::new(DeploymentGuard::generate());
        let mut metrics_registry = Registry::default();
        let registry = metrics::register_node(
            &mut metrics_registry,
            NodeCollector {
                edge: Arc::clone(&edge),
                atlas_reloader: Arc::clone(&atlas_reloader),
                cert_resolver: cert_resolver.clone(),
                connections_max: connection_capacity(config),
                guard: Arc::clone(&guard),
                is_remote_node: config.home.is_remote_node(),
            },
        );
        let metrics = ApiMetrics::register(registry);
        let watch_interval = config.geo.watch.then(|| millis(config.geo.watch_interval_ms));
        let geo_reload = GeoReloadWorker::register(registry, Arc::clone(&atlas_reloader), watch_interval);
        let certificate_reload =
            CertificateReloadWorker::register(registry, millis(config.edge.certificate_watch_interval_ms));
        let blocked_networks_reload =
            BlockedNetworksWorker::register(registry, &config.edge, blocked_networks.as_ref());
        let acme = AcmeWorker::open(config, cert_resolver.as_ref(), registry)?;
        Ok(Self {
            atlas_reloader,
            edge,
            cert_resolver,
            sealed_tokens,
            guard,
            metrics_registry,
            metrics,
            geo_reload,
            certificate_reload,
            blocked_networks,
            blocked_networks_reload,
            acme,
            signals,
            reloader,
            status: Arc::default(),
        })
    }

    fn page_sources(&self) -> PageSources {
        PageSources {
            atlas_reloader: Arc::clone(&self.atlas_reloader),
            tokens: self.sealed_tokens.clone(),
            banner: self.reloader.banner(),
            status: Arc::clone(&self.status),
        }
    }

    /// The registry for metrics whose names start with `ipseity_`.
    fn registry(&mut self) -> &mut Registry {
        self.metrics_registry.sub_registry_with_prefix("ipseity")
    }
}

/// The listeners and the background tasks of a running node.
struct Serving {
    listener_tasks: JoinSet<()>,
    tasks: JoinSet<()>,
    drain: Drain,
    /// `None` after the drain has started.
    drain_switch: Option<DrainSwitch>,
    ops: Arc<OpsState>,
    ops_server: JoinHandle<()>,
    ops_drain_switch: DrainSwitch,
    signals: Signals,
    reloader: Reloader,
    /// The socket for remote nodes, until its listener runs.
    home_socket: Option<Listener>,
    /// The same for the admin console.
    console_socket: Option<Listener>,
}

impl Serving {
    /// Listens, and starts the tasks that every node has.
    fn start(
        config: &Config,
        mut parts: NodeParts,
        service: PublicService,
        api: Arc<Api>,
        dependencies: Dependencies,
        log_control: Arc<LogControl>,
    ) -> Result<Self> {
        let (drain_switch, drain) = Drain::new();
        let readiness = Readiness::new(dependencies, Arc::clone(&api));
        parts.registry().register_collector(Box::new(ReadinessCollector(Arc::clone(&readiness))));
        parts.status.set_readiness(&readiness);
        let ops = Arc::new(OpsState {
            readiness: Arc::clone(&readiness),
            api,
            registry: parts.metrics_registry,
            log_control,
            hosts: config.ops.hosts.clone(),
        });
        let mut sockets = ListenSockets::open(&config.edge)?;
        let public_listeners = PublicListeners { edge: parts.edge, service, drain: drain.clone() };
        let listener_tasks = public_listeners.bind_all(&config.edge, &mut sockets, parts.cert_resolver.as_ref())?;
        let (ops_drain_switch, ops_drain) = Drain::new();
        let ops_server = tokio::spawn(serve_ops(config, &mut sockets, &ops, ops_drain)?);
        let home_socket = config.home.listen_address()?.map(|address| sockets.bind_tcp(address)).transpose()?;
        let console_socket = console_address(config)?.map(|address| sockets.bind_tcp(address)).transpose()?;
        sockets.ensure_all_claimed()?;
        tracing::info!(http = ?config.edge.http, https = ?config.edge.https, ops = %config.ops.listen, "serving");
        let mut tasks = JoinSet::new();
        let NodeParts { signals, reloader, geo_reload, certificate_reload, blocked_networks_reload, .. } = parts;
        spawn_geo_tasks(config, geo_reload, &reloader, &mut tasks, &drain)?;
        if let Some(cert_resolver) = parts.cert_resolver {
            tasks.spawn(certificate_reload.run(cert_resolver, reloader.subscribe(), drain.clone()));
        }
        if let Some(worker) = blocked_networks_reload {
            tasks.spawn(worker.run(reloader.subscribe(), drain.clone()));
        }
        let (sealer, key_file) = (parts.sealed_tokens.sealer, &config.public.sealing_key_file);
        tasks.spawn(SealingKeysWorker::new(sealer, key_file).run(drain.clone()));
        parts.acme.map(|acme| tasks.spawn(acme.run(drain.clone())));
        let (interval, timeout) = (millis(config.ops.probe_interval_ms), millis(config.ops.probe_timeout_ms));
        tasks.spawn(readiness.run(interval.max(PROBE_INTERVAL_MIN), timeout, drain.clone()));
        let drain_switch = Some(drain_switch);
        Ok(Self {
            listener_tasks,
            tasks,
            drain,
            drain_switch,
            ops,
            ops_server,
            ops_drain_switch,
            signals,
            reloader,
            home_socket,
            console_socket,
        })
    }

    /// Waits for the signal to stop, then for the requests in progress.
    async fn drain_after_signal(&mut self, config: &Config) {
        self.signals.wait_for_stop(&self.reloader).await;
        tracing::info!("draining");
        self.ops.readiness.set_stopping();
        sleep(millis(config.edge.drain_delay_ms)).await;
        drop(self.drain_switch.take());
        while self.listener_tasks.join_next().await.is_some() {}
    }

    async fn join_tasks(&mut self) -> Result<()> {
        while let Some(task_result) = self.tasks.join_next().await {
            task_result.map_err(|_| anyhow!("a background task panicked"))?;
        }
        Ok(())
    }

    /// Stops the ops listener, which is the last.
    async fn stop(self) -> Result<()> {
        self.ops_drain_switch.start();
        self.ops_server.await.map_err(|_| anyhow!("the ops listener panicked"))?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The ops listener drains separately, after the public listeners, so that it can report their progress.
fn serve_ops(
    config: &Config,
    sockets: &mut ListenSockets,
    ops: &Arc<OpsState>,
    drain: Drain,
) -> Result<impl Future<Output = ()> + use<>> {
    let connections_max = config.ops.connections_max;
    let limits = EdgeLimits { connections_max, connections_per_subnet_max: connections_max, ..edge_limits(config) };
    let edge = Arc::new(EdgeState::new(limits, Trust::none(), None));
    let socket = sockets.bind_tcp(config.ops.listen)?;
    Ok(ipseity_edge::serve(socket, Transport::Plaintext, edge, ops::ops_application(Arc::clone(ops)), drain))
}

fn open_api(config: &Config, backend: Backend, parts: &NodeParts, usage_buffer: &Arc<UsageBuffer>) -> Arc<Api> {
    let unknown_lookups_max = match &backend {
        Backend::Stores(_) => config.ledger.unknown_lookups_max,
        Backend::Home(_) => config.home.unknown_requests_max,
    };
    let limits = ApiLimits {
        key_fills_max: config.ledger.key_fills_max,
        unknown_lookups_max,
        unknown_cache_max: config.ledger.unknown_cache_keys_max,
        unknown_cache_ttl: Duration::from_secs(config.ledger.unknown_cache_ttl_s),
        refusal_cache_max: config.ledger.refusal_cache_keys_max,
        demo_daily_limit: config.ledger.demo_daily_limit,
        demo_requests_per_subnet_max: config.ledger.demo_requests_per_subnet_max,
        caller_counters_max: config.ledger.caller_counters_max,
        render_cache_max: config.geo.render_cache_entries_max,
        degraded: DegradedLimits {
            local_keys_max: config.ledger.local_cache_keys_max,
            max_age: Duration::from_secs(config.ledger.degraded_max_age_s),
            store_timeout: millis(config.ledger.timeout_ms),
        },
        key_status: MinuteLimits {
            requests_per_key_per_min_max: config.ledger.key_status_requests_per_key_per_min_max,
            requests_per_subnet_per_min_max: config.ledger.key_status_requests_per_subnet_per_min_max,
            entries_max: config.ledger.key_status_entries_max,
        },
    };
    let api = Api::new(
        backend,
        Arc::clone(&parts.atlas_reloader),
        public_urls(&config.public),
        Arc::clone(usage_buffer),
        parts.metrics.clone(),
        limits,
    );
    let SealedTokens { pairing, tickets, .. } = parts.sealed_tokens.clone();
    let api = api.with_https_required(config.public.requires_https()).with_test_keys(config.public.test_keys);
    let api = api.with_blocked_networks(parts.blocked_networks.clone());
    let api = api.with_openapi_document(&portal_setup::openapi_document(config));
    Arc::new(api.with_pairing(pairing).with_tickets(tickets))
}

fn build_public_service(config: &Config, api: &Arc<Api>, acme: Router, pages: Option<PageRouters>) -> PublicService {
    let mut router = ipseity_api::router(Arc::clone(api)).merge(acme);
    let mut not_found_pages = None;
    if let Some(PageRouters { routes, not_found }) = pages {
        router = router.merge(routes);
        not_found_pages = Some(not_found);
    }
    ipseity_api::public_service(
        router,
        not_found_pages,
        api,
        config.edge.uri_bytes_max,
        millis(config.edge.request_timeout_ms),
    )
}
