//! Batches of charges. While a batch is in flight, new charges are queued for the next one.
//!
//! A call costs Redis and the node far more than a charge in it. Without a batch in flight, a charge is sent
//! immediately.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ipseity_domain::{ApiKey, BURST_LIMIT};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::applied_restrictions::AppliedRestrictions;
use crate::arrival::RemoteSlot;
use crate::charge_id::ChargeId;
use crate::columns::{Column, column, decimal_digits};
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger_time::LedgerTime;
use crate::redis::identity::{Incarnation, ServerIdentity, TrustedStores};
use crate::scripts::{self, random_nonce};

/// Charges per batch. Redis does nothing else while it runs a batch.
const BATCH_CHARGES_MAX: usize = 64;
const ARRIVAL: Column = column("arrival_ms");
const SLOT: Column = column("charge_slot");
const VERSION: Column = column("charge_version");
const REFUSED: Column = column("charge_refused");
/// Estimated size of a command, so that its buffer is allocated once: bytes per charge, then arguments and bytes of the
/// rest.
const CHARGE_CAPACITY_BYTES: usize = 99;
const OVERHEAD_ARGS: usize = 12;
const OVERHEAD_BYTES: usize = 260;
/// How long the next batch waits for the reply to this one. A lost reply must not delay it.
const NEXT_BATCH_TIMEOUT: Duration = Duration::from_millis(2);

/// A request of a key.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    pub(crate) key: ApiKey,
    pub(crate) id: ChargeId,
    /// When its request arrived, by the clock of Redis.
    pub(crate) arrival: LedgerTime,
    /// When it was sent, by the same clock.
    pub(crate) sent_at: LedgerTime,
    /// When this node sent it, which is later for a charge of a remote node. It is not applied if the clock was set back
    /// before that, so that this node notices it.
    pub(crate) checked_at: LedgerTime,
    /// Of the remote node, if it has one.
    pub(crate) slot: Option<RemoteSlot>,
    pub(crate) applied: AppliedRestrictions,
    /// The length of the burst window.
    pub(crate) burst_window_ms: u64,
}

/// A charge in the queue, and where to send its reply.
struct QueuedCharge {
    charge: Charge,
    deadline: Instant,
    reply_to: oneshot::Sender<Result<Vec<u8>, LedgerError>>,
}

/// The queue of charges of one connection.
pub(crate) struct BatchHandle(mpsc::UnboundedSender<QueuedCharge>);

impl BatchHandle {
    /// Starts the worker. It ends when the handle is dropped.
    pub(crate) fn start(conn: MultiplexedConnection, identity: ServerIdentity, trusted: Arc<TrustedStores>) -> Self {
        // The edge limits concurrent requests, and with them the length of the queue.
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(BatchWorker { conn, identity, trusted }.run(receiver));
        Self(sender)
    }

    /// Queues a charge and returns the reply of `charge.lua`.
    pub(crate) async fn charge(&self, charge: Charge, deadline: Instant) -> Result<Vec<u8>, LedgerError> {
        let (reply_to, reply) = oneshot::channel();
        self.0.send(QueuedCharge { charge, deadline, reply_to }).map_err(|_ended| LedgerError::Unreachable)?;
        reply.await.unwrap_or(Err(LedgerError::ReplyTimeout))
    }
}

/// Sends the queued charges in batches.
struct BatchWorker {
    conn: MultiplexedConnection,
    identity: ServerIdentity,
    trusted: Arc<TrustedStores>,
}

impl BatchWorker {
    async fn run(self, mut queue: mpsc::UnboundedReceiver<QueuedCharge>) {
        let mut in_flight = FuturesUnordered::new();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                Some(()) = in_flight.next() => continue,
                count = queue.recv_many(&mut batch, BATCH_CHARGES_MAX) => if count == 0 { break },
            }
            if self.identity.is_cluster {
                in_flight.extend(group_by_bucket(&mut batch).into_iter().map(|batch| self.send_batch(batch)));
            } else {
                in_flight.push(self.send_batch(std::mem::take(&mut batch)));
            }
            // Continue even without a reply.
            let _ = timeout(NEXT_BATCH_TIMEOUT, in_flight.next()).await;
        }
        while in_flight.next().await.is_some() {}
    }

    async fn send_batch(&self, batch: Vec<QueuedCharge>) {
        let charges: Vec<Charge> = batch.iter().map(|queued| queued.charge).collect();
        // The charges arrived within milliseconds, so the earliest deadline applies to all.
        let deadline = batch.iter().map(|queued| queued.deadline).min().unwrap_or_else(Instant::now);
        let mut conn = self.conn.clone();
        let incarnation = Incarnation::new(self.identity.data_set, &self.trusted);
        let batch_sent = execute_batch(&mut conn, &incarnation, self.identity.is_cluster, &charges);
        let verdicts = timeout_at(deadline, batch_sent).await;
        // If a receiver is gone, its caller has timed out and keeps the charge as unconfirmed.
        match verdicts.unwrap_or(Err(LedgerError::ReplyTimeout)) {
            Ok(verdicts) => {
                for (queued, verdict) in batch.into_iter().zip(verdicts) {
                    let _ = queued.reply_to.send(Ok(verdict));
                }
            }
            Err(error) => {
                for queued in batch {
                    let _ = queued.reply_to.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Sends one batch. In a cluster, all charges must belong to one bucket.
pub(crate) async fn execute_batch(
    conn: &mut impl ConnectionLike,
    incarnation: &Incarnation,
    is_cluster: bool,
    charges: &[Charge],
) -> Result<Vec<Vec<u8>>, LedgerError> {
    let cmd = charge_command(incarnation, is_cluster, charges);
    let mut reply: RedisResult<Value> = cmd.query_async(conn).await;
    if reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
        scripts::CHARGE.prepare_invoke().load_async(conn).await?;
        reply = cmd.query_async(conn).await;
    }
    let Value::Array(verdicts) = reply? else { return Err(LedgerError::UnexpectedReply("type")) };
    let verdict = |verdict| if let Value::BulkString(bytes) = verdict { Some(bytes) } else { None };
    let verdicts: Vec<_> = verdicts.into_iter().filter_map(verdict).collect();
    if verdicts.len() == charges.len() { Ok(verdicts) } else { Err(LedgerError::UnexpectedReply("number of verdicts")) }
}

fn charge_command(incarnation: &Incarnation, is_cluster: bool, charges: &[Charge]) -> Cmd {
    let shared_bucket = charges.first().filter(|_| is_cluster).map(|charge| Bucket::of(charge.key.id));
    let mut cmd =
        Cmd::with_capacity(3 * charges.len() + OVERHEAD_ARGS, charges.len() * CHARGE_CAPACITY_BYTES + OVERHEAD_BYTES);
    cmd.arg("EVALSHA")
        .arg(scripts::CHARGE.get_hash())
        .arg(2 * charges.len() + if shared_bucket.is_some() { 3 } else { 0 });
    for Charge { key, .. } in charges {
        let bucket = Bucket::of(key.id);
        cmd.arg(bucket.record_key(key.id)).arg(bucket.log_key(key.id));
    }
    if let Some(bucket) = shared_bucket {
        cmd.arg(bucket.pending_pauses_key()).arg(bucket.fence_key()).arg(bucket.unflushed_key());
    }
    let first_sent = charges.iter().map(|charge| charge.sent_at.0).min().unwrap_or_default();
    let last_sent = charges.iter().map(|charge| charge.checked_at.0).max().unwrap_or_default();
    let burst_window_ms = charges.iter().map(|charge| charge.burst_window_ms).min();
    cmd.arg(incarnation.as_bytes()).arg(random_nonce()).arg(BURST_LIMIT).arg(burst_window_ms.unwrap_or_default());
    cmd.arg(first_sent).arg(last_sent);
    for charge in charges {
        let (charge_arg, len) = charge_arg(charge);
        cmd.arg(&charge_arg[..len]);
    }
    cmd
}

/// The argument of `charge.lua` for a charge, and its length without the last columns that are not needed.
fn charge_arg(charge: &Charge) -> ([u8; REFUSED.end()], usize) {
    let (mut arg, mut len) = ([b' '; REFUSED.end()], SLOT.start);
    arg[..ARRIVAL.start].copy_from_slice(charge.key.digest.as_bytes());
    arg[ARRIVAL.start..ARRIVAL.end()].copy_from_slice(&decimal_digits::<{ ARRIVAL.width }>(charge.arrival.0));
    arg[ARRIVAL.end()..SLOT.start].copy_from_slice(&charge.id.digits());
    if let Some(slot) = charge.slot {
        arg[SLOT.start..SLOT.end()].copy_from_slice(&decimal_digits::<{ SLOT.width }>(slot.number().into()));
        len = SLOT.end();
    }
    let AppliedRestrictions { version, is_refused } = charge.applied;
    if version > 0 || is_refused {
        arg[VERSION.start..VERSION.end()].copy_from_slice(&decimal_digits::<{ VERSION.width }>(version));
        arg[REFUSED.start] = b'0' + u8::from(is_refused);
        len = REFUSED.end();
    }
    (arg, len)
}

/// In a cluster, a batch is limited to one slot.
fn group_by_bucket(batch: &mut Vec<QueuedCharge>) -> Vec<Vec<QueuedCharge>> {
    let mut buckets: Vec<(Bucket, Vec<QueuedCharge>)> = Vec::new();
    for queued in batch.drain(..) {
        let bucket = Bucket::of(queued.charge.key.id);
        match buckets.iter_mut().find(|(existing, _)| *existing == bucket) {
            Some((_, group)) => group.push(queued),
            None => buckets.push((bucket, vec![queued])),
        }
    }
    buckets.into_iter().map(|(_, batch)| batch).collect()
}
