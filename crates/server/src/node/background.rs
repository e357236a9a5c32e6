//! What the background tasks of a home node share, and those that keep Redis and PostgreSQL consistent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ipseity_api::{Api, UsageBuffer};
use ipseity_keys::{DeploymentGuard, KeyMetrics, KeyService};
use ipseity_ledger::Ledger;
use ipseity_store::Store;
use prometheus_client::registry::Registry;

use crate::config::{Config, millis};
use crate::node::backends::{background_ledger, background_store};
use crate::tasks::charge_gate::ChargeGate;
use crate::tasks::outbox::OutboxWorker;
use crate::tasks::recovery::RecoveryWorker;
use crate::tasks::usage_flush::UsageFlushWorker;

/// Probing more often would hinder the recovery of Redis.
pub(super) const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What background tasks use.
pub(super) struct Background {
    pub(super) store: Store,
    pub(super) ledger: Arc<Ledger>,
    pub(super) key_service: Arc<KeyService>,
    pub(super) charge_gate: Arc<ChargeGate>,
}

impl Background {
    pub(super) fn open(config: &Config, guard: &Arc<DeploymentGuard>, key_metrics: KeyMetrics) -> Result<Self> {
        let store = background_store(config, "ipseity-background")?;
        let ledger = background_ledger(config, guard.trusted_stores())?;
        let key_service = KeyService::new(store.clone(), Arc::clone(&ledger), Arc::clone(guard), key_metrics);
        let key_service = Arc::new(key_service);
        let charge_gate = ChargeGate::new(store.clone(), Arc::clone(&ledger), Arc::clone(&key_service));
        Ok(Self { store, ledger, key_service, charge_gate })
    }
}

/// The workers that keep Redis and PostgreSQL consistent.
pub(super) struct LedgerWorkers {
    pub(super) usage_flush: Arc<UsageFlushWorker>,
    pub(super) outbox: OutboxWorker,
    pub(super) recovery: RecoveryWorker,
}

impl LedgerWorkers {
    pub(super) fn register(
        config: &Config,
        registry: &mut Registry,
        background: &Background,
        api: &Arc<Api>,
        usage_buffer: Arc<UsageBuffer>,
    ) -> Self {
        let Background { store, ledger, key_service, charge_gate } = background;
        let usage_flush = UsageFlushWorker::register(
            registry,
            store.clone(),
            Arc::clone(ledger),
            Arc::clone(key_service),
            usage_buffer,
            millis(config.ledger.usage_flush_interval_ms),
        );
        let outbox = OutboxWorker::register(
            registry,
            store.clone(),
            Arc::clone(key_service),
            Arc::clone(charge_gate),
            millis(config.ledger.outbox_poll_interval_ms),
        );
        let interval = probe_interval(config);
        let recovery = RecoveryWorker { api: Arc::clone(api), charge_gate: Some(Arc::clone(charge_gate)), interval };
        Self { usage_flush, outbox, recovery }
    }
}

pub(super) fn probe_interval(config: &Config) -> Duration {
    millis(config.ledger.probe_interval_ms).max(PROBE_INTERVAL_MIN)
}
