//! Charging the request of a key.

use ipseity_domain::ApiKey;

use crate::charge_id::ChargeId;
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::redis::batch::Charge;
use crate::verdict::Verdict;

impl Ledger {
    /// Authenticates a key and charges its request, in one round trip.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time. If [`LedgerError::may_have_been_applied`] is `true`, you can
    /// [`reconcile`](Self::reconcile) the charge later with the same id.
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
