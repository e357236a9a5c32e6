//! Reconciling: counting requests that a node admitted in degraded mode when Redis is back.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ipseity_domain::{BURST_LIMIT, DailyUsage, KeyId, KeyPause, UtcDay};
use redis::Value;

use crate::charge_id::ChargeId;
use crate::columns::column;
use crate::error::{ChargeError, LedgerError, SentCharge};
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::redis::identity::Incarnation;
use crate::scripts::{self, CHARGE_VALID_MS, random_nonce};
use crate::verdict::{CODE_EXPIRED, CODE_TOO_EARLY, Fence, Quota, ScriptReply};

/// How long a charge without a reply can still be applied. An unconfirmed charge is reconciled after this time and a
/// tenth of a second, for a clock that is not exact. Redis checks it again.
pub const RECONCILE_DELAY: Duration = Duration::from_millis(CHARGE_VALID_MS + 100);

/// No caller waits for a batch, and one without a reply may have to be given up.
const RECONCILE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

const ENTRY_MS_DIGITS: usize = column("entry_ms").width;

/// A request that is not yet counted, or not known to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCharge {
    /// When it arrived.
    pub at: LedgerTime,
    /// The id of its charge.
    pub id: ChargeId,
}

/// A request that may have been charged, because there was no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnconfirmedCharge {
    /// When and where its charge was sent.
    pub sent: SentCharge,
    /// The id of its charge.
    pub id: ChargeId,
    /// Whether the node admitted the request. Otherwise the charge is taken back.
    pub is_admitted: bool,
}

/// Pending charges of one key.
#[derive(Clone, Debug)]
pub struct ReconcileBatch {
    /// The key.
    pub key: KeyId,
    /// Must rise with every batch of this process, so that Redis counts a batch once even if you send it again.
    pub number: u64,
    /// The burst epoch of the requests.
    pub burst_epoch: u64,
    /// Requests that were certainly not charged, by day, oldest first. Negative for requests that were charged, but
    /// refused by the node.
    pub days: Vec<(UtcDay, i64)>,
    /// The requests among them that still count for the burst limit.
    pub recent: Vec<PendingCharge>,
    /// Requests that may have been charged.
    pub unconfirmed: Vec<UnconfirmedCharge>,
    /// A pause that the node decided in degraded mode.
    pub pause: Option<KeyPause>,
    /// The first attempt, if there was no reply to it.
    pub first_attempt: Option<SentCharge>,
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
    /// An unconfirmed charge may still be applied. Send the batch again later.
    TooEarly,
    /// The batch is counted.
    Done {
        /// The state of the quota after the batch.
        quota: Quota,
        /// Charges that could not be verified, because the log does not reach back to them. They are not charged again.
        unverifiable: u64,
    },
}

impl Ledger {
    /// Counts a batch of pending charges. A batch that is sent again is counted once.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time. You can send the same batch again, with the first attempt that the error
    /// reports.
    pub async fn reconcile(&self, batch: &ReconcileBatch) -> Result<Reconciled, ChargeError> {
        self.reconcile_of(&self.node_id, batch).await
    }

    /// Counts a batch of another node.
    ///
    /// # Errors
    /// Like [`reconcile`](Self::reconcile).
    pub async fn reconcile_of(&self, node_id: &str, batch: &ReconcileBatch) -> Result<Reconciled, ChargeError> {
        let bucket = Bucket::of(batch.key);
        let pause = batch.pause.as_ref().map(format_pause).unwrap_or_default();
        let (days, recent, unconfirmed) =
            (format_days(&batch.days), format_log_entries(&batch.recent), format_unconfirmed(&batch.unconfirmed));
        let first_attempt = batch.first_attempt.map(format_attempt).unwrap_or_default();
        let build_invocation = |incarnation: &Incarnation, sent_at: LedgerTime, burst_window_ms: u64| {
            let mut invocation = scripts::RECONCILE.prepare_invoke();
            invocation
                .key(bucket.record_key(batch.key))
                .key(bucket.log_key(batch.key))
                .key(bucket.pending_pauses_key())
                .key(bucket.fence_key())
                .key(bucket.unflushed_key())
                .key(bucket.reconciled_key(batch.key));
            invocation.arg(incarnation.as_bytes()).arg(random_nonce()).arg(BURST_LIMIT).arg(burst_window_ms);
            invocation.arg(batch.key.as_str()).arg(batch.burst_epoch);
            invocation.arg(&pause).arg(&days).arg(&recent).arg(&unconfirmed);
            invocation.arg(node_id).arg(batch.number).arg(&first_attempt).arg(sent_at.0);
            invocation
        };
        let deadline = tokio::time::Instant::now() + self.timeout.max(RECONCILE_TIMEOUT_MIN);
        let mut request = self.begin_request_until(bucket.slot(), deadline).await?;
        loop {
            let (sent, sent_at) = (Instant::now(), request.node.clock.now());
            let burst_window_ms = request.node.burst_window_ms();
            let build = |incarnation: &Incarnation| build_invocation(incarnation, sent_at, burst_window_ms);
            let reply = self.run_script(&mut request, build).await;
            let reply = reply.map_err(|error| request.charge_error(error))?;
            let reply = ScriptReply::from_value(&reply)?;
            if reply.code()? != b'0' {
                request.node.sync_clock(reply.now()?, sent, Instant::now());
            }
            return Ok(match reply.code()? {
                b'0' if reply.is_incarnation_mismatch() && self.refresh_identity(&mut request).await? => continue,
                b'0' => Reconciled::Unknown(reply.fence(request.connection.incarnation())?),
                b'6' => Reconciled::Done { quota: reply.quota()?, unverifiable: reply.unverifiable()? },
                CODE_EXPIRED => {
                    request.ensure_time_left(&LedgerError::Expired)?;
                    continue;
                }
                CODE_TOO_EARLY => Reconciled::TooEarly,
                _ => return Err(LedgerError::UnexpectedReply("verdict").into()),
            });
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
        let days: Vec<_> =
            batch.days.iter().map(|usage| (usage.day, i64::try_from(usage.count).unwrap_or(i64::MAX))).collect();
        let days = format_days(&days);
        let build_invocation = |incarnation: &Incarnation| {
            let mut invocation = scripts::RECONCILE_DEMO.prepare_invoke();
            invocation.key(layout::demo_key()).key(layout::demo_reconciled_key(batch.batch_id));
            invocation.arg(incarnation.as_bytes()).arg(&days).arg(&day).arg(count);
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

fn format_days(days: &[(UtcDay, i64)]) -> String {
    let mut text = String::new();
    for (UtcDay(day), count) in days {
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

fn format_unconfirmed(charges: &[UnconfirmedCharge]) -> String {
    let mut text = String::new();
    for UnconfirmedCharge { sent, id, is_admitted } in charges {
        let (sign, data_set) = (if *is_admitted { '+' } else { '-' }, sent.data_set.as_str());
        let (sent_at, arrival) = (sent.at.0, sent.arrival.0);
        let _ = write!(text, "{sent_at:0width$}{arrival:0width$}{id}{sign}{data_set},", width = ENTRY_MS_DIGITS);
    }
    text
}

fn format_attempt(sent: SentCharge) -> String {
    format!("{}:{}", sent.at.0, sent.data_set.as_str())
}
