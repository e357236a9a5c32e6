//! Charging, filling and publishing.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{ApiKey, DailyUsage, KeyChange, KeyId, KeyRecord};
use redis::{Script, Value};

use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::reconcile::ChargeId;
use crate::redis::batch::Charge;
use crate::redis::router::RedisRouter;
use crate::request::RedisRequest;
use crate::scripts;
use crate::verdict::{Fence, Verdict};

/// write.lua: a change has overtaken the fill.
const FENCE_MISMATCH: i64 = 0;
/// write.lua: the record bears another stamp than the publish.
const INCARNATION_MISMATCH: i64 = 2;

/// The greatest number that a column of record.lua holds, and its arithmetic is exact for.
const COUNT_MAX: u64 = 999_999_999_999;

/// How to reach the counter store.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// `redis://…`, or several with commas between: of a cluster any of its servers, else a primary and those that may be promoted in its place.
    pub url: String,
    /// Time for a call, connecting included.
    pub timeout: Duration,
}

/// A handle on the counter store.
pub struct Ledger {
    pub(crate) router: Arc<RedisRouter>,
    pub(crate) timeout: Duration,
    write_script: Script,
    pub(crate) reconcile_script: Script,
    delete_script: Script,
    clear_yesterday_script: Script,
    pub(crate) charge_demo_script: Script,
    pub(crate) reconcile_demo_script: Script,
}

impl Ledger {
    /// Makes a handle that connects when it is first used: a service must be able to start while its counter store is away.
    ///
    /// # Errors
    /// When an address cannot be read.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self {
            router: Arc::new(RedisRouter::new(&options.url)?),
            timeout: options.timeout,
            write_script: scripts::write_record(),
            reconcile_script: scripts::reconcile(),
            delete_script: scripts::delete_record(),
            clear_yesterday_script: scripts::clear_yesterday(),
            charge_demo_script: scripts::charge_demo(),
            reconcile_demo_script: scripts::reconcile_demo(),
        })
    }

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
            let mut invocation = self.write_script.prepare_invoke();
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
            let mut invocation = self.delete_script.prepare_invoke();
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
            let mut invocation = self.clear_yesterday_script.prepare_invoke();
            invocation.key(bucket.record_key(id));
            invocation
        };
        self.run_script(&mut self.begin_request(bucket.slot()).await?, build_invocation).await?;
        Ok(())
    }

    /// Lets all connections go, for one that does not answer may never do so again; the next call makes others.
    pub fn disconnect_all(&self) {
        self.router.disconnect_all();
    }
}

/// What stands where it never stood before: a fence, the number of a batch.
pub(crate) fn random_nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}
