//! Connections to PostgreSQL and Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_ledger::{Ledger, LedgerOptions};
use ipseity_store::{Store, StoreOptions};

use crate::config::{Config, millis};

/// Timeout of background tasks and commands, which no client waits for.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// Background connections to PostgreSQL: outbox listener, outbox claim, usage flush and readiness check.
const BACKGROUND_CONNECTIONS_MAX: u32 = 4;

/// PostgreSQL for background tasks and commands.
pub(crate) fn background_store(config: &Config, application_name: &'static str) -> Result<Store> {
    open_store(config, application_name, BACKGROUND_CONNECTIONS_MAX, BACKGROUND_TIMEOUT)
}

/// Redis for background tasks and commands.
pub(crate) fn background_ledger(config: &Config) -> Result<Ledger> {
    open_ledger(config, BACKGROUND_TIMEOUT)
}

/// PostgreSQL and Redis for API requests.
pub(crate) fn request_backends(config: &Config) -> Result<(Store, Arc<Ledger>)> {
    let store = &config.store;
    Ok((
        open_store(config, "ipseity-request", store.connections_max, millis(store.timeout_ms))?,
        Arc::new(open_ledger(config, millis(config.ledger.timeout_ms))?),
    ))
}

/// PostgreSQL and Redis for pages.
pub(crate) fn portal_backends(config: &Config) -> Result<(Store, Arc<Ledger>)> {
    let portal = &config.portal;
    let timeout = millis(portal.query_timeout_ms);
    Ok((
        open_store(config, "ipseity-portal", portal.postgres_connections_max, timeout)?,
        Arc::new(open_ledger(config, timeout)?),
    ))
}

/// Maximum number of PostgreSQL connections of a node: requests, background tasks, pages, and the portal's worker.
pub(crate) fn postgres_connections_per_node(config: &Config) -> u32 {
    let portal_connections =
        if config.portal.enabled { config.portal.postgres_connections_max + BACKGROUND_CONNECTIONS_MAX } else { 0 };
    config.store.connections_max + BACKGROUND_CONNECTIONS_MAX + portal_connections
}

fn open_store(
    config: &Config,
    application_name: &'static str,
    connections_max: u32,
    timeout: Duration,
) -> Result<Store> {
    Store::new(&StoreOptions { url: config.store.url.clone(), application_name, connections_max, timeout })
        .context("invalid [store] url")
}

fn open_ledger(config: &Config, timeout: Duration) -> Result<Ledger> {
    Ledger::new(&LedgerOptions { url: config.ledger.url.clone(), timeout }).context("invalid [ledger] url")
}
