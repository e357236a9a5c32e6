//! Builds the portal from the configuration.

use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::HeaderMap;
use ipseity_api::Pairing;
use ipseity_domain::Client;
use ipseity_edge::Drain;
use ipseity_geo::AtlasReloader;
use ipseity_keys::{DeploymentGuard, KeyMetrics, KeyService};
use ipseity_portal::{
    AlertOptions, DataAttribution, HostServices, LegalTexts, MailerOptions, ManageSettings, PageRouters, Portal,
    PortalSettings, PortalWorker, PublicPagesSettings, ServiceHealth, VisitorLookup,
};
use ipseity_store::SessionLimits;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;

use crate::config::public_urls::public_urls;
use crate::config::{Config, SignupMode, millis};
use crate::node::backends::{background_store, portal_backends};
use crate::node::scanner_keys::ScannerKeysSource;
use crate::node::sealed_tokens::SealedTokens;
use crate::node::sign_in_providers::member_providers;
use crate::node::status::NodeStatus;

/// What pages get from the rest of the node.
#[derive(Clone)]
pub(crate) struct PageSources {
    pub(crate) atlas_reloader: Arc<AtlasReloader>,
    pub(crate) tokens: SealedTokens,
    /// `[portal] banner`, which a reload can change.
    pub(crate) banner: watch::Receiver<String>,
    pub(crate) status: Arc<NodeStatus>,
}

impl PageSources {
    /// To validate the settings.
    pub(crate) fn without_banner(atlas_reloader: &Arc<AtlasReloader>, tokens: &SealedTokens) -> Self {
        let banner = watch::Sender::new(String::new()).subscribe();
        Self { atlas_reloader: Arc::clone(atlas_reloader), tokens: tokens.clone(), banner, status: Arc::default() }
    }
}

/// The portal's pages and its background worker.
pub(crate) struct PortalSetup {
    pub(crate) portal: Arc<Portal>,
    pub(crate) worker: PortalWorker,
}

impl PortalSetup {
    /// Validates the settings of the portal.
    pub(crate) fn check(config: &Config, sources: PageSources) -> Result<()> {
        let guard = Arc::new(DeploymentGuard::generate());
        Self::open(config, sources, &guard, &KeyMetrics::default(), &mut Registry::default())?;
        Ok(())
    }

    /// `None` if `[portal] enabled` is false.
    pub(crate) fn open(
        config: &Config,
        sources: PageSources,
        guard: &Arc<DeploymentGuard>,
        key_metrics: &KeyMetrics,
        registry: &mut Registry,
    ) -> Result<Option<Self>> {
        if !config.portal.enabled {
            return Ok(None);
        }
        let (store, ledger) = portal_backends(config, guard.trusted_stores())?;
        let key_service = KeyService::new(store.clone(), Arc::clone(&ledger), Arc::clone(guard), key_metrics.clone());
        let host_services = PortalHostServices::open(config, sources)?;
        let providers = member_providers(config)?;
        let portal = Arc::new(Portal::new(
            store,
            ledger,
            key_service,
            portal_settings(config)?,
            providers,
            Box::new(host_services),
        ));
        let mail_options = mail_options(config);
        let worker = PortalWorker::open(
            Arc::clone(&portal),
            background_store(config, "ipseity-portal-worker")?,
            mail_options.as_ref(),
            registry,
        )?;
        Ok(Some(Self { portal, worker }))
    }
}

/// The pages that a remote node serves.
pub(crate) fn public_pages(config: &Config, sources: PageSources) -> Result<PageRouters> {
    let settings = PublicPagesSettings {
        base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        portal_url: config.home.portal_url.trim_end_matches('/').to_owned(),
        require_https: config.public.requires_https(),
        contact: config.public.contact.clone(),
        security_contact: config.public.security_contact.clone(),
        legal_texts: read_legal_texts(config)?,
        demo_daily_limit: config.ledger.demo_daily_limit,
        signup_open: config.portal.signup == SignupMode::Open,
        self_lookups_per_subnet_per_min_max: config.portal.self_lookups_per_subnet_per_min_max,
        page_timeout: page_timeout(config),
    };
    let host_services = PortalHostServices::open(config, sources)?;
    Ok(ipseity_portal::public_pages_router(settings, Box::new(host_services)))
}

/// Shorter than the request timeout, so that a person gets an error page instead of the API's JSON error.
fn page_timeout(config: &Config) -> Duration {
    millis(config.edge.request_timeout_ms) * 9 / 10
}

/// What the pages get from the API and the geo databases.
struct PortalHostServices {
    atlas_reloader: Arc<AtlasReloader>,
    openapi: Value,
    scanner_keys: ScannerKeysSource,
    pairing: Option<Arc<Pairing>>,
    has_tickets: bool,
    banner: watch::Receiver<String>,
    status: Arc<NodeStatus>,
}

impl PortalHostServices {
    fn open(config: &Config, sources: PageSources) -> Result<Self> {
        let PageSources { atlas_reloader, tokens, banner, status } = sources;
        Ok(Self {
            has_tickets: tokens.tickets.is_some(),
            pairing: tokens.pairing,
            atlas_reloader,
            banner,
            status,
            openapi: openapi_document(config),
            scanner_keys: ScannerKeysSource::open(&config.portal.github_keys_url)?,
        })
    }
}

impl HostServices for PortalHostServices {
    fn banner(&self) -> String {
        self.banner.borrow().clone()
    }

    fn health(&self) -> ServiceHealth {
        self.status.health(&self.atlas_reloader.current())
    }

    fn data_attributions(&self) -> Vec<DataAttribution> {
        attributions(&self.atlas_reloader)
    }

    fn self_lookup(&self, client: &Client) -> Option<VisitorLookup> {
        let ipseity_api::SelfLookup { json, accuracy_km, elapsed } =
            ipseity_api::self_lookup(&self.atlas_reloader, client)?;
        Some(VisitorLookup { json, accuracy_km, elapsed })
    }

    fn has_tickets(&self) -> bool {
        self.has_tickets
    }

    fn pair_urls(&self) -> Option<&[String; 2]> {
        self.pairing.as_deref().map(Pairing::urls)
    }

    fn paired_self_lookup(&self, client: &Client, headers: &HeaderMap) -> Option<Vec<u8>> {
        ipseity_api::paired_self_lookup(self.pairing.as_deref()?, client, headers)
    }

    fn fetch_scanner_keys(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        Box::pin(self.scanner_keys.fetch())
    }

    fn openapi_document(&self) -> &Value {
        &self.openapi
    }
}

/// The OpenAPI document. It describes the management API if this node or home has a portal.
pub(crate) fn openapi_document(config: &Config) -> Value {
    let urls = public_urls(&config.public);
    let document = ipseity_api::openapi_document(&urls);
    if config.portal.enabled {
        ipseity_api::with_operations(document, &ipseity_portal::manage_openapi(&urls.base), &urls)
    } else {
        document
    }
}

/// Runs the portal's worker until the drain starts, then closes the event streams of open pages.
pub(crate) async fn run_portal_tasks(worker: PortalWorker, drain: Drain) {
    tokio::select! {
        () = worker.run() => {}
        () = drain.started() => worker.close_streams(),
    }
}

fn mail_options(config: &Config) -> Option<MailerOptions> {
    let mail = &config.mail;
    (!mail.smtp_url.is_empty()).then(|| MailerOptions {
        smtp_url: mail.smtp_url.clone(),
        from: mail.from.clone(),
        timeout: millis(mail.timeout_ms),
    })
}

fn alert_options(config: &Config) -> AlertOptions {
    let alerts = &config.alerts;
    AlertOptions {
        allowed_networks: alerts.allowed_networks.clone(),
        channels_per_account_max: alerts.channels_per_account_max,
        requests_max: alerts.requests_max,
        requests_per_channel_max: alerts.requests_per_channel_max,
        requests_per_account_max: alerts.requests_per_account_max,
        timeout: millis(alerts.timeout_ms),
    }
}

/// Reads the operator's terms of service and privacy policy.
fn read_legal_texts(config: &Config) -> Result<LegalTexts> {
    let read = |setting: &str, file: &Path| {
        if file.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("failed to read [portal] {setting} {path}"))?;
        ensure!(
            !text.trim().is_empty(),
            "[portal] {setting} {path} is empty. Write the text, or leave the setting empty."
        );
        Ok(Some(text))
    };
    let portal = &config.portal;
    Ok(LegalTexts {
        terms: read("terms_file", &portal.terms_file)?,
        privacy: read("privacy_file", &portal.privacy_file)?,
    })
}

fn portal_settings(config: &Config) -> Result<PortalSettings> {
    let portal = &config.portal;
    Ok(PortalSettings {
        base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        require_https: config.public.requires_https(),
        contact: config.public.contact.clone(),
        security_contact: config.public.security_contact.clone(),
        legal_texts: read_legal_texts(config)?,
        demo_daily_limit: config.ledger.demo_daily_limit,
        signup_open: portal.signup == SignupMode::Open,
        email_enabled: !config.mail.smtp_url.is_empty(),
        session_limits: session_limits(config),
        receives_github_reports: !portal.github_keys_url.is_empty(),
        requires_two_factor: portal.require_two_factor,
        second_factor_attempts_per_account_max: portal.second_factor_attempts_per_account_max,
        password_threads: portal.password_threads,
        owner_password_threads: portal.owner_password_threads,
        password_queue_max: portal.password_queue_max,
        self_lookups_per_subnet_per_min_max: portal.self_lookups_per_subnet_per_min_max,
        login_attempts_period: Duration::from_secs(portal.login_attempts_period_s),
        login_attempts_per_subnet_max: portal.login_attempts_per_subnet_max,
        login_attempts_per_account_max: portal.login_attempts_per_account_max,
        login_attempts_entries_max: portal.login_attempts_entries_max,
        unknown_lookups_per_subnet_max: portal.unknown_lookups_per_subnet_max,
        emails_per_address_per_hour_max: config.mail.emails_per_address_per_hour_max,
        emails_per_subnet_per_10_min_max: config.mail.emails_per_subnet_per_10_min_max,
        emails_per_node_per_hour_max: config.mail.emails_per_node_per_hour_max,
        account_changes_per_account_max: portal.account_changes_per_account_max,
        key_actions_per_account_max: portal.key_actions_per_account_max,
        alerts: alert_options(config),
        manage: ManageSettings {
            tokens_per_account_max: config.manage.tokens_per_account_max,
            requests_per_token_per_min_max: config.manage.requests_per_token_per_min_max,
            unknown_tokens_per_subnet_per_min_max: config.manage.unknown_tokens_per_subnet_per_min_max,
            postgres_connections_max: config.manage.postgres_connections_max,
        },
        event_streams_max: portal.event_streams_max,
        event_streams_per_account_max: portal.event_streams_per_account_max,
        form_bytes_max: portal.form_bytes_max,
        page_timeout: page_timeout(config),
    })
}

pub(crate) fn session_limits(config: &Config) -> SessionLimits {
    let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
    SessionLimits {
        idle_timeout: days(config.portal.session_idle_days),
        lifetime_max: days(config.portal.session_days_max),
        recent_period: Duration::from_secs(config.portal.recent_sign_in_s),
    }
}

/// Attributions of the databases in use, each provider once, followed by the notices for data built into the binary.
fn attributions(atlas_reloader: &AtlasReloader) -> Vec<DataAttribution> {
    let atlas = atlas_reloader.current();
    let mut found: Vec<ipseity_geo::DatabaseAttribution> = Vec::new();
    for attribution in atlas.editions().iter().filter_map(ipseity_geo::Edition::attribution) {
        if !found.contains(&attribution) {
            found.push(attribution);
        }
    }
    let databases = found.into_iter().map(|found| (found.text, Some(found.url.to_owned())));
    let built_in = ipseity_geo::BUILTIN_DATA_NOTICES.into_iter().map(|notice| (notice, None));
    databases.chain(built_in).map(|(text, url)| DataAttribution { text: text.to_owned(), url }).collect()
}
