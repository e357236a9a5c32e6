//! Writing and deleting key records.

use ipseity_domain::{DailyUsage, KeyChange, KeyId, KeyRecord};
use redis::Value;

use crate::columns::column;
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::request::RedisRequest;
use crate::scripts::{self, random_nonce};
use crate::verdict::Fence;

/// Result of `write_record.lua`: a change overtook the fill.
const FENCE_MISMATCH: i64 = 0;
/// Result of `write_record.lua`: the record has another incarnation.
const INCARNATION_MISMATCH: i64 = 2;

/// The largest number that fits into the column `daily_limit`. Numbers in Lua are exact up to there.
const DAILY_LIMIT_MAX: u64 = 10_u64.pow(column("daily_limit").width as u32) - 1;

impl Ledger {
    /// Writes a record that was read from PostgreSQL after a charge returned
    /// [`Verdict::Unknown`](crate::Verdict::Unknown). Returns `false` if the key has changed since that charge.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn fill(&self, key_record: &KeyRecord, fence: &Fence) -> Result<bool, LedgerError> {
        // A restored Redis may have the same fence again, and may have lost the change that replaced it.
        let expected_fence =
            |incarnation: &str| if incarnation == fence.incarnation { fence.nonce.clone() } else { Vec::new() };
        let mut request = self.begin_request(Bucket::of(key_record.id).slot()).await?;
        Ok(self.write_key_record(&mut request, key_record, "fill", expected_fence).await? != FENCE_MISMATCH)
    }

    /// Applies a change that is committed in PostgreSQL.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn apply_change(&self, change: &KeyChange) -> Result<(), LedgerError> {
        match change {
            KeyChange::Updated(key_record) => self.publish(key_record).await,
            KeyChange::Deleted(id) => self.delete_key_record(*id).await,
        }
    }

    /// Replaces the record of a changed key, if there is one.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn publish(&self, key_record: &KeyRecord) -> Result<(), LedgerError> {
        let mut request = self.begin_request(Bucket::of(key_record.id).slot()).await?;
        let new_fence = |_: &str| random_nonce().into_bytes();
        while self.write_key_record(&mut request, key_record, "publish", new_fence).await? == INCARNATION_MISMATCH {
            if !self.refresh_identity(&mut request).await? {
                self.write_key_record(&mut request, key_record, "invalidate", new_fence).await?;
                break;
            }
        }
        Ok(())
    }

    async fn write_key_record(
        &self,
        request: &mut RedisRequest,
        key_record: &KeyRecord,
        mode: &str,
        fence: impl Fn(&str) -> Vec<u8>,
    ) -> Result<i64, LedgerError> {
        let bucket = Bucket::of(key_record.id);
        let (previous_digest, until_s) = key_record
            .previous
            .as_ref()
            .map_or((&[][..], 0), |previous| (&previous.digest.as_bytes()[..], previous.expires_at_s));
        let (day, count) = key_record.usage.map_or((0, 0), |DailyUsage { day, count }| (day.0, count));
        let build_invocation = |incarnation: &str| {
            let mut invocation = scripts::WRITE_RECORD.prepare_invoke();
            invocation
                .key(bucket.record_key(key_record.id))
                .key(bucket.log_key(key_record.id))
                .key(bucket.fence_key())
                .key(bucket.pending_pauses_key());
            invocation
                .arg(mode)
                .arg(fence(incarnation))
                .arg(incarnation)
                .arg(key_record.generation)
                .arg(key_record.burst_epoch);
            invocation.arg(u8::from(key_record.flags.deactivated)).arg(u8::from(key_record.flags.paused));
            invocation
                .arg(key_record.scope.name())
                .arg(key_record.daily_limit.min(DAILY_LIMIT_MAX))
                .arg(key_record.digest.as_bytes().as_slice());
            invocation.arg(previous_digest).arg(until_s).arg(day).arg(count).arg(key_record.id.as_str());
            invocation
        };
        let Value::Int(outcome) = self.run_script(request, build_invocation).await? else {
            return Err(LedgerError::UnexpectedReply("type"));
        };
        Ok(outcome)
    }

    /// Deletes the record of a deleted key. A concurrent fill fails.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn delete_key_record(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let build_invocation = |_: &str| {
            let mut invocation = scripts::DELETE_RECORD.prepare_invoke();
            invocation.key(bucket.record_key(id)).key(bucket.log_key(id)).key(bucket.fence_key()).arg(random_nonce());
            invocation
        };
        self.run_script(&mut self.begin_request(bucket.slot()).await?, build_invocation).await?;
        Ok(())
    }

    /// Clears the previous day's count of a key. Call this when PostgreSQL has the count.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn clear_yesterday(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let build_invocation = |_: &str| {
            let mut invocation = scripts::CLEAR_YESTERDAY.prepare_invoke();
            invocation.key(bucket.record_key(id));
            invocation
        };
        self.run_script(&mut self.begin_request(bucket.slot()).await?, build_invocation).await?;
        Ok(())
    }
}
