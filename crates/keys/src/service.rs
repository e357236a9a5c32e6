//! The service that changes keys.

use std::sync::Arc;

use ipseity_domain::{ApiKey, KeyChange, KeyId, Restrictions, causes, is_mutant};
use ipseity_ledger::{Ledger, Published};
use ipseity_store::{Actor, Store, StoreError};

use crate::error::KeyServiceError;
use crate::guard::DeploymentGuard;
use crate::metrics::KeyMetrics;

/// Changes keys in PostgreSQL and Redis.
pub struct KeyService {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) guard: Arc<DeploymentGuard>,
    pub(crate) metrics: KeyMetrics,
}

/// A change that PostgreSQL has.
#[must_use]
pub struct CommittedChange {
    /// The change.
    pub change: KeyChange,
    /// Why Redis may not have it yet. A node applies it from the outbox as soon as it can.
    pub publish_error: Option<KeyServiceError>,
}

impl KeyService {
    /// Creates a service. The ledger uses the guard's fingerprint.
    #[must_use]
    pub const fn new(store: Store, ledger: Arc<Ledger>, guard: Arc<DeploymentGuard>, metrics: KeyMetrics) -> Self {
        Self { store, ledger, guard, metrics }
    }

    /// The same service with another connection to PostgreSQL, such as that of a personal token.
    #[must_use]
    pub fn with_store(&self, store: Store) -> Self {
        Self::new(store, Arc::clone(&self.ledger), Arc::clone(&self.guard), self.metrics.clone())
    }

    /// Deactivates a key. No effect if it is already inactive.
    ///
    /// # Errors
    /// If the key does not exist or PostgreSQL is unavailable.
    pub async fn deactivate(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().deactivate(actor, id).await?).await)
    }

    /// Reactivates a key. A key that was paused before stays paused.
    ///
    /// # Errors
    /// If the key does not exist or PostgreSQL is unavailable.
    pub async fn reactivate(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().reactivate(actor, id).await?).await)
    }

    /// Resumes a paused key, also if only Redis has the pause.
    ///
    /// # Errors
    /// If the key does not exist, its owner resumes it again too early, or PostgreSQL is unavailable.
    pub async fn resume(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        let is_paused_in_redis = match self.find_pause(id).await {
            Ok(is_paused) => is_paused,
            Err(KeyServiceError::Store(error)) => return Err(error),
            Err(error @ (KeyServiceError::Ledger(_) | KeyServiceError::Mismatch(_))) => {
                tracing::warn!(key = %id, error = %causes(&error), "pause not read; resuming a recorded one");
                false
            }
        };
        Ok(self.publish(self.store.keys().resume(actor, id, is_paused_in_redis).await?).await)
    }

    /// Records pauses that only Redis has. Returns whether the key is paused in Redis.
    async fn find_pause(&self, id: KeyId) -> Result<bool, KeyServiceError> {
        self.ensure_trusted()?;
        if is_mutant("resume-ignores-redis") {
            return Ok(false);
        }
        self.record_pauses_of(id).await?;
        Ok(self.ledger.is_paused(id).await?)
    }

    /// Replaces the secret of a key. The previous secret stays valid for `overlap_s` seconds.
    ///
    /// # Errors
    /// If the key does not exist or PostgreSQL is unavailable.
    pub async fn rotate(&self, actor: Actor, new_key: &ApiKey, overlap_s: u32) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().rotate(actor, new_key, overlap_s).await?).await)
    }

    /// Revokes the previous secret of a rotated key.
    ///
    /// # Errors
    /// If the key does not exist or PostgreSQL is unavailable.
    pub async fn revoke_previous(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().revoke_previous(actor, id).await?).await)
    }

    /// Replaces the restrictions of a key. If a version is given, they must still have it.
    ///
    /// # Errors
    /// If the key does not exist, its restrictions were changed or are not enabled, or PostgreSQL is unavailable.
    pub async fn restrict(
        &self,
        actor: Actor,
        id: KeyId,
        restrictions: &Restrictions,
        expected_version: Option<u64>,
    ) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().restrict(actor, id, restrictions, expected_version).await?).await)
    }

    /// Invalidates all tickets of a key that exist now.
    ///
    /// # Errors
    /// If the key does not exist, restrictions are not enabled, or PostgreSQL is unavailable.
    pub async fn invalidate_tickets(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().invalidate_tickets(actor, id).await?).await)
    }

    /// Deletes a key and its history.
    ///
    /// # Errors
    /// If the key does not exist or PostgreSQL is unavailable.
    pub async fn delete(&self, actor: Actor, id: KeyId) -> Result<CommittedChange, StoreError> {
        Ok(self.publish(self.store.keys().delete(actor, id).await?).await)
    }

    /// Applies a committed change to Redis and removes it from the outbox.
    pub async fn publish(&self, change: KeyChange) -> CommittedChange {
        let data_set_id = self.guard.trusted_stores().data_set_id();
        if let Err(error) = self.apply(change.clone()).await {
            tracing::warn!(error = %causes(&error), "key change not yet applied");
            return CommittedChange { change, publish_error: Some(error) };
        }
        // A row that stays is applied again, which has no effect.
        if let Err(error) = self.store.outbox().ack(&change, data_set_id.as_deref()).await {
            tracing::warn!(error = %causes(&error), "applied key change not acknowledged");
        }
        CommittedChange { change, publish_error: None }
    }

    pub(crate) async fn apply(&self, mut change: KeyChange) -> Result<(), KeyServiceError> {
        self.ensure_trusted()?;
        while self.ledger.apply_change(&change).await? == Published::Superseded {
            let KeyChange::Updated(refused) = &change else { break };
            if is_mutant("superseded-change-not-repaired") {
                break;
            }
            let current = self.store.keys().find_change(refused.id).await?;
            if matches!(&current, KeyChange::Updated(record) if record.generation <= refused.generation) {
                // PostgreSQL has lost commits that Redis has.
                tracing::error!(key = %refused.id, generation = refused.generation, "newer key record in Redis invalidated");
                self.metrics.record_conflicts.inc();
                self.ledger.invalidate_key_record(refused.id).await?;
                break;
            }
            change = current;
        }
        Ok(())
    }

    fn ensure_trusted(&self) -> Result<(), KeyServiceError> {
        let status = self.deployment_status();
        if status.is_mismatch() { Err(KeyServiceError::Mismatch(status)) } else { Ok(()) }
    }
}
