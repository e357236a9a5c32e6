//! Charging the request of a key.

use std::time::Instant;

use ipseity_domain::ApiKey;

use crate::applied_restrictions::AppliedRestrictions;
use crate::arrival::Arrival;
use crate::charge_id::ChargeId;
use crate::error::{ChargeError, LedgerError};
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::request::RedisRequest;
use crate::verdict::{CODE_EXPIRED, ScriptReply, Verdict};

impl Ledger {
    /// Authenticates a key and charges its request, in one round trip.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time. If the error has a [`SentCharge`](crate::SentCharge), you can
    /// [`reconcile`](Self::reconcile) it later with the same id.
    pub async fn charge(
        &self,
        key: &ApiKey,
        charge_id: ChargeId,
        arrival: Arrival,
        applied: AppliedRestrictions,
    ) -> Result<Verdict, ChargeError> {
        let mut request = self.begin_request(Bucket::of(key.id).slot()).await?;
        loop {
            let outcome = self.charge_once(&mut request, key, charge_id, arrival, applied).await;
            match outcome.map_err(|error| request.charge_error(error))? {
                Some(verdict) => return Ok(verdict),
                None => request.ensure_time_left(&LedgerError::Expired)?,
            }
        }
    }

    /// Returns `None` if the charge was not applied and can be sent again.
    async fn charge_once(
        &self,
        request: &mut RedisRequest,
        key: &ApiKey,
        charge_id: ChargeId,
        arrival: Arrival,
        applied: AppliedRestrictions,
    ) -> Result<Option<Verdict>, LedgerError> {
        let sent = Instant::now();
        let reply = self.send_charge(request, key, charge_id, arrival, applied).await?;
        let reply = ScriptReply(&reply);
        let code = reply.code()?;
        if code != b'0' {
            request.node.sync_clock(reply.clock()?, sent, Instant::now());
        }
        if code == CODE_EXPIRED {
            return Ok(None);
        }
        if reply.is_incarnation_mismatch() && Box::pin(self.refresh_identity(request)).await? {
            return Ok(None);
        }
        let verdict = Verdict::parse(request.connection.incarnation(), reply);
        if verdict.is_err() {
            // The record is damaged in a column that the script does not read. The next charge fills it again.
            Box::pin(self.invalidate_key_record(key.id)).await?;
        }
        verdict.map(Some)
    }
}
