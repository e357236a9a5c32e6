//! Builds the portal from configuration, if this node serves it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use domain::Client;
use edge::Drain;
use geo::Shelf;
use ledger::{Ledger, LedgerOptions};
use portal::{Attribution, MailOptions, Portal, Post, Reflection, Settings, Surroundings};
use prometheus_client::registry::Registry;
use serde_json::Value;
use store::{Store, StoreOptions};

use crate::assemble::background_store;
use crate::config::{Config, Signup, ms};
use crate::link::links;

/// The portal's pages and its background work.
pub(crate) struct Pages {
    pub(crate) portal: Arc<Portal>,
    pub(crate) post: Post,
}

impl Pages {
    /// `None` when `[portal] enabled` is off.
    pub(crate) fn open(config: &Config, shelf: &Arc<Shelf>, registry: &mut Registry) -> Result<Option<Self>> {
        if !config.portal.enabled {
            return Ok(None);
        }
        let store = StoreOptions {
            url: config.store.url.clone(),
            application_name: "ipseity-portal",
            connections_max: config.portal.connections_max,
            timeout: ms(config.portal.timeout_ms),
        };
        let store = Store::new(&store).context("[store] url cannot be read")?;
        let ledger = LedgerOptions { url: config.ledger.url.clone(), timeout: ms(config.portal.timeout_ms) };
        let ledger = Arc::new(Ledger::new(&ledger).context("[ledger] url cannot be read")?);
        let house = House { shelf: Arc::clone(shelf), openapi: api::document(&links(&config.public)) };
        let portal = Arc::new(Portal::new(store, ledger, settings(config), Box::new(house)));
        let mail = mail(config);
        let post = Post::open(Arc::clone(&portal), background_store(config, "ipseity-post")?, mail.as_ref(), registry)?;
        Ok(Some(Self { portal, post }))
    }
}

/// What the pages show of the API and the data.
struct House {
    shelf: Arc<Shelf>,
    openapi: Value,
}

impl Surroundings for House {
    fn attributions(&self) -> Vec<Attribution> {
        attributions(&self.shelf)
    }

    fn reflect(&self, client: &Client) -> Option<Reflection> {
        let api::Reflection { json, accuracy_km, took } = api::reflect(&self.shelf, client)?;
        Some(Reflection { json, accuracy_km, took })
    }

    fn openapi(&self) -> &Value {
        &self.openapi
    }
}

/// Does the portal's background work until the drain starts, and then ends the streams of open pages.
pub(crate) async fn tend(post: Post, drain: Drain) {
    tokio::select! {
        () = post.run() => {}
        () = drain.started() => post.close(),
    }
}

fn mail(config: &Config) -> Option<MailOptions> {
    let mail = &config.mail;
    (!mail.smtp_url.is_empty()).then(|| MailOptions {
        smtp_url: mail.smtp_url.clone(),
        from: mail.from.clone(),
        timeout: ms(mail.timeout_ms),
    })
}

fn settings(config: &Config) -> Settings {
    let portal = &config.portal;
    Settings {
        base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        security_contact: config.public.security_contact.clone(),
        signup_open: portal.signup == Signup::Open,
        has_mail: !config.mail.smtp_url.is_empty(),
        session_idle_max: session_idle_max(config),
        hashes_max: portal.hashes_max,
        hashes_waiting_max: portal.hashes_waiting_max,
        tries_per_network_max: portal.tries_per_network_max,
        tries_per_account_max: portal.tries_per_account_max,
        tries_entries_max: portal.tries_entries_max,
        streams_max: portal.streams_max,
        form_bytes_max: portal.form_bytes_max,
        // Before the request's own time is over: a person gets a page, not the answer that programs get.
        page_timeout: ms(config.edge.request_timeout_ms) * 9 / 10,
    }
}

/// How long a session may go unused.
pub(crate) fn session_idle_max(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.portal.session_days) * 86_400)
}

/// What the pages say of the data in use: each maker once, then what is owed to those whose data is in the binary.
fn attributions(shelf: &Shelf) -> Vec<Attribution> {
    let atlas = shelf.current();
    let mut owed: Vec<geo::Attribution> = Vec::new();
    for attribution in atlas.editions().iter().filter_map(geo::Edition::attribution) {
        if !owed.contains(&attribution) {
            owed.push(attribution);
        }
    }
    let makers = owed.into_iter().map(|owed| (owed.text, Some(owed.url.to_owned())));
    let built_in = geo::NOTICES.into_iter().map(|notice| (notice, None));
    makers.chain(built_in).map(|(text, url)| Attribution { text: text.to_owned(), url }).collect()
}
