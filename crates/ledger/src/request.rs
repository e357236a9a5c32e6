//! Requests to the owner of a slot, with one deadline for all attempts. A request is sent again only if Redis did not
//! apply it.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::ApiKey;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, ScriptInvocation, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::applied_restrictions::AppliedRestrictions;
use crate::arrival::Arrival;
use crate::charge_id::ChargeId;
use crate::error::{ChargeError, LedgerError, SentCharge};
use crate::layout::HashSlot;
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::redis::batch::{Charge, execute_batch};
use crate::redis::connection::RedisConnection;
use crate::redis::identity::Incarnation;
use crate::redis::node::RedisNode;
use crate::redis::redirect::ClusterRedirect;
use crate::redis::slot_map::sibling_addr;
use crate::scripts::CHARGE_VALID_MS;

/// A migrating slot is available again within milliseconds.
const RETRY_DELAY: Duration = Duration::from_millis(2);
/// A request is not sent again with less time than this left: it would likely time out, and might have been applied.
const MIN_REMAINING_TIME: Duration = Duration::from_millis(10);

/// A script without flags, which Redis rejects if it accepts no writes: on a replica, without memory or disk space, or
/// without enough replicas. It has no key, so that every server of a cluster runs it.
const WRITE_PROBE: &str = "#!lua\nreturn 1";

/// Maximum age of a charge that a remote node sent. It must reach Redis before it expires.
const REMOTE_CHARGE_AGE_MAX_MS: u64 = CHARGE_VALID_MS - 100;

/// How far the arrival at a remote node may be ahead of this node's estimate of the clock. Both are rounded.
pub const REMOTE_ARRIVAL_AHEAD_MAX_MS: u64 = 20;

/// A request in progress: its connection and its deadline.
#[derive(Clone)]
pub(crate) struct RedisRequest {
    pub(crate) connection: Arc<RedisConnection>,
    pub(crate) node: Arc<RedisNode>,
    /// When the last attempt was sent, by the clock of its server.
    sent_at: LedgerTime,
    /// When the request of a charge arrived, by the same clock.
    arrival: LedgerTime,
    slot: HashSlot,
    /// The server does not own the slot yet, so the request needs `ASKING`.
    asking: bool,
    redirected: bool,
    deadline: Instant,
}

impl RedisRequest {
    fn new(node: Arc<RedisNode>, connection: Arc<RedisConnection>, slot: HashSlot, deadline: Instant) -> Self {
        let sent_at = node.clock.now();
        Self { connection, node, sent_at, arrival: sent_at, slot, asking: false, redirected: false, deadline }
    }

    /// The error of a charge or a batch, with what is needed to reconcile it.
    pub(crate) fn charge_error(&self, error: LedgerError) -> ChargeError {
        let sent = SentCharge { at: self.sent_at, arrival: self.arrival, data_set: self.connection.identity.data_set };
        ChargeError { sent: error.may_have_been_applied().then_some(sent), error }
    }

    /// Fails if a further attempt would likely time out.
    pub(crate) fn ensure_time_left(&self, error: &LedgerError) -> Result<(), LedgerError> {
        if Instant::now() + MIN_REMAINING_TIME < self.deadline { Ok(()) } else { Err(error.clone()) }
    }
}

impl Ledger {
    /// Starts a request. The time limit includes the time to connect.
    pub(crate) async fn begin_request(&self, slot: HashSlot) -> Result<RedisRequest, LedgerError> {
        self.begin_request_until(slot, Instant::now() + self.timeout).await
    }

    pub(crate) async fn begin_request_until(
        &self,
        slot: HashSlot,
        deadline: Instant,
    ) -> Result<RedisRequest, LedgerError> {
        let mut request = self.begin_untrusted_request(slot, deadline).await?;
        self.ensure_trusted(&mut request).await?;
        Ok(request)
    }

    /// A request to a server whose data set may be another than the trusted one.
    pub(crate) async fn begin_untrusted_request(
        &self,
        slot: HashSlot,
        deadline: Instant,
    ) -> Result<RedisRequest, LedgerError> {
        let (node, connection) = self.router.find_owner(slot, deadline).await?;
        Ok(RedisRequest::new(node, connection, slot, deadline))
    }

    /// Fails if the server has another data set than the trusted one.
    async fn ensure_trusted(&self, request: &mut RedisRequest) -> Result<(), LedgerError> {
        if request.node.trusted().include(&request.connection.identity) {
            return Ok(());
        }
        // Boxed, because this case is rare: without it, the future of every charge would be larger.
        Box::pin(self.refresh_identity(request)).await?;
        if request.node.trusted().include(&request.connection.identity) {
            return Ok(());
        }
        self.router.refresh_slot_map_in_background();
        Err(LedgerError::Unreachable)
    }

    /// Reads the server's identity again after a record had another incarnation. Returns `true` if the identity has
    /// changed, so that the request can be retried. A server changes it on open connections when it gets its first
    /// replica.
    pub(crate) async fn refresh_identity(&self, request: &mut RedisRequest) -> Result<bool, LedgerError> {
        let refreshed = self.with_deadline(request, request.node.refresh_identity(&request.connection)).await?;
        Ok(refreshed.map(|connection| request.connection = connection).is_some())
    }

    /// Runs a script. `build_invocation` gets the incarnation of the server that the request is sent to.
    pub(crate) async fn run_script<'a>(
        &self,
        request: &mut RedisRequest,
        build_invocation: impl Fn(&Incarnation) -> ScriptInvocation<'a>,
    ) -> Result<Value, LedgerError> {
        loop {
            request.sent_at = request.node.clock.now();
            let (invocation, mut conn) =
                (build_invocation(&request.connection.incarnation()), RequestConnection::for_request(request));
            let outcome = self.with_deadline(request, async { Ok(invocation.invoke_async(&mut conn).await?) }).await;
            match outcome {
                Ok(value) => return Ok(value),
                Err(error) => self.follow_redirect(request, error).await?,
            }
        }
    }

    /// Sends a charge, in one batch with concurrent charges. Returns the reply of `charge.lua`.
    pub(crate) async fn send_charge(
        &self,
        request: &mut RedisRequest,
        key: &ApiKey,
        charge_id: ChargeId,
        arrival: Arrival,
        applied: AppliedRestrictions,
    ) -> Result<Vec<u8>, LedgerError> {
        loop {
            let now = request.node.clock.now();
            request.sent_at = now;
            let slot = if let Arrival::AtRemoteNode { slot, .. } = arrival { slot } else { None };
            request.arrival = match arrival {
                Arrival::Here(instant) => request.node.clock.at(instant),
                Arrival::AtOwner(time) => time,
                Arrival::AtRemoteNode { arrival, sent_at, .. } => {
                    // A batch expires with its oldest charge, and is not applied before the time of its newest.
                    let is_old = request.sent_at.0.saturating_sub(sent_at.0) > REMOTE_CHARGE_AGE_MAX_MS;
                    // After the clock was set back, the remote node's estimate of the arrival is wrong.
                    if is_old || arrival.0 > now.0 + REMOTE_ARRIVAL_AHEAD_MAX_MS {
                        return Err(LedgerError::Expired);
                    }
                    request.sent_at = request.sent_at.min(sent_at);
                    arrival
                }
            };
            let charge = Charge {
                key: *key,
                id: charge_id,
                arrival: request.arrival,
                sent_at: request.sent_at,
                checked_at: now,
                slot,
                applied,
                burst_window_ms: request.node.burst_window_ms(),
            };
            let connection = &request.connection;
            let outcome = if request.asking {
                let mut conn = RequestConnection::for_request(request);
                // Boxed, because this case is rare: without it, the future of every charge would be larger.
                let incarnation = connection.incarnation();
                let charges = [charge];
                let batch_sent = execute_batch(&mut conn, &incarnation, connection.identity.is_cluster, &charges);
                let verdicts = Box::pin(self.with_deadline(request, batch_sent)).await;
                verdicts.map(|mut verdicts| verdicts.swap_remove(0))
            } else {
                self.note_error(request, connection.batcher.charge(charge, request.deadline).await)
            };
            match outcome {
                Ok(verdict) => return Ok(verdict),
                Err(error) => Box::pin(self.follow_redirect(request, error)).await?,
            }
        }
    }

    /// Sends a command whose keys are in one slot.
    pub(crate) async fn send_command<T: FromRedisValue>(
        &self,
        slot: HashSlot,
        command: &Cmd,
    ) -> Result<T, LedgerError> {
        self.send_command_on(&mut self.begin_request(slot).await?, command).await
    }

    pub(crate) async fn send_command_on<T: FromRedisValue>(
        &self,
        request: &mut RedisRequest,
        command: &Cmd,
    ) -> Result<T, LedgerError> {
        loop {
            let mut conn = RequestConnection::for_request(request);
            let outcome = self.with_deadline(request, async { Ok(command.query_async(&mut conn).await?) }).await;
            match outcome {
                Ok(value) => return Ok(value),
                Err(error) => self.follow_redirect(request, error).await?,
            }
        }
    }

    /// Reads from many slots, with one pipeline per server. The results are in the order of `reads`.
    pub(crate) async fn read_many<T: FromRedisValue>(&self, reads: &[(HashSlot, Cmd)]) -> Result<Vec<T>, LedgerError> {
        let deadline = Instant::now() + self.timeout;
        let mut owners: Vec<(RedisRequest, Vec<usize>)> = Vec::new();
        for (index, (slot, _)) in reads.iter().enumerate() {
            let request = self.begin_request_until(*slot, deadline).await?;
            match owners.iter_mut().find(|(existing, _)| Arc::ptr_eq(&existing.connection, &request.connection)) {
                Some((_, indexes)) => indexes.push(index),
                None => owners.push((request, vec![index])),
            }
        }
        let mut results = Vec::with_capacity(reads.len());
        for (request, indexes) in owners {
            let mut pipe = redis::pipe();
            pipe.ignore_errors();
            for &index in &indexes {
                pipe.add_command(reads[index].1.clone());
            }
            let mut conn = RequestConnection::for_request(&request);
            let replies: Vec<RedisResult<T>> =
                self.with_deadline(&request, async { Ok(pipe.query_async(&mut conn).await?) }).await?;
            for (index, reply) in indexes.into_iter().zip(replies) {
                let value = match reply {
                    Ok(value) => value,
                    // What a key of another type holds concerns that key alone.
                    Err(error) if error.code() == Some("WRONGTYPE") => {
                        T::from_redis_value(Value::Nil).map_err(|_| LedgerError::UnexpectedReply("type"))?
                    }
                    Err(error) => {
                        let (slot, command) = &reads[index];
                        let mut retry = RedisRequest { slot: *slot, ..request.clone() };
                        self.follow_redirect(&mut retry, error.into()).await?;
                        self.send_command_on(&mut retry, command).await?
                    }
                };
                results.push((index, value));
            }
        }
        results.sort_by_key(|(index, _)| *index);
        Ok(results.into_iter().map(|(_, value)| value).collect())
    }

    /// Checks that every server that owns a slot answers and accepts writes.
    ///
    /// # Errors
    /// Fails if one of them does not in time.
    pub async fn ping(&self) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timeout;
        for (node, connection) in self.router.find_owners(deadline).await? {
            self.ping_server(node, connection, deadline).await?;
        }
        Ok(())
    }

    pub(crate) async fn ping_server(
        &self,
        node: Arc<RedisNode>,
        connection: Arc<RedisConnection>,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let mut request = RedisRequest::new(node, connection, HashSlot(0), deadline);
        self.ensure_trusted(&mut request).await?;
        let mut conn = RequestConnection::for_request(&request);
        let probe = redis::cmd("EVAL").arg(WRITE_PROBE).arg(0).to_owned();
        self.with_deadline(&request, async { Ok(probe.exec_async(&mut conn).await?) }).await
    }

    /// Reads the clock of a server.
    pub(crate) async fn read_clock(&self, node: &Arc<RedisNode>) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timeout;
        let connection = node.connection(deadline).await?;
        let request = RedisRequest::new(Arc::clone(node), connection, HashSlot(0), deadline);
        let mut conn = RequestConnection::for_request(&request);
        let sent = std::time::Instant::now();
        let query = async { Ok(redis::cmd("TIME").query_async(&mut conn).await?) };
        let (seconds, micros): (u64, u64) = self.with_deadline(&request, query).await?;
        node.sync_clock(LedgerTime(seconds * 1000 + micros / 1000), sent, std::time::Instant::now());
        Ok(())
    }

    /// Prepares the request for the server that the error redirects to. Returns the error if it is not a redirect.
    async fn follow_redirect(&self, request: &mut RedisRequest, error: LedgerError) -> Result<(), LedgerError> {
        let Some(redirect) = ClusterRedirect::from_error(&error) else { return Err(error) };
        if request.redirected || matches!(redirect, ClusterRedirect::TryAgain) {
            sleep(RETRY_DELAY).await;
            request.ensure_time_left(&error)?;
        }
        request.redirected = true;
        request.asking = matches!(redirect, ClusterRedirect::Ask(..));
        (request.node, request.connection) = match redirect {
            ClusterRedirect::Moved(host, port) | ClusterRedirect::Ask(host, port) => {
                self.router.note_redirect(&request.node);
                let address = sibling_addr(request.node.address(), &host, port);
                let node = self.router.node_at(&address, &request.node)?;
                let connection = node.connection(request.deadline).await?;
                (node, connection)
            }
            ClusterRedirect::TryAgain => self.router.find_owner(request.slot, request.deadline).await?,
        };
        Ok(())
    }

    /// Waits for a reply until the deadline.
    async fn with_deadline<T>(
        &self,
        request: &RedisRequest,
        future: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let outcome = timeout_at(request.deadline, future).await.unwrap_or(Err(LedgerError::ReplyTimeout));
        self.note_error(request, outcome)
    }

    /// Marks a broken connection as dead, and refreshes an outdated slot map.
    fn note_error<T>(&self, request: &RedisRequest, outcome: Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Err(error) = &outcome {
            if error.breaks_connection() {
                request.connection.mark_dead();
            }
            if error.invalidates_slot_map() {
                self.router.refresh_slot_map_in_background();
            }
        }
        outcome
    }
}

/// The connection of one attempt.
struct RequestConnection {
    conn: MultiplexedConnection,
    asking: bool,
}

impl RequestConnection {
    fn for_request(request: &RedisRequest) -> Self {
        Self { conn: request.connection.conn.clone(), asking: request.asking }
    }
}

impl ConnectionLike for RequestConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.asking {
            return self.conn.req_packed_command(command);
        }
        // ASKING applies to the next command of the connection. Requests share the connection, so both must be sent
        // together.
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").ignore().add_command(command.clone());
        Box::pin(async move {
            let (reply,) = pipeline.query_async(&mut self.conn).await?;
            Ok(reply)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.conn.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.conn.get_db()
    }
}
