//! Charging a request of a key.

use ipseity_domain::ApiKey;

use crate::charge_id::ChargeId;
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::redis::batch::Charge;
use crate::verdict::Verdict;

impl Ledger {
    /// Authenticates a key and charges its request under a name: one script, one round trip.
    ///
    /// # Errors
    /// When the counter store does not answer in time. The charge may have been applied if the error says so, and can be settled later
    /// under the same name.
    pub async fn charge(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Verdict, LedgerError> {
        let mut request = self.begin_request(Bucket::of(key.id).slot()).await?;
        loop {
            let reply = self.send_charge(&mut request, Charge { key: *key, id: charge_id }).await?;
            let (verdict, incarnation_mismatch) =
                Verdict::parse(key.id, &request.connection.identity.incarnation, &reply)?;
            if !incarnation_mismatch || !Box::pin(self.refresh_identity(&mut request)).await? {
                return Ok(verdict);
            }
        }
    }
}
