//! Key records in Redis: fill, publish and delete.

use ipseity_domain::{DailyUsage, KeyChange, KeyId, KeyRecord};
use redis::Value;

use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::request::RedisRequest;
use crate::scripts::{self, random_nonce};
use crate::verdict::Fence;

/// write.lua: a change has overtaken the fill.
const FENCE_MISMATCH: i64 = 0;
/// write.lua: the record bears another stamp than the publish.
const INCARNATION_MISMATCH: i64 = 2;

/// The greatest number that a column of record.lua holds, and its arithmetic is exact for.
const COUNT_MAX: u64 = 999_999_999_999;

impl Ledger {
    /// Writes a standing that was read after a charge did not know the key; `false` when a change has overtaken the reading.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn fill(&self, key_record: &KeyRecord, fence: &Fence) -> Result<bool, LedgerError> {
        // A store that was restored since may have brought the same fence back, and lost the change that replaced it.
        let expected_fence =
            |incarnation: &str| if incarnation == fence.incarnation { fence.nonce.clone() } else { Vec::new() };
        let mut request = self.begin_request(Bucket::of(key_record.id).slot()).await?;
        Ok(self.write_key_record(&mut request, key_record, "fill", expected_fence).await? != FENCE_MISMATCH)
    }

    /// Brings a committed change here.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn apply_change(&self, change: &KeyChange) -> Result<(), LedgerError> {
        match change {
            KeyChange::Updated(key_record) => self.publish(key_record).await,
            KeyChange::Deleted(id) => self.delete_key_record(*id).await,
        }
    }

    /// Writes a changed standing over the record, if there is one.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn publish(&self, key_record: &KeyRecord) -> Result<(), LedgerError> {
        let mut request = self.begin_request(Bucket::of(key_record.id).slot()).await?;
        let new_fence = |_: &str| random_nonce().into_bytes();
        while self.write_key_record(&mut request, key_record, "publish", new_fence).await? == INCARNATION_MISMATCH {
            if !self.refresh_identity(&mut request).await? {
                self.write_key_record(&mut request, key_record, "disown", new_fence).await?;
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
                .arg(key_record.daily_limit.min(COUNT_MAX))
                .arg(key_record.digest.as_bytes().as_slice());
            invocation.arg(previous_digest).arg(until_s).arg(day).arg(count).arg(key_record.id.as_str());
            invocation
        };
        let Value::Int(outcome) = self.run_script(request, build_invocation).await? else {
            return Err(LedgerError::UnexpectedReply("reply"));
        };
        Ok(outcome)
    }

    /// Forgets a deleted key; a fill that is under way finds another fence.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
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

    /// Forgets yesterday's count of a key: it has been rolled up.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
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
