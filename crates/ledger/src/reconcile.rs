//! Reconciling: counting requests that a node admitted in degraded mode when Redis is back.

use std::fmt::Write as _;
use std::time::Duration;

use ipseity_domain::{DailyUsage, KeyId, KeyPause, UtcDay};
use redis::Value;

use crate::charge_id::ChargeId;
use crate::columns::column;
use crate::error::LedgerError;
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::redis::node::TCP_USER_TIMEOUT;
use crate::scripts::{self, random_nonce};
use crate::verdict::{Fence, LedgerTime, Quota, ScriptReply};

/// How long a request without a reply can still reach Redis. Reconcile an unconfirmed charge only after this time.
pub const RECONCILE_DELAY: Duration = TCP_USER_TIMEOUT.saturating_add(Duration::from_secs(1));

const ENTRY_MS_DIGITS: usize = column("entry_ms").width;

/// A request that is not yet counted, or not known to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCharge {
    /// When the node admitted it.
    pub at: LedgerTime,
    /// The id of its charge.
    pub id: ChargeId,
}

/// Pending charges of one key.
#[derive(Clone, Debug)]
pub struct ReconcileBatch {
    /// The key.
    pub key: KeyId,
    /// Identifies the batch, so that Redis counts it once even if you send it again.
    pub batch_id: u64,
    /// The burst epoch of the requests.
    pub burst_epoch: u64,
    /// Requests that were certainly not charged, by day, oldest first.
    pub days: Vec<DailyUsage>,
    /// The requests among them that still count for the burst limit.
    pub recent: Vec<PendingCharge>,
    /// Requests that may have been charged, because their reply was lost.
    pub unconfirmed: Vec<PendingCharge>,
    /// A pause that the node decided in degraded mode.
    pub pause: Option<KeyPause>,
}

/// Pending demo requests.
#[derive(Clone, Debug)]
pub struct DemoReconcileBatch {
    /// Identifies the batch, so that Redis counts it once even if you send it again.
    pub batch_id: u64,
    /// Requests by day, oldest first.
    pub days: Vec<DailyUsage>,
}

/// The result of reconciling a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// Redis has no record of the key. [`fill`](Ledger::fill) it, then reconcile again.
    Unknown(Fence),
    /// The batch is counted.
    Done {
        /// The state of the quota after the batch.
        quota: Quota,
        /// The count of the previous day, until [`clear_yesterday`](Ledger::clear_yesterday) removes it.
        yesterday: Option<DailyUsage>,
        /// Charges that could not be verified, because the log does not reach back to them. They are not charged again.
        unverifiable: u64,
    },
}

impl Ledger {
    /// Counts a batch of pending charges. A batch that is sent again within an hour is counted once, unless Redis loses
    /// its memory in between.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time. You can send the same batch again.
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

    /// Counts a batch of demo requests. Returns `false` if Redis has lost the count: read it from PostgreSQL and pass
    /// it as `stored_usage`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time. You can send the same batch again.
    pub async fn reconcile_demo(
        &self,
        batch: &DemoReconcileBatch,
        stored_usage: Option<Option<DailyUsage>>,
    ) -> Result<bool, LedgerError> {
        let stored = stored_usage.map(|usage| usage.map_or((0, 0), |usage| (usage.day.0, usage.count)));
        let (day, count) = stored.map_or((String::new(), 0), |(day, count)| (day.to_string(), count));
        let days = format_days(&batch.days);
        let build_invocation = |incarnation: &str| {
            let mut invocation = scripts::RECONCILE_DEMO.prepare_invoke();
            invocation.key(layout::demo_key()).key(layout::demo_reconciled_key(batch.batch_id));
            invocation.arg(incarnation).arg(&days).arg(&day).arg(count);
            invocation
        };
        let mut request = self.begin_request(HashSlot::of(&layout::demo_key())).await?;
        let Value::Int(reconciled) = self.run_script(&mut request, build_invocation).await? else {
            return Err(LedgerError::UnexpectedReply("type"));
        };
        Ok(reconciled == 1)
    }
}

/// `<ms>:<counts>`, the format of `charge.lua`.
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
        let _ = write!(text, "{:0width$}{id},", at.0, width = ENTRY_MS_DIGITS);
    }
    text
}
