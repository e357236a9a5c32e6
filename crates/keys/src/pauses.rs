//! Pauses that only Redis has.

use ipseity_domain::{KeyId, KeyPause, causes};
use ipseity_store::StoreError;

use crate::error::KeyServiceError;
use crate::service::KeyService;

impl KeyService {
    /// Copies pauses that only Redis has to PostgreSQL. One that fails does not block the others.
    ///
    /// # Errors
    /// If PostgreSQL or Redis is unavailable.
    pub async fn record_pauses(&self, pauses: &[KeyPause]) -> Result<(), KeyServiceError> {
        for pause in pauses {
            match self.store.keys().record_pause(pause).await {
                Ok(()) => self.ledger.mark_pause_recorded(pause).await?,
                Err(error @ StoreError::Outage(_)) => return Err(error.into()),
                Err(error @ (StoreError::Refused(_) | StoreError::Fault(_) | StoreError::MigrationBlocked(_))) => {
                    tracing::error!(key = %pause.key, error = %causes(&error), "pause not recorded");
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn record_pauses_of(&self, id: KeyId) -> Result<(), KeyServiceError> {
        self.record_pauses(&self.ledger.unrecorded_pauses_of(id).await?).await
    }
}
