//! Builds the house from configuration and runs it until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use api::{Api, ApiBounds, FallbackBounds, Front, Metrics, Tally};
use axum::Router;
use domain::Colo;
use edge::{Bounds, Drain, Edge, Transport, Trust, Wardrobe};
use geo::{Shelf, Sources};
use ledger::{Ledger, LedgerOptions};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use store::{Keep, Store, StoreOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::certificates::{self, CertificateWatch};
use crate::config::{Config, ms};
use crate::door::Door;
use crate::gauges::Gauges;
use crate::heal::{self, Healer};
use crate::keeper::{self, Keeper};
use crate::link::links;
use crate::ops::{self, Ops};
use crate::pages::{self, Pages};
use crate::proxies;
use crate::relay::{self, Relay};
use crate::renewal::{self, Renewal};
use crate::rollup::{self, Rollup};
use crate::sockets::Sockets;
use crate::telemetry::Levels;
use crate::update::Updater;
use crate::watch::Watch;

/// Patience of background work and commands, which no caller waits for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections of background work: the relay's listener, its claim, the roll-up and the readiness check.
const BACKGROUND_CONNECTIONS_MAX: u32 = 4;
/// More often than this would only keep a store that is away from coming back.
const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// A store for background work and commands, under its own application name.
pub(crate) fn background_store(config: &Config, application_name: &'static str) -> Result<Store> {
    let connections_max = BACKGROUND_CONNECTIONS_MAX;
    let url = config.store.url.clone();
    Store::new(&StoreOptions { url, application_name, connections_max, timeout: PATIENCE })
        .context("[store] url cannot be read")
}

/// Connections to PostgreSQL that a node opens at the most: for requests, background work, pages, and mails and notices.
pub(crate) fn node_connections_max(config: &Config) -> u32 {
    let portal = if config.portal.enabled { config.portal.connections_max + BACKGROUND_CONNECTIONS_MAX } else { 0 };
    config.store.connections_max + BACKGROUND_CONNECTIONS_MAX + portal
}

/// A ledger for background work and commands.
pub(crate) fn background_ledger(config: &Config) -> Result<Ledger> {
    Ledger::new(&LedgerOptions { url: config.ledger.url.clone(), timeout: PATIENCE })
        .context("[ledger] url cannot be read")
}

/// What can be built, and so checked, without reaching a store.
pub(crate) struct Ground {
    shelf: Arc<Shelf>,
    edge: Arc<Edge>,
    wardrobe: Option<Arc<Wardrobe>>,
}

impl Ground {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let settings = &config.edge;
        let trust = proxies::trust(settings)?;
        let colo = match settings.colo.as_str() {
            "" => None,
            code => Some(
                Colo::parse(code)
                    .with_context(|| format!("[edge] colo is {code:?}; use three capital letters, or none"))?,
            ),
        };
        ensure!(
            !(settings.http.is_empty() && settings.https.is_empty()),
            "[edge] http and https are both empty; name at least one address to listen on"
        );
        let wardrobe = match settings.https.is_empty() {
            true => None,
            false => Some(Arc::new(certificates::open(config)?)),
        };
        let shelf = Shelf::open(geo_sources(config), config.geo.allow_older)
            .context("[geo] names a file that cannot be used")?;
        Ok(Self { shelf: Arc::new(shelf), edge: Arc::new(Edge::new(bounds(config), trust, colo)), wardrobe })
    }

    /// Whether the portal can be built too.
    pub(crate) fn check_pages(&self, config: &Config) -> Result<()> {
        Pages::open(config, &self.shelf, &mut Registry::default())?;
        Ok(())
    }
}

/// The files that the atlas is made of.
pub(crate) fn geo_sources(config: &Config) -> Sources {
    Sources {
        files: config.geo.files.clone(),
        hosting_lists: config.geo.hosting_lists.clone(),
        proxy_lists: config.geo.proxy_lists.clone(),
    }
}

fn bounds(config: &Config) -> Bounds {
    let settings = &config.edge;
    let connections_max = seats(config);
    Bounds {
        connections_max,
        connections_per_network_max: settings.connections_per_network_max.min(connections_max / 4).max(1),
        accept_pause: ms(settings.accept_pause_ms),
        first_byte_timeout: ms(settings.first_byte_timeout_ms),
        proxy_header_bytes_max: settings.proxy_header_bytes_max,
        handshake_timeout: ms(settings.handshake_timeout_ms),
        header_timeout: ms(settings.header_timeout_ms),
        idle_timeout: ms(settings.idle_timeout_ms),
        write_timeout: ms(settings.write_timeout_ms),
        drain_timeout: ms(settings.drain_timeout_ms),
        header_bytes_max: settings.header_bytes_max,
        header_lines_max: settings.header_lines_max,
        streams_max: settings.streams_max,
        resets_max: settings.resets_max,
        unproven_max: settings.unproven_max,
        unasked_bytes_max: settings.unasked_bytes_max,
        flood_penalty: ms(settings.flood_penalty_ms),
    }
}

/// How many connections may be held, and fit below the system's limit of open files.
fn seats(config: &Config) -> usize {
    let room = edge::raise_file_limit().saturating_sub(config.edge.files_reserved).max(1);
    config.edge.connections_max.min(room)
}

/// Runs the service until SIGTERM or SIGINT.
pub(crate) async fn run(config: &Config, levels: Arc<Levels>) -> Result<()> {
    let Ground { shelf, edge, wardrobe } = Ground::open(config)?;
    if seats(config) < config.edge.connections_max {
        tracing::warn!(seats = seats(config), "the limit of open files is below [edge] connections_max; raise it");
    }
    let tally = Arc::new(Tally::new(config.ledger.rollup_keys_max));
    let mut registry = Registry::with_prefix("ipseity");
    let metrics = Metrics::register(&mut registry);
    registry.register_collector(Box::new(Gauges {
        edge: Arc::clone(&edge),
        shelf: Arc::clone(&shelf),
        wardrobe: wardrobe.clone(),
        connections_max: seats(config),
        files_max: edge::raise_file_limit(),
    }));
    registry.register("build", "The version that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));

    let watch = Watch::register(&mut registry, Arc::clone(&shelf), ms(config.geo.watch_interval_ms));
    let certificate_watch = CertificateWatch::register(&mut registry, ms(config.edge.certificate_watch_interval_ms));
    let renewal = Renewal::open(config, wardrobe.as_ref(), &mut registry)?;
    let pages = Pages::open(config, &shelf, &mut registry)?;
    let mut beside = renewal::router(renewal.as_ref());
    if let Some(pages) = &pages {
        beside = beside.merge(portal::router(Arc::clone(&pages.portal)));
    }
    let api = open_api(config, metrics, &shelf, &tally)?;
    let public = public_router(config, &api, beside);
    let (switch, drain) = Drain::new();
    let background = background_store(config, "ipseity-background")?;
    let ledger = Arc::new(background_ledger(config)?);
    let rollup = Rollup {
        store: background.clone(),
        ledger: Arc::clone(&ledger),
        tally,
        interval: ms(config.ledger.rollup_interval_ms),
        outcomes: rollup::register(&mut registry),
    };
    let relay_interval = ms(config.ledger.relay_interval_ms);
    let relay = Arc::new(Relay {
        store: background.clone(),
        ledger: Arc::clone(&ledger),
        interval: relay_interval,
        outcomes: relay::register(&mut registry),
    });
    let probe_interval = ms(config.ledger.probe_interval_ms).max(PROBE_INTERVAL_MIN);
    let healer = Healer { api: Arc::clone(&api), relay: Arc::clone(&relay), interval: probe_interval };
    let news = heal::follow(Arc::clone(&api), background.clone(), drain.clone());
    let keeper = keeper(config, background.clone(), &mut registry);
    let ops = Arc::new(Ops { store: background, ledger, api, registry, draining: AtomicBool::new(false), levels });

    let mut sockets = Sockets::open(&config.edge)?;
    let door = Door { edge, public, drain: drain.clone() };
    let mut listeners = door.open(&config.edge, &mut sockets, wardrobe.as_ref())?;
    // The private listener outlives the drain: it tells how the drain goes.
    let seats = config.ops.connections_max;
    let private_bounds = Bounds { connections_max: seats, connections_per_network_max: seats, ..bounds(config) };
    let private_edge = Arc::new(Edge::new(private_bounds, Trust::nobody(), None));
    let (private_switch, private_drain) = Drain::new();
    let private = tokio::spawn(edge::serve(
        sockets.listen(config.ops.listen)?,
        Transport::Clear,
        private_edge,
        ops::application(Arc::clone(&ops)),
        private_drain,
    ));
    sockets.all_claimed()?;
    tracing::info!(http = ?config.edge.http, https = ?config.edge.https, ops = %config.ops.listen, "serving");

    let mut chores = JoinSet::new();
    let until = drain.clone();
    chores.spawn(async move { relay.run(until).await });
    chores.spawn(news);
    chores.spawn(keeper.run(drain.clone()));
    tend_geo(config, watch, &mut chores, &drain)?;
    if let Some(pages) = pages {
        chores.spawn(pages::tend(pages.post, drain.clone()));
    }
    wardrobe.map(|wardrobe| chores.spawn(certificate_watch.run(wardrobe, drain.clone())));
    renewal.map(|renewal| chores.spawn(renewal.run(drain.clone())));
    let stopping = async {
        stop_signal().await?;
        tracing::info!("draining");
        ops.draining.store(true, Ordering::Release);
        sleep(ms(config.edge.drain_delay_ms)).await;
        switch.start();
        while listeners.join_next().await.is_some() {}
        Ok::<_, anyhow::Error>(())
    };
    let (stopped, (), ()) = tokio::join!(stopping, rollup.run(drain.clone()), healer.run(drain));
    stopped?;
    healer.finish().await;
    rollup.roll_up().await;
    while let Some(ended) = chores.join_next().await {
        ended.map_err(|_| anyhow!("background work panicked"))?;
    }
    private_switch.start();
    private.await.map_err(|_| anyhow!("the private listener panicked"))?;
    tracing::info!("stopped");
    Ok(())
}

/// Keeps no more of the past than the settings say.
fn keeper(config: &Config, store: Store, registry: &mut Registry) -> Keeper {
    let settings = &config.retention;
    Keeper {
        store,
        keep: Keep { usage_days: settings.usage_days.into(), history_days: settings.history_days.into() },
        session_idle_max: pages::session_idle_max(config),
        interval: Duration::from_secs(settings.interval_s),
        outcomes: keeper::register(registry),
    }
}

/// Keeps the geo data fresh, as far as the settings say so.
fn tend_geo(config: &Config, watch: Watch, chores: &mut JoinSet<()>, drain: &Drain) -> Result<()> {
    let settings = &config.geo;
    if settings.watch {
        chores.spawn(watch.run(drain.clone()));
    }
    if settings.update_interval_h > 0 {
        let interval = Duration::from_secs(settings.update_interval_h.saturating_mul(3600));
        chores.spawn(Updater::open(settings)?.run(settings.sources.clone(), interval, drain.clone()));
    }
    Ok(())
}

/// The API on its own connections to the stores.
fn open_api(config: &Config, metrics: Metrics, shelf: &Arc<Shelf>, tally: &Arc<Tally>) -> Result<Arc<Api>> {
    let ledger = LedgerOptions { url: config.ledger.url.clone(), timeout: ms(config.ledger.timeout_ms) };
    let store = StoreOptions {
        url: config.store.url.clone(),
        application_name: "ipseity-request",
        connections_max: config.store.connections_max,
        timeout: ms(config.store.timeout_ms),
    };
    let bounds = ApiBounds {
        lookups_max: config.ledger.lookups_max,
        unknown_max: config.ledger.unknown_max,
        refused_max: config.ledger.refused_max,
        told_max: config.geo.told_max,
        fallback: FallbackBounds {
            keys_max: config.ledger.recall_keys_max,
            recall_max: Duration::from_secs(config.ledger.recall_max_s),
            failures_max: config.ledger.failures_max,
            store_timeout: ledger.timeout,
        },
    };
    Ok(Arc::new(Api::new(
        Arc::new(Ledger::new(&ledger).context("[ledger] url cannot be read")?),
        Store::new(&store).context("[store] url cannot be read")?,
        Arc::clone(shelf),
        links(&config.public),
        Arc::clone(tally),
        metrics,
        bounds,
    )))
}

/// The API and what stands beside it, dressed alike.
fn public_router(config: &Config, api: &Arc<Api>, beside: Router) -> Front {
    let router = api::router(Arc::clone(api)).merge(beside);
    api::dress(router, api, config.edge.uri_bytes_max, ms(config.edge.request_timeout_ms))
}

async fn stop_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
