//! When this node uses Redis for charges: if it belongs to this deployment, and after the key changes before it are
//! applied. So no charge overtakes a revocation that was made while Redis was unreachable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Result, ensure};
use ipseity_api::Api;
use ipseity_domain::causes;
use ipseity_keys::KeyService;
use ipseity_ledger::{ConnectGate, Ledger};
use ipseity_store::Store;
use tokio::time::timeout;

const POSTGRES_CHECK_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct ChargeGate {
    store: Store,
    /// Not the handle that charges: its connections wait for this gate.
    ledger: Arc<Ledger>,
    key_service: Arc<KeyService>,
    api: OnceLock<Weak<Api>>,
    is_trusted: AtomicBool,
}

impl ChargeGate {
    pub(crate) fn new(store: Store, ledger: Arc<Ledger>, key_service: Arc<KeyService>) -> Arc<Self> {
        Arc::new(Self { store, ledger, key_service, api: OnceLock::new(), is_trusted: AtomicBool::new(true) })
    }

    /// Sets the API that charges.
    pub(crate) fn set_api(&self, api: &Arc<Api>) {
        let _ = self.api.set(Arc::downgrade(api));
    }

    pub(crate) fn as_connect_gate(self: &Arc<Self>) -> ConnectGate {
        let gate = Arc::clone(self);
        Arc::new(move |server| {
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                gate.pass(&server).await.unwrap_or_else(|error| {
                    tracing::warn!(error = %causes(&*error), "Redis not used yet");
                    false
                })
            })
        })
    }

    /// Whether Redis belongs to this deployment, as far as this node knows.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }

    /// Checks whether Redis belongs to this deployment. A Redis that was not trusted is used again after all key
    /// changes are applied to it.
    ///
    /// # Errors
    /// If it does not belong to this deployment, or cannot be checked.
    pub(crate) async fn check_deployment(&self) -> Result<()> {
        let status = self.key_service.check_deployment().await?;
        if status.is_mismatch() {
            self.set_trusted(false);
        }
        ensure!(!status.is_mismatch(), "{status}");
        if !self.is_trusted() {
            let run = self.key_service.apply_outbox().await?;
            ensure!(run.delayed.is_empty(), "{} key changes are not applied to Redis yet", run.delayed.len());
            self.set_trusted(true);
        }
        Ok(())
    }

    /// Checks whether Redis belongs to this deployment. If it cannot be checked, for example because the server with the
    /// marker is down, it is still trusted if it was before.
    ///
    /// # Errors
    /// If it is not trusted.
    pub(crate) async fn ensure_trusted(&self) -> Result<()> {
        match self.check_deployment().await {
            Err(error) if self.is_trusted() => {
                tracing::debug!(error = %causes(&*error), "deployment not checked");
                Ok(())
            }
            result => result,
        }
    }

    fn set_trusted(&self, is_trusted: bool) {
        self.is_trusted.store(is_trusted, Ordering::Release);
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            api.admission().set_ledger_trusted(is_trusted);
        }
    }

    /// Applies the changes. Returns whether all of this server's keys are applied.
    async fn pass(&self, server: &str) -> Result<bool> {
        if matches!(timeout(POSTGRES_CHECK_TIMEOUT, self.store.check()).await, Ok(Ok(()))) {
            self.ensure_trusted().await?;
            let run = self.key_service.apply_outbox().await?;
            return Ok(!run.delayed.into_iter().any(|key| self.ledger.owner_of(key).address() == server));
        }
        ensure!(self.is_trusted(), "{}", self.key_service.deployment_status());
        self.key_service.allow_any_data_set();
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            api.admission().publish_refused_keys(&self.ledger).await?;
        }
        Ok(true)
    }
}
