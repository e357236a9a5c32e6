//! Builds the admin console from the configuration, and serves it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::body::Body;
use http::Request;
use ipseity_domain::{Client, causes};
use ipseity_edge::{
    CertResolver, CertificateExpiry, Drain, EdgeLimits, EdgeState, Listener, RequestBody, Transport, Trust,
};
use ipseity_geo::{AtlasReloader, Edition};
use ipseity_keys::{DeploymentGuard, KeyMetrics, KeyService};
use ipseity_ledger::Ledger;
use ipseity_portal::{
    Console, ConsoleHost, ConsoleSettings, GeoEdition, HealthCheck, NodeCertificate, OperatorStores, SignInProvider,
};
use ipseity_store::OperatorSessionLimits;
use tower::ServiceExt;
use url::{Host, Url};

use crate::config::{Config, millis};
use crate::node::backends::{console_backends, console_store_of};
use crate::node::edge_limits::edge_limits;
use crate::node::readiness::Readiness;

/// After 31 days, retention deletes the row of a session.
const SESSION_HOURS_MAX: u64 = 744;

/// What the console gets from the rest of the node.
pub(crate) struct ConsoleSources {
    pub(crate) guard: Arc<DeploymentGuard>,
    pub(crate) key_metrics: KeyMetrics,
    pub(crate) atlas_reloader: Arc<AtlasReloader>,
    pub(crate) cert_resolver: Option<Arc<CertResolver>>,
    pub(crate) readiness: Arc<Readiness>,
}

/// Serves the console until the drain starts.
pub(crate) fn serve_console(
    config: &Config,
    socket: Listener,
    providers: Vec<SignInProvider>,
    sources: ConsoleSources,
    drain: Drain,
) -> Result<impl Future<Output = ()> + use<>> {
    let (store, ledger) = console_backends(config, sources.guard.trusted_stores())?;
    let host = NodeHost { config: config.clone(), ledger: Arc::clone(&ledger), sources };
    let console = Arc::new(Console::new(store, ledger, console_settings(config)?, providers, Box::new(host)));
    let connections_max = config.admin.connections_max;
    let limits = EdgeLimits { connections_max, connections_per_subnet_max: connections_max, ..edge_limits(config) };
    let edge = Arc::new(EdgeState::new(limits, Trust::none(), None));
    let router = ipseity_portal::console_router(Arc::clone(&console));
    let application = move |_client: Client, request: Request<RequestBody>| {
        let response = router.clone().oneshot(request.map(Body::new));
        async move { response.await.unwrap_or_else(|never| match never {}) }
    };
    let (listening, first_link) = (drain.clone(), ipseity_portal::offer_first_link(console));
    Ok(async move {
        let offer = async {
            tokio::select! {
                () = first_link => {}
                () = drain.started() => {}
            }
        };
        tokio::join!(ipseity_edge::serve(socket, Transport::Plaintext, edge, application, listening), offer);
    })
}

/// The address of the console. `None` if there is none: remote nodes have no stores.
pub(crate) fn console_address(config: &Config) -> Result<Option<SocketAddr>> {
    if config.home.is_remote_node() {
        return Ok(None);
    }
    config.admin.listen_address()
}

pub(crate) fn console_settings(config: &Config) -> Result<ConsoleSettings> {
    let admin = &config.admin;
    let default_url = || {
        let port = admin.listen_address().ok().flatten().map_or(0, |address| address.port());
        format!("http://localhost:{port}")
    };
    let url = if admin.url.is_empty() { default_url() } else { admin.url.clone() };
    let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.context("[admin] url must be a URL such as http://localhost:9470")?;
    ensure!(
        url.path() == "/" && url.query().is_none(),
        "[admin] url must not have a path. Give the console a host name."
    );
    ensure!(
        url.scheme() == "https" || is_local(&url),
        "[admin] url must start with https://, except for localhost: browsers use passkeys only in secure contexts"
    );
    ensure!(
        (1..=SESSION_HOURS_MAX).contains(&admin.session_hours_max) && admin.session_idle_min > 0,
        "[admin] session_hours_max must be from 1 to {SESSION_HOURS_MAX}, and session_idle_min at least 1"
    );
    Ok(ConsoleSettings {
        url,
        base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        email_enabled: !config.mail.smtp_url.is_empty(),
        has_tickets: !config.public.sealing_key_file.as_os_str().is_empty(),
        emails_per_address_per_hour_max: config.mail.emails_per_address_per_hour_max,
        session_limits: OperatorSessionLimits {
            idle_timeout: Duration::from_secs(admin.session_idle_min * 60),
            lifetime_max: Duration::from_secs(admin.session_hours_max * 3600),
        },
        sign_in_attempts_max: admin.sign_in_attempts_per_10_min_max,
        actions_per_operator_max: admin.actions_per_operator_per_10_min_max,
        form_bytes_max: config.portal.form_bytes_max,
        page_timeout: millis(config.edge.request_timeout_ms) * 9 / 10,
    })
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

struct NodeHost {
    config: Config,
    ledger: Arc<Ledger>,
    sources: ConsoleSources,
}

impl ConsoleHost for NodeHost {
    fn open_stores(&self, operator: &str) -> Option<OperatorStores> {
        let store = console_store_of(&self.config, operator.to_owned());
        let store =
            store.inspect_err(|error| tracing::error!(error = %causes(&**error), "connection of an operator failed"));
        let store = store.ok()?;
        let ConsoleSources { guard, key_metrics, .. } = &self.sources;
        let key_service =
            KeyService::new(store.clone(), Arc::clone(&self.ledger), Arc::clone(guard), key_metrics.clone());
        Some(OperatorStores { store, key_service })
    }

    fn health(&self) -> Vec<HealthCheck> {
        let label = |name| match name {
            "store" => "PostgreSQL",
            "ledger" => "Redis",
            other => other,
        };
        let checks = self.sources.readiness.checks().into_iter();
        checks.map(|(name, error)| HealthCheck { name: label(name), error }).collect()
    }

    fn geo_editions(&self) -> Vec<GeoEdition> {
        let edition = |edition: &Edition| GeoEdition {
            name: edition.database_type.clone(),
            built_s: i64::try_from(edition.build_epoch_s).unwrap_or(i64::MAX),
            attribution: edition.attribution().map(|attribution| attribution.text),
        };
        self.sources.atlas_reloader.current().editions().iter().map(edition).collect()
    }

    fn certificates(&self) -> Vec<NodeCertificate> {
        let expirations = self.sources.cert_resolver.iter().flat_map(|resolver| resolver.expirations());
        let certificate =
            |expiry: CertificateExpiry| NodeCertificate { name: expiry.name, expires_s: expiry.expires_at_s };
        expirations.map(certificate).collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let settings = self.config.redacted_settings().unwrap_or_default();
        settings.into_iter().map(|(setting, value)| (setting, value.to_string())).collect()
    }
}
