//! Connections to PostgreSQL and Redis.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipseity_api::Stores;
use ipseity_ledger::{ConnectGate, Ledger, LedgerOptions, RedisTls, TrustedStores};
use ipseity_store::{Store, StoreOptions};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Config, LedgerConfig, millis};

/// Timeout of background tasks and commands, which no client waits for.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// Background connections to PostgreSQL: outbox, connect gate, usage flush and readiness check.
const BACKGROUND_CONNECTIONS_MAX: u32 = 4;
/// Connections that wait for notifications of the outbox and of changes of keys.
const LISTEN_CONNECTIONS: u32 = 2;
/// Those of pages: changes of accounts, emails and alerts.
const PORTAL_LISTEN_CONNECTIONS: u32 = 3;

/// PostgreSQL for background tasks and commands.
pub(crate) fn background_store(config: &Config, application_name: &'static str) -> Result<Store> {
    open_store(config, application_name, BACKGROUND_CONNECTIONS_MAX, BACKGROUND_TIMEOUT)
}

/// PostgreSQL for commands that change something. The audit log records the operator.
pub(crate) fn operator_store(config: &Config, operator: String) -> Result<Store> {
    let options = store_options(config, "ipseity-cli", BACKGROUND_CONNECTIONS_MAX, BACKGROUND_TIMEOUT);
    Store::new(&StoreOptions { operator: Some(operator), ..options }).context("invalid [store] url")
}

/// Redis for background tasks and commands. All ledgers of a process trust the same.
pub(crate) fn background_ledger(config: &Config, trusted: &Arc<TrustedStores>) -> Result<Arc<Ledger>> {
    open_ledger(&ledger_options(config, BACKGROUND_TIMEOUT, trusted)?)
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
        ..ledger_options(config, millis(config.ledger.timeout_ms), trusted)?
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
        open_ledger(&ledger_options(config, timeout, trusted)?)?,
    ))
}

/// PostgreSQL and Redis for the admin console.
pub(crate) fn console_backends(config: &Config, trusted: &Arc<TrustedStores>) -> Result<(Store, Arc<Ledger>)> {
    let timeout = millis(config.admin.query_timeout_ms);
    Ok((
        open_store(config, "ipseity-console", config.admin.postgres_connections_max, timeout)?,
        open_ledger(&ledger_options(config, timeout, trusted)?)?,
    ))
}

/// PostgreSQL for a change of an operator on the admin console. The audit log records the operator.
pub(crate) fn console_store_of(config: &Config, operator: String) -> Result<Store> {
    let options = store_options(config, "ipseity-console", 1, millis(config.admin.query_timeout_ms));
    Store::new(&StoreOptions { operator: Some(operator), ..options }).context("invalid [store] url")
}

/// Maximum number of PostgreSQL connections of a node: requests, background tasks, pages, changes with personal tokens, the
/// portal's worker, notifications for each of the two, and the admin console.
pub(crate) fn postgres_connections_per_node(config: &Config) -> u32 {
    let background = BACKGROUND_CONNECTIONS_MAX + LISTEN_CONNECTIONS;
    let portal = &config.portal;
    let pages = portal.postgres_connections_max + config.manage.postgres_connections_max;
    let portal_worker = BACKGROUND_CONNECTIONS_MAX + PORTAL_LISTEN_CONNECTIONS;
    let portal = if portal.enabled { pages + portal_worker } else { 0 };
    let console = if config.admin.listen.is_empty() { 0 } else { config.admin.postgres_connections_max };
    config.store.connections_max + background + portal + console
}

fn open_store(
    config: &Config,
    application_name: &'static str,
    connections_max: u32,
    timeout: Duration,
) -> Result<Store> {
    Store::new(&store_options(config, application_name, connections_max, timeout)).context("invalid [store] url")
}

fn store_options(
    config: &Config,
    application_name: &'static str,
    connections_max: u32,
    timeout: Duration,
) -> StoreOptions {
    StoreOptions {
        url: config.store.url.clone(),
        application_name,
        operator: None,
        token: None,
        connections_max,
        timeout,
    }
}

fn open_ledger(options: &LedgerOptions) -> Result<Arc<Ledger>> {
    Ok(Arc::new(Ledger::new(options).context("invalid [ledger] url")?))
}

fn ledger_options(config: &Config, timeout: Duration, trusted: &Arc<TrustedStores>) -> Result<LedgerOptions> {
    Ok(LedgerOptions {
        tls: redis_tls(&config.ledger)?,
        breaker_failures_max: config.ledger.breaker_failures_max,
        trusted: Arc::clone(trusted),
        clock_fall_max: millis(config.ledger.clock_fall_max_ms),
        ..LedgerOptions::new(&config.ledger.url, timeout)
    })
}

/// Reads the certificates for Redis, and checks them: the Redis library ignores a file without a certificate.
fn redis_tls(settings: &LedgerConfig) -> Result<RedisTls> {
    // The library accepts `#insecure`, but cannot connect with it.
    ensure!(!settings.url.contains('#'), "invalid [ledger] url: it has a fragment. Write # as %23.");
    let read = |name: &str, file: &Path| match file.as_os_str().is_empty() {
        true => Ok(None),
        false => fs::read(file).map(Some).with_context(|| format!("failed to read [ledger] {name} {}", file.display())),
    };
    let certificate = read("certificate_file", &settings.certificate_file)?;
    let private_key = read("private_key_file", &settings.private_key_file)?;
    ensure!(
        certificate.is_some() == private_key.is_some(),
        "[ledger] certificate_file and private_key_file must both be set, or neither"
    );
    let ca = read("ca_file", &settings.ca_file)?;
    for (name, file, pem) in
        [("ca_file", &settings.ca_file, &ca), ("certificate_file", &settings.certificate_file, &certificate)]
    {
        let is_valid = pem.as_ref().is_none_or(|pem| has_certificates(pem));
        ensure!(is_valid, "[ledger] {name} {} has no valid PEM certificate", file.display());
    }
    let has_key = private_key.as_ref().is_none_or(|pem| PrivateKeyDer::from_pem_slice(pem).is_ok());
    let key_file = settings.private_key_file.display();
    ensure!(has_key, "[ledger] private_key_file {key_file} has no valid PEM private key");
    let tls = RedisTls { ca, client: certificate.zip(private_key) };
    let is_used = settings.url.starts_with("rediss+sentinel://")
        || settings.url.split(',').all(|url| url.trim().starts_with("rediss://"));
    ensure!(
        is_used || (tls.ca.is_none() && tls.client.is_none()),
        "[ledger] ca_file, certificate_file and private_key_file need URLs that start with rediss:// or rediss+sentinel://"
    );
    Ok(tls)
}

/// Whether there is a certificate, and no invalid one.
fn has_certificates(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .is_ok_and(|certificates| !certificates.is_empty())
}
