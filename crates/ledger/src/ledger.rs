//! Charging, filling and publishing.

use std::sync::Arc;
use std::time::Duration;

use domain::{Change, Key, KeyId, Standing, Used};
use redis::{Script, Value};

use crate::call::Attempt;
use crate::outage::LedgerError;
use crate::router::Router;
use crate::settle::ChargeName;
use crate::sheaf::Charge;
use crate::slot::Bucket;
use crate::verdict::{Fence, Verdict};

/// write.lua: a change has overtaken the fill.
const OVERTAKEN: i64 = 0;
/// write.lua: the record bears another stamp than the publish.
const STAMPED_ELSEWHERE: i64 = 2;

/// The greatest number that a column of record.lua holds, and its arithmetic is exact for.
const COUNT_MAX: u64 = 999_999_999_999;

/// A script that works on records.
macro_rules! on_records {
    ($file:literal) => {
        Script::new(concat!(include_str!("script/record.lua"), include_str!($file)))
    };
}
pub(crate) use on_records;

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
    pub(crate) router: Arc<Router>,
    pub(crate) timeout: Duration,
    write: Script,
    pub(crate) settle: Script,
    forget: Script,
    forget_yesterday: Script,
    pub(crate) demo: Script,
    pub(crate) settle_demo: Script,
}

impl Ledger {
    /// Makes a handle that connects when it is first used: a service must be able to start while its counter store is away.
    ///
    /// # Errors
    /// When an address cannot be read.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self {
            router: Arc::new(Router::new(&options.url)?),
            timeout: options.timeout,
            write: on_records!("script/write.lua"),
            settle: on_records!("script/settle.lua"),
            forget: Script::new(include_str!("script/forget.lua")),
            forget_yesterday: Script::new(include_str!("script/forget_yesterday.lua")),
            demo: Script::new(include_str!("script/demo.lua")),
            settle_demo: Script::new(include_str!("script/settle_demo.lua")),
        })
    }

    /// Authenticates a key and charges its request under a name: one script, one round trip.
    ///
    /// # Errors
    /// When the counter store does not answer in time. The charge may have been applied if the error says so, and can be settled later
    /// under the same name.
    pub async fn charge(&self, key: &Key, name: ChargeName) -> Result<Verdict, LedgerError> {
        let mut attempt = self.begin(Bucket::of(key.id).slot()).await?;
        loop {
            let reply = self.charge_on(&mut attempt, Charge { key: *key, name }).await?;
            let (verdict, stamped_elsewhere) = Verdict::parse(key.id, &attempt.session.identity.stamp, &reply)?;
            if !stamped_elsewhere || !Box::pin(self.renew(&mut attempt)).await? {
                return Ok(verdict);
            }
        }
    }

    /// Writes a standing that was read after a charge did not know the key; `false` when a change has overtaken the reading.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn fill(&self, standing: &Standing, fence: &Fence) -> Result<bool, LedgerError> {
        // A store that was restored since may have brought the same fence back, and lost the change that replaced it.
        let shown = |stamp: &str| if stamp == fence.stamp { fence.nonce.clone() } else { Vec::new() };
        let mut attempt = self.begin(Bucket::of(standing.id).slot()).await?;
        Ok(self.write(&mut attempt, standing, "fill", shown).await? != OVERTAKEN)
    }

    /// Brings a committed change here.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn apply(&self, change: &Change) -> Result<(), LedgerError> {
        match change {
            Change::Stands(standing) => self.publish(standing).await,
            Change::Gone(id) => self.forget(*id).await,
        }
    }

    /// Writes a changed standing over the record, if there is one.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn publish(&self, standing: &Standing) -> Result<(), LedgerError> {
        let mut attempt = self.begin(Bucket::of(standing.id).slot()).await?;
        let new_fence = |_: &str| nonce().into_bytes();
        while self.write(&mut attempt, standing, "publish", new_fence).await? == STAMPED_ELSEWHERE {
            if !self.renew(&mut attempt).await? {
                self.write(&mut attempt, standing, "disown", new_fence).await?;
                break;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        on: &mut Attempt,
        standing: &Standing,
        how: &str,
        fence: impl Fn(&str) -> Vec<u8>,
    ) -> Result<i64, LedgerError> {
        let bucket = Bucket::of(standing.id);
        let (retired, until_s) =
            standing.retired.as_ref().map_or((&[][..], 0), |old| (&old.digest.as_bytes()[..], old.until_s));
        let (day, count) = standing.used.map_or((0, 0), |Used { day, count }| (day.0, count));
        let write = |stamp: &str| {
            let mut call = self.write.prepare_invoke();
            call.key(bucket.record(standing.id)).key(bucket.log(standing.id)).key(bucket.fence()).key(bucket.pending());
            call.arg(how).arg(fence(stamp)).arg(stamp).arg(standing.generation).arg(standing.window);
            call.arg(u8::from(standing.marks.deactivated)).arg(u8::from(standing.marks.paused));
            call.arg(standing.scope.name())
                .arg(standing.daily_limit.min(COUNT_MAX))
                .arg(standing.digest.as_bytes().as_slice());
            call.arg(retired).arg(until_s).arg(day).arg(count).arg(standing.id.as_str());
            call
        };
        let Value::Int(outcome) = self.call(on, write).await? else { return Err(LedgerError::Strange("reply")) };
        Ok(outcome)
    }

    /// Forgets a deleted key; a fill that is under way finds another fence.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn forget(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let forget = |_: &str| {
            let mut call = self.forget.prepare_invoke();
            call.key(bucket.record(id)).key(bucket.log(id)).key(bucket.fence()).arg(nonce());
            call
        };
        self.call(&mut self.begin(bucket.slot()).await?, forget).await?;
        Ok(())
    }

    /// Forgets yesterday's count of a key: it has been rolled up.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn forget_yesterday(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let forget = |_: &str| {
            let mut call = self.forget_yesterday.prepare_invoke();
            call.key(bucket.record(id));
            call
        };
        self.call(&mut self.begin(bucket.slot()).await?, forget).await?;
        Ok(())
    }

    /// Lets all connections go, for one that does not answer may never do so again; the next call makes others.
    pub fn hang_up(&self) {
        self.router.hang_up();
    }
}

/// What stands where it never stood before: a fence, the number of a batch.
pub(crate) fn nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}
