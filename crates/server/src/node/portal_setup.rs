//! Builds the portal from configuration, if this node serves it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_domain::Client;
use ipseity_edge::Drain;
use ipseity_geo::AtlasReloader;
use ipseity_ledger::{Ledger, LedgerOptions};
use ipseity_portal::{
    DataAttribution, HostServices, MailerOptions, Portal, PortalSettings, PortalWorker, VisitorLookup,
};
use ipseity_store::{Store, StoreOptions};
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::config::public_urls::public_urls;
use crate::config::{Config, SignupMode, millis};
use crate::node::background_store;

/// The portal's pages and its background work.
pub(crate) struct PortalSetup {
    pub(crate) portal: Arc<Portal>,
    pub(crate) worker: PortalWorker,
}

impl PortalSetup {
    /// `None` when `[portal] enabled` is off.
    pub(crate) fn open(
        config: &Config,
        atlas_reloader: &Arc<AtlasReloader>,
        registry: &mut Registry,
    ) -> Result<Option<Self>> {
        if !config.portal.enabled {
            return Ok(None);
        }
        let store = StoreOptions {
            url: config.store.url.clone(),
            application_name: "ipseity-portal",
            connections_max: config.portal.postgres_connections_max,
            timeout: millis(config.portal.query_timeout_ms),
        };
        let store = Store::new(&store).context("[store] url cannot be read")?;
        let ledger = LedgerOptions { url: config.ledger.url.clone(), timeout: millis(config.portal.query_timeout_ms) };
        let ledger = Arc::new(Ledger::new(&ledger).context("[ledger] url cannot be read")?);
        let host_services = PortalHostServices {
            atlas_reloader: Arc::clone(atlas_reloader),
            openapi: ipseity_api::openapi_document(&public_urls(&config.public)),
        };
        let portal = Arc::new(Portal::new(store, ledger, portal_settings(config), Box::new(host_services)));
        let mail_options = mail_options(config);
        let worker = PortalWorker::open(
            Arc::clone(&portal),
            background_store(config, "ipseity-post")?,
            mail_options.as_ref(),
            registry,
        )?;
        Ok(Some(Self { portal, worker }))
    }
}

/// What the pages show of the API and the data.
struct PortalHostServices {
    atlas_reloader: Arc<AtlasReloader>,
    openapi: Value,
}

impl HostServices for PortalHostServices {
    fn data_attributions(&self) -> Vec<DataAttribution> {
        attributions(&self.atlas_reloader)
    }

    fn self_lookup(&self, client: &Client) -> Option<VisitorLookup> {
        let ipseity_api::SelfLookup { json, accuracy_km, elapsed: took } =
            ipseity_api::self_lookup(&self.atlas_reloader, client)?;
        Some(VisitorLookup { json, accuracy_km, elapsed: took })
    }

    fn openapi_document(&self) -> &Value {
        &self.openapi
    }
}

/// Does the portal's background work until the drain starts, and then ends the streams of open pages.
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

fn portal_settings(config: &Config) -> PortalSettings {
    let portal = &config.portal;
    PortalSettings {
        base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        security_contact: config.public.security_contact.clone(),
        signup_open: portal.signup == SignupMode::Open,
        email_enabled: !config.mail.smtp_url.is_empty(),
        session_idle_timeout: session_idle_timeout(config),
        password_threads: portal.password_threads,
        password_queue_max: portal.password_queue_max,
        login_attempts_per_subnet_max: portal.login_attempts_per_subnet_max,
        login_attempts_per_account_max: portal.login_attempts_per_account_max,
        login_attempts_entries_max: portal.login_attempts_entries_max,
        event_streams_max: portal.event_streams_max,
        form_bytes_max: portal.form_bytes_max,
        // Before the request's own time is over: a person gets a page, not the answer that programs get.
        page_timeout: millis(config.edge.request_timeout_ms) * 9 / 10,
    }
}

/// How long a session may go unused.
pub(crate) fn session_idle_timeout(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.portal.session_idle_days) * 86_400)
}

/// What the pages say of the data in use: each maker once, then what is owed to those whose data is in the binary.
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
