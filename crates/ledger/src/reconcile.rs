//! Settling: requests that a node admitted on its own reach the counter store when it is back, each exactly once.

use std::fmt::Write as _;
use std::time::Duration;

use ipseity_domain::{DailyUsage, KeyId, KeyPause, UtcDay};
use redis::Value;

use crate::charge_id::ChargeId;
use crate::error::LedgerError;
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::redis::node::TCP_USER_TIMEOUT;
use crate::scripts::{self, random_nonce};
use crate::verdict::{Fence, LedgerTime, Quota, ScriptReply};

/// A call that was sent and not answered may still arrive for so long: before that nobody can say that it was not applied.
pub const RECONCILE_DELAY: Duration = TCP_USER_TIMEOUT.saturating_add(Duration::from_secs(1));

/// A request by its time and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCharge {
    /// When it was admitted.
    pub at: LedgerTime,
    /// The name it was, or would have been, charged under.
    pub id: ChargeId,
}

/// Requests of one key that a node admitted on its own.
#[derive(Clone, Debug)]
pub struct ReconcileBatch {
    /// The key.
    pub key: KeyId,
    /// Settled once, however often it is sent.
    pub batch_id: u64,
    /// The window that the requests belong to.
    pub burst_epoch: u64,
    /// Requests that were surely not charged, by day, oldest first.
    pub days: Vec<DailyUsage>,
    /// Those of them that are recent enough for the burst limit.
    pub recent: Vec<PendingCharge>,
    /// Requests that may have been charged: the call went out and no answer came.
    pub unconfirmed: Vec<PendingCharge>,
    /// A pause on the node's own evidence.
    pub pause: Option<KeyPause>,
}

/// Demo requests that a node admitted on its own.
#[derive(Clone, Debug)]
pub struct DemoReconcileBatch {
    /// Settled once, however often it is sent.
    pub batch_id: u64,
    /// By day, oldest first.
    pub days: Vec<DailyUsage>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// The counter store does not know the key: fill its record, and settle again.
    Unknown(Fence),
    /// In the books.
    Done {
        /// The day's count with the batch in it.
        quota: Quota,
        /// The day before, as long as it waits to be rolled up.
        yesterday: Option<DailyUsage>,
        /// Requests of which nobody can tell any more whether they were charged; they were not charged again.
        unverifiable: u64,
    },
}

impl Ledger {
    /// Settles a batch.
    ///
    /// # Errors
    /// When the counter store does not answer in time; the same batch may be sent again.
    pub async fn reconcile(&self, batch: &ReconcileBatch) -> Result<Reconciled, LedgerError> {
        let bucket = Bucket::of(batch.key);
        let pause = batch.pause.as_ref().map(format_pause).unwrap_or_default();
        let (days, recent, unconfirmed) =
            (format_days(&batch.days), format_log_entries(&batch.recent), format_log_entries(&batch.unconfirmed));
        let build_invocation = |incarnation: &str| {
            let mut invocation = scripts::RECONCILE.prepare_invoke();
            invocation
                .key(bucket.record_key(batch.key))
                .key(bucket.log_key(batch.key))
                .key(bucket.pending_pauses_key())
                .key(bucket.fence_key());
            invocation.key(bucket.reconciled_key(batch.key, batch.batch_id));
            invocation.arg(incarnation).arg(random_nonce()).arg(batch.key.as_str()).arg(batch.burst_epoch);
            invocation.arg(&pause).arg(&days).arg(&recent).arg(&unconfirmed);
            invocation
        };
        let mut request = self.begin_request(bucket.slot()).await?;
        loop {
            let reply = self.run_script(&mut request, build_invocation).await?;
            let reply = ScriptReply::from_value(&reply)?;
            return match reply.code()? {
                b'0' if reply.is_incarnation_mismatch() && self.refresh_identity(&mut request).await? => continue,
                b'0' => Ok(Reconciled::Unknown(reply.fence(&request.connection.identity.incarnation)?)),
                b'6' => Ok(Reconciled::Done {
                    quota: reply.quota()?,
                    yesterday: reply.yesterday()?,
                    unverifiable: reply.unverifiable()?,
                }),
                _ => Err(LedgerError::UnexpectedReply("verdict")),
            };
        }
    }

    /// Settles a batch of the demo's, knowing the count that was rolled up last if that was asked for; `false` when it must be.
    ///
    /// # Errors
    /// When the counter store does not answer in time; the same batch may be sent again.
    pub async fn reconcile_demo(
        &self,
        batch: &DemoReconcileBatch,
        stored_usage: Option<Option<DailyUsage>>,
    ) -> Result<bool, LedgerError> {
        let stored = stored_usage.map(|used| used.map_or((0, 0), |used| (used.day.0, used.count)));
        let (day, count) = stored.map_or((String::new(), 0), |(day, count)| (day.to_string(), count));
        let days = format_days(&batch.days);
        let build_invocation = |incarnation: &str| {
            let mut invocation = scripts::RECONCILE_DEMO.prepare_invoke();
            invocation.key(layout::demo_key()).key(layout::demo_reconciled_key(batch.batch_id));
            invocation.arg(incarnation).arg(&days).arg(&day).arg(count);
            invocation
        };
        let mut request = self.begin_request(HashSlot::of(&layout::demo_key())).await?;
        let Value::Int(stored) = self.run_script(&mut request, build_invocation).await? else {
            return Err(LedgerError::UnexpectedReply("reply"));
        };
        Ok(stored == 1)
    }
}

/// `<ms>:<counts>`, as charge.lua writes it.
fn format_pause(pause: &KeyPause) -> String {
    let counts: Vec<String> = pause.counts.iter().map(u16::to_string).collect();
    format!("{}:{}", pause.at_ms, counts.join(","))
}

fn format_days(days: &[DailyUsage]) -> String {
    let mut text = String::new();
    for DailyUsage { day: UtcDay(day), count } in days {
        // Writing to a string does not fail.
        let _ = write!(text, "{day}:{count},");
    }
    text
}

fn format_log_entries(charges: &[PendingCharge]) -> String {
    let mut text = String::new();
    for PendingCharge { at, id } in charges {
        let _ = write!(text, "{:013}{id},", at.0);
    }
    text
}
