//! Connections to PostgreSQL and Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_api::Stores;
use ipseity_ledger::{ConnectGate, Ledger, LedgerOptions, TrustedStores};
use ipseity_store::{Store, StoreOptions};

use crate::config::{Config, millis};

/// Timeout of background tasks and commands, which no client waits for.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// Background connections to PostgreSQL: outbox, connect gate, usage flush and readiness check.
const BACKGROUND_CONNECTIONS_MAX: u32 = 4;

/// PostgreSQL for background tasks and commands.
pub(crate) fn background_store(config: &Config, application_name: &'static str) -> Result<Store> {
    open_store(config, application_name, BACKGROUND_CONNECTIONS_MAX, BACKGROUND_TIMEOUT)
}

/// Redis for background tasks and commands. All ledgers of a process trust the same.
pub(crate) fn background_ledger(config: &Config, trusted: &Arc<TrustedStores>) -> Result<Arc<Ledger>> {
    open_ledger(&ledger_options(config, BACKGROUND_TIMEOUT, trusted))
}

/// PostgreSQL and Redis for API requests.
pub(crate) fn request_backends(
    config: &Config,
    trusted: &Arc<TrustedStores>,
    connect_gate: ConnectGate,
) -> Result<Stores> {
    let store = &config.store;
    let options = LedgerOptions {
        connect_gate: Some(connect_gate),
        ..ledger_options(config, millis(config.ledger.timeout_ms), trusted)
    };
    Ok(Stores {
        store: open_store(config, "ipseity-request", store.connections_max, millis(store.timeout_ms))?,
        ledger: open_ledger(&options)?,
    })
}

/// PostgreSQL and Redis for pages.
pub(crate) fn portal_backends(config: &Config, trusted: &Arc<TrustedStores>) -> Result<(Store, Arc<Ledger>)> {
    let portal = &config.portal;
    let timeout = millis(portal.query_timeout_ms);
    Ok((
        open_store(config, "ipseity-portal", portal.postgres_connections_max, timeout)?,
        open_ledger(&ledger_options(config, timeout, trusted))?,
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

fn open_ledger(options: &LedgerOptions) -> Result<Arc<Ledger>> {
    Ok(Arc::new(Ledger::new(options).context("invalid [ledger] url")?))
}

fn ledger_options(config: &Config, timeout: Duration, trusted: &Arc<TrustedStores>) -> LedgerOptions {
    LedgerOptions {
        breaker_failures_max: config.ledger.breaker_failures_max,
        trusted: Arc::clone(trusted),
        clock_fall_max: millis(config.ledger.clock_fall_max_ms),
        ..LedgerOptions::new(&config.ledger.url, timeout)
    }
}
