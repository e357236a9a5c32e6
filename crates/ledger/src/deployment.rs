//! Which deployment a Redis belongs to.

use ipseity_domain::is_mutant;
use redis::Cmd;
use tokio::time::Instant;

use crate::error::LedgerError;
use crate::layout::{self, HashSlot};
use crate::ledger::Ledger;

/// What identifies the data in a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerIdentity {
    /// The deployment that it belongs to. `None` if it is new or was emptied.
    pub deployment_id: Option<String>,
    /// The id of the data set. It changes when the server is restarted, promoted or replaced. That of a cluster stays when
    /// one of its servers is, and changes when the cluster is emptied or replaced by an empty one.
    pub data_set_id: String,
}

impl Ledger {
    /// Reads what identifies the data in this Redis.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time, or is a replica.
    pub async fn identity(&self) -> Result<LedgerIdentity, LedgerError> {
        let key = layout::deployment_key();
        let mut request = self.begin_untrusted_request(HashSlot::of(&key), Instant::now() + self.timeout).await?;
        // Old data may have been loaded into a running server.
        if !is_mutant("data-set-not-read-again") {
            self.refresh_identity(&mut request).await?;
        }
        let server = &request.connection.identity;
        if !server.is_primary && !server.is_cluster {
            // It was demoted, which does not close connections.
            request.connection.mark_dead();
            self.router.refresh_slot_map_in_background();
            return Err(LedgerError::Unreachable);
        }
        let marker: Option<String> = self.send_command_on(&mut request, &Cmd::get(&key)).await?;
        let server = &request.connection.identity;
        // Any other text was not written by a node of this deployment.
        let (deployment_id, first_data_set_id) =
            marker.as_deref().map(|marker| marker.split_once(':').unwrap_or((marker, ""))).unzip();
        let first_data_set_id = first_data_set_id.filter(|id| server.is_cluster && !id.is_empty());
        let data_set_id = first_data_set_id.unwrap_or(server.data_set.as_str());
        Ok(LedgerIdentity { deployment_id: deployment_id.map(str::to_owned), data_set_id: data_set_id.to_owned() })
    }

    /// Marks a Redis without a deployment id.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn assign_deployment(&self, deployment_id: &str, data_set_id: &str) -> Result<(), LedgerError> {
        let key = layout::deployment_key();
        let mut request = self.begin_untrusted_request(HashSlot::of(&key), Instant::now() + self.timeout).await?;
        self.send_command_on(&mut request, &Cmd::set_nx(&key, format!("{deployment_id}:{data_set_id}"))).await
    }
}
