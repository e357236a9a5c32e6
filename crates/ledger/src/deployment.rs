//! Which deployment a Redis belongs to.

use redis::Cmd;

use crate::error::LedgerError;
use crate::layout::{self, HashSlot};
use crate::ledger::Ledger;

impl Ledger {
    /// The id of the data set with the marker. It changes when that server is restarted or replaced, and not when it is
    /// emptied.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn data_set_id(&self) -> Result<String, LedgerError> {
        let request = self.begin_request(HashSlot::of(&layout::deployment_key())).await?;
        Ok(String::from_utf8_lossy(request.connection.identity.data_set.as_bytes()).into_owned())
    }

    /// Returns the marker in Redis, `<deployment id>:<ledger id>`, if there is one.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn read_deployment_marker(&self) -> Result<Option<String>, LedgerError> {
        let key = layout::deployment_key();
        self.send_command(HashSlot::of(&key), &Cmd::get(&key)).await
    }

    /// Writes a marker if there is none.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn create_deployment_marker(&self, marker: &str) -> Result<(), LedgerError> {
        let key = layout::deployment_key();
        self.send_command(HashSlot::of(&key), &Cmd::set_nx(&key, marker)).await
    }
}
