//! Which deployment a Redis belongs to.

use ipseity_domain::is_mutant;
use redis::Cmd;

use crate::error::LedgerError;
use crate::layout::{self, HashSlot};
use crate::ledger::Ledger;

/// What identifies the data in a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerIdentity {
    /// The deployment that it belongs to. `None` if it is new or was emptied.
    pub deployment_id: Option<String>,
    /// The id of the data set. It changes when the server is restarted, promoted or replaced. That of a cluster stays when one of its
    /// servers is, and changes when the cluster is emptied or replaced.
    pub data_set_id: String,
}

impl Ledger {
    /// Reads what identifies the data in this Redis.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn identity(&self) -> Result<LedgerIdentity, LedgerError> {
        let key = layout::deployment_key();
        let mut request = self.begin_request(HashSlot::of(&key)).await?;
        // Old data may have been loaded into a running server.
        if !is_mutant("data-set-not-read-again") {
            self.refresh_identity(&mut request).await?;
        }
        let marker: Option<String> = self.send_command_on(&mut request, &Cmd::get(&key)).await?;
        let server = &request.connection.identity;
        let (deployment_id, first_data_set_id) = marker.as_deref().and_then(|marker| marker.split_once(':')).unzip();
        let data_set_id = first_data_set_id.filter(|_| server.is_cluster).unwrap_or(server.data_set.as_str());
        Ok(LedgerIdentity { deployment_id: deployment_id.map(str::to_owned), data_set_id: data_set_id.to_owned() })
    }

    /// Marks a Redis without a deployment id.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn assign_deployment(&self, deployment_id: &str, data_set_id: &str) -> Result<(), LedgerError> {
        let key = layout::deployment_key();
        let marker = format!("{deployment_id}:{data_set_id}");
        self.send_command(HashSlot::of(&key), &Cmd::set_nx(&key, marker)).await
    }
}
