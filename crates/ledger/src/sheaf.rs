//! Charges that are made at the same time go to the counter store in one call: while one is under way, the next ones gather.
//!
//! A call costs both sides far more than a charge does. Nobody waits for company: a charge that finds no call under way goes alone.

use std::sync::LazyLock;
use std::time::Duration;

use domain::Key;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, RedisResult, Script, ServerErrorKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ledger::{nonce, on_records};
use crate::link::Identity;
use crate::outage::LedgerError;
use crate::settle::ChargeName;
use crate::slot::Bucket;

/// Charges of one call: the counter store does nothing else meanwhile.
const CHARGES_MAX: usize = 64;
/// Room that a call's words take, so that it is asked for once: those of a charge, and those around them.
const PRESENTED_BYTES: usize = 38;
const CHARGE_BYTES: usize = 86;
const OTHER_WORDS: usize = 7;
const OTHER_BYTES: usize = 160;
/// How long others gather behind a call that is not answered: one whose answer is lost must not hold them up.
const PATIENCE: Duration = Duration::from_millis(2);

static CHARGE: LazyLock<Script> = LazyLock::new(|| on_records!("script/charge.lua"));

/// A request of a key, under its name.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    pub(crate) key: Key,
    pub(crate) name: ChargeName,
}

/// A charge that somebody waits for.
struct Waiting {
    charge: Charge,
    deadline: Instant,
    told: oneshot::Sender<Result<Vec<u8>, LedgerError>>,
}

/// Where the charges of a session gather.
pub(crate) struct Sheaves(mpsc::UnboundedSender<Waiting>);

impl Sheaves {
    /// Starts gathering; ends with the last handle.
    pub(crate) fn start(connection: MultiplexedConnection, identity: Identity) -> Self {
        // As many wait as there are requests under way, which the edge bounds.
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(Binder { connection, identity }.run(receiver));
        Self(sender)
    }

    /// Charges, and gives the verdict as charge.lua wrote it.
    pub(crate) async fn charge(&self, charge: Charge, deadline: Instant) -> Result<Vec<u8>, LedgerError> {
        let (told, verdict) = oneshot::channel();
        self.0.send(Waiting { charge, deadline, told }).map_err(|_ended| LedgerError::Unreachable)?;
        verdict.await.unwrap_or(Err(LedgerError::Unanswered))
    }
}

/// Binds charges into calls.
struct Binder {
    connection: MultiplexedConnection,
    identity: Identity,
}

impl Binder {
    async fn run(self, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
        let mut under_way = FuturesUnordered::new();
        let mut sheaf = Vec::new();
        loop {
            tokio::select! {
                Some(()) = under_way.next() => continue,
                count = waiting.recv_many(&mut sheaf, CHARGES_MAX) => if count == 0 { break },
            }
            if self.identity.is_cluster {
                under_way.extend(by_bucket(&mut sheaf).into_iter().map(|sheaf| self.call(sheaf)));
            } else {
                under_way.push(self.call(std::mem::take(&mut sheaf)));
            }
            // Answered or not: on to those that have gathered.
            let _ = timeout(PATIENCE, under_way.next()).await;
        }
        while under_way.next().await.is_some() {}
    }

    async fn call(&self, sheaf: Vec<Waiting>) {
        let charges: Vec<Charge> = sheaf.iter().map(|waiting| waiting.charge).collect();
        // They have come within moments of each other: the first one's deadline is the others' too.
        let deadline = sheaf.iter().map(|waiting| waiting.deadline).min().unwrap_or_else(Instant::now);
        let mut line = self.connection.clone();
        let verdicts = timeout_at(deadline, ask(&mut line, &self.identity, &charges)).await;
        // Who is gone by now has been noted as not having heard.
        match verdicts.unwrap_or(Err(LedgerError::Unanswered)) {
            Ok(verdicts) => {
                for (waiting, verdict) in sheaf.into_iter().zip(verdicts) {
                    let _ = waiting.told.send(Ok(verdict));
                }
            }
            Err(error) => {
                for waiting in sheaf {
                    let _ = waiting.told.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Makes one call; in a cluster all of its charges must be of one bucket.
pub(crate) async fn ask(
    line: &mut impl ConnectionLike,
    identity: &Identity,
    charges: &[Charge],
) -> Result<Vec<Vec<u8>>, LedgerError> {
    let call = command(identity, charges);
    let mut reply: RedisResult<Value> = call.query_async(line).await;
    if reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
        CHARGE.prepare_invoke().load_async(line).await?;
        reply = call.query_async(line).await;
    }
    let Value::Array(verdicts) = reply? else { return Err(LedgerError::Strange("reply")) };
    let verdict = |verdict| if let Value::BulkString(bytes) = verdict { Some(bytes) } else { None };
    let verdicts: Vec<_> = verdicts.into_iter().filter_map(verdict).collect();
    if verdicts.len() == charges.len() { Ok(verdicts) } else { Err(LedgerError::Strange("number of verdicts")) }
}

fn command(identity: &Identity, charges: &[Charge]) -> Cmd {
    let shared = charges.first().filter(|_| identity.is_cluster).map(|charge| Bucket::of(charge.key.id));
    let mut call = Cmd::with_capacity(3 * charges.len() + OTHER_WORDS, charges.len() * CHARGE_BYTES + OTHER_BYTES);
    call.arg("EVALSHA").arg(CHARGE.get_hash()).arg(2 * charges.len() + if shared.is_some() { 2 } else { 0 });
    for Charge { key, .. } in charges {
        let bucket = Bucket::of(key.id);
        call.arg(bucket.record(key.id)).arg(bucket.log(key.id));
    }
    if let Some(bucket) = shared {
        call.arg(bucket.pending()).arg(bucket.fence());
    }
    call.arg(&identity.stamp).arg(nonce());
    for Charge { key, name } in charges {
        let mut presented = [0; PRESENTED_BYTES];
        let (digest, digits) = presented.split_at_mut(key.digest.as_bytes().len());
        digest.copy_from_slice(key.digest.as_bytes());
        digits.copy_from_slice(&name.digits());
        call.arg(presented.as_slice());
    }
    call
}

/// What may share a call in a cluster, where a call names one slot.
fn by_bucket(sheaf: &mut Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut buckets: Vec<(Bucket, Vec<Waiting>)> = Vec::new();
    for waiting in sheaf.drain(..) {
        let bucket = Bucket::of(waiting.charge.key.id);
        match buckets.iter_mut().find(|(known, _)| *known == bucket) {
            Some((_, others)) => others.push(waiting),
            None => buckets.push((bucket, vec![waiting])),
        }
    }
    buckets.into_iter().map(|(_, sheaf)| sheaf).collect()
}
