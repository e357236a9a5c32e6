//! Charging, filling and publishing.

use std::sync::Arc;
use std::time::Duration;

use domain::{Change, Key, KeyId, Standing, Used};
use redis::{Script, ScriptInvocation, Value};
use tokio::time::Instant;

use crate::link::{Link, Session};
use crate::outage::LedgerError;
use crate::slot::Bucket;
use crate::verdict::{Fence, Verdict};

/// write.lua: a change has overtaken the fill.
const OVERTAKEN: i64 = 0;
/// write.lua: the record bears another stamp than the publish.
const STAMPED_ELSEWHERE: i64 = 2;

/// How to reach the counter store.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// `redis://…`
    pub url: String,
    /// Time for a call, connecting included.
    pub timeout: Duration,
}

/// A handle on the counter store.
pub struct Ledger {
    link: Link,
    timeout: Duration,
    charge: Script,
    write: Script,
    pub(crate) demo: Script,
}

impl Ledger {
    /// Makes a handle that connects when it is first used: a service must be able to start while its counter store is away.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(options: &LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self {
            link: Link::new(&options.url)?,
            timeout: options.timeout,
            charge: Script::new(include_str!("script/charge.lua")),
            write: Script::new(include_str!("script/write.lua")),
            demo: Script::new(include_str!("script/demo.lua")),
        })
    }

    /// Authenticates a key and charges its request: one script, one round trip.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn charge(&self, key: &Key) -> Result<Verdict, LedgerError> {
        let mut attempt = self.begin().await?;
        loop {
            let (verdict, stamped_elsewhere) = self.charge_on(&attempt, key).await?;
            if !stamped_elsewhere || !self.renew(&mut attempt).await? {
                return Ok(verdict);
            }
        }
    }

    async fn charge_on(&self, attempt: &Attempt, key: &Key) -> Result<(Verdict, bool), LedgerError> {
        let bucket = Bucket::of(key.id);
        let stamp = &attempt.session.stamp;
        let mut call = self.charge.prepare_invoke();
        call.key(bucket.record(key.id)).key(bucket.log(key.id)).key(bucket.pending()).key(bucket.fence());
        call.arg(key.digest.as_bytes().as_slice()).arg(stamp).arg(charge_name()).arg(nonce()).arg(key.id.as_str());
        Verdict::parse(key.id, stamp, &self.call(attempt, &call).await?)
    }

    /// Writes a standing that was read after a charge did not know the key; `false` when a change has overtaken the reading.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn fill(&self, standing: &Standing, fence: &Fence) -> Result<bool, LedgerError> {
        let attempt = self.begin().await?;
        // A store that was restored since may have brought the same fence back, and lost the change that replaced it.
        Ok(attempt.session.stamp == fence.stamp
            && self.write(&attempt, standing, "fill", &fence.nonce).await? != OVERTAKEN)
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
        let mut attempt = self.begin().await?;
        while self.write(&attempt, standing, "publish", nonce().as_bytes()).await? == STAMPED_ELSEWHERE
            && self.renew(&mut attempt).await?
        {}
        Ok(())
    }

    async fn write(&self, on: &Attempt, standing: &Standing, how: &str, fence: &[u8]) -> Result<i64, LedgerError> {
        let bucket = Bucket::of(standing.id);
        let (retired, until_s) =
            standing.retired.as_ref().map_or((&[][..], 0), |old| (&old.digest.as_bytes()[..], old.until_s));
        let (day, count) = standing.used.map_or((0, 0), |Used { day, count }| (day.0, count));
        let mut call = self.write.prepare_invoke();
        call.key(bucket.record(standing.id)).key(bucket.log(standing.id)).key(bucket.fence()).key(bucket.pending());
        call.arg(how).arg(fence).arg(&on.session.stamp).arg(standing.generation).arg(standing.window);
        call.arg(u8::from(standing.marks.deactivated)).arg(u8::from(standing.marks.paused));
        call.arg(standing.scope.name()).arg(standing.daily_limit).arg(standing.digest.as_bytes().as_slice());
        call.arg(retired).arg(until_s).arg(day).arg(count).arg(standing.id.as_str());
        let Value::Int(outcome) = self.call(on, &call).await? else { return Err(LedgerError::Strange("reply")) };
        Ok(outcome)
    }

    /// Forgets a deleted key; a fill that is under way finds another fence.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn forget(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let mut forget = redis::pipe();
        forget.atomic().del(bucket.record(id)).del(bucket.log(id)).set(bucket.fence(), nonce()).ignore();
        self.pipe(&forget).await
    }

    /// Forgets yesterday's count of a key: it has been rolled up.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn forget_yesterday(&self, id: KeyId) -> Result<(), LedgerError> {
        let mut forget = redis::pipe();
        forget.hdel(Bucket::of(id).record(id), &["y", "m"]).ignore();
        self.pipe(&forget).await
    }

    /// Whether the counter store answers.
    ///
    /// # Errors
    /// When it does not, in time.
    pub async fn check(&self) -> Result<(), LedgerError> {
        let mut ping = redis::pipe();
        ping.cmd("PING").ignore();
        self.pipe(&ping).await
    }

    /// Starts a call: one time limit for all of it, connecting included.
    pub(crate) async fn begin(&self) -> Result<Attempt, LedgerError> {
        let deadline = Instant::now() + self.timeout;
        Ok(Attempt { session: self.link.session(deadline).await?, deadline })
    }

    /// Asks a store whose record bears another stamp who it is: either the record is old, or the store changed its identity under this
    /// connection (a first replica does that), and the call is worth another try.
    pub(crate) async fn renew(&self, attempt: &mut Attempt) -> Result<bool, LedgerError> {
        let renewed = self.within(attempt, self.link.identify_again(&attempt.session)).await?;
        Ok(renewed.map(|session| attempt.session = session).is_some())
    }

    pub(crate) async fn call(&self, attempt: &Attempt, call: &ScriptInvocation<'_>) -> Result<Value, LedgerError> {
        let mut connection = attempt.session.connection.clone();
        self.within(attempt, async { Ok(call.invoke_async(&mut connection).await?) }).await
    }

    pub(crate) async fn pipe<T: redis::FromRedisValue>(&self, pipe: &redis::Pipeline) -> Result<T, LedgerError> {
        let attempt = self.begin().await?;
        let mut connection = attempt.session.connection.clone();
        self.within(&attempt, async { Ok(pipe.query_async(&mut connection).await?) }).await
    }

    /// Bounds a call in time, and lets its session go if it proved of no more use.
    async fn within<T>(
        &self,
        attempt: &Attempt,
        call: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let outcome = tokio::time::timeout_at(attempt.deadline, call).await.unwrap_or(Err(LedgerError::Unanswered));
        if outcome.as_ref().is_err_and(LedgerError::ends_session) {
            self.link.give_up(&attempt.session);
        }
        outcome
    }
}

/// A call under way: on which session, and until when.
pub(crate) struct Attempt {
    pub(crate) session: Arc<Session>,
    deadline: Instant,
}

/// Five digits: with the millisecond before them they name a charge in the log.
fn charge_name() -> String {
    format!("{:05}", fastrand::u32(..100_000))
}

/// A fence that never stood before.
fn nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}
