//! The watchdog of one connection: it records activity and reports when the connection exceeds a limit.
//!
//! It never touches the connection itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::failed_attempts::FailedAttempts;
use crate::memory_budget::{MemoryBudget, Reservation};
use crate::subnet_limit::SubnetPermit;
use crate::{CloseReason, EdgeLimits, EdgeState};

/// Memory of a request or of an unsent chunk besides its bytes: the stream, its task and its headers.
const OVERHEAD_BYTES: usize = 4 << 10;
/// Memory of an HTTP/1 connection: its buffers and its task.
const HTTP1_CONNECTION_BYTES: usize = 32 << 10;
/// Memory that a connection keeps for each of its concurrent streams, also after they have ended.
const STREAM_SLOT_BYTES: usize = 3 << 10;
/// Concurrent streams of a connection while there is little memory.
pub(crate) const FEW_STREAMS: u32 = 8;
/// Quarters of a budget that connections with all their streams may use.
const ALL_STREAMS_QUARTERS: usize = 1;
/// Quarters of a budget that all connections may use. Requests may use the rest.
const CONNECTIONS_QUARTERS: usize = 3;

/// Records the activity of a connection and checks it against the limits.
pub(crate) struct ConnectionWatchdog {
    edge: Arc<EdgeState>,
    /// The budgets of this connection and of its client's network. Set before the first request.
    budgets: OnceLock<(Arc<MemoryBudget>, Arc<MemoryBudget>)>,
    activity: Mutex<ConnectionActivity>,
    failed_attempts: FailedAttempts,
    is_streaming: AtomicBool,
    first_request: Notify,
    must_close: Notify,
}

struct ConnectionActivity {
    /// Requests whose response has not ended.
    in_flight: usize,
    /// When the last response ended, or the connection was ready for its first request.
    idle_since: Instant,
    has_requested: bool,
    /// When the first byte of the next request arrived on an idle HTTP/1 connection.
    header_started_at: Option<Instant>,
    /// Since when the socket has accepted no write.
    write_blocked_since: Option<Instant>,
    /// Chunks of responses that the peer has not received.
    writes: Vec<WriteProgress>,
    last_write_id: u64,
    stream_resets: usize,
    /// Bytes read since the last request started.
    unsolicited_bytes: usize,
    /// On HTTP/1, an incomplete header has a timeout.
    is_http1: bool,
    /// What the connection keeps until it closes.
    connection_memory: Option<Reservation>,
    is_out_of_memory: bool,
    has_unread_body: bool,
    has_protocol_error: bool,
    closing_since: Option<Instant>,
}

/// The progress of one chunk of a response.
struct WriteProgress {
    id: u64,
    started_at: Instant,
    bytes_sent: usize,
}

impl WriteProgress {
    /// The time by which the peer must have received more.
    fn deadline(&self, limits: &EdgeLimits) -> Instant {
        let sent_ms = self.bytes_sent as u64 * 1000 / limits.write_rate_min.max(1);
        self.started_at + limits.write_timeout + Duration::from_millis(sent_ms)
    }
}

impl ConnectionWatchdog {
    pub(crate) fn new(edge: Arc<EdgeState>) -> Self {
        let now = Instant::now();
        let failed_attempts = FailedAttempts::new(edge.limits.failed_attempts_max, edge.limits.failed_attempt_interval);
        let activity = ConnectionActivity {
            in_flight: 0,
            idle_since: now,
            has_requested: false,
            header_started_at: None,
            write_blocked_since: None,
            writes: Vec::new(),
            last_write_id: 0,
            stream_resets: 0,
            unsolicited_bytes: 0,
            is_http1: false,
            connection_memory: None,
            is_out_of_memory: false,
            has_unread_body: false,
            has_protocol_error: false,
            closing_since: None,
        };
        Self {
            edge,
            budgets: OnceLock::new(),
            activity: Mutex::new(activity),
            failed_attempts,
            is_streaming: AtomicBool::new(false),
            first_request: Notify::new(),
            must_close: Notify::new(),
        }
    }

    /// Makes the memory of this connection count toward that of its client's network, if it has a permit of one.
    pub(crate) fn set_client_network(&self, subnet_permit: Option<&SubnetPermit>) {
        let shared = self.edge.memory_budget(subnet_permit);
        let own = MemoryBudget::new(self.edge.limits.memory_per_connection_max, Some(Arc::clone(&shared)));
        let _ = self.budgets.set((own, shared));
    }

    /// Reserves the memory that the streams of this connection keep until it closes. Returns how many it may have at the same
    /// time, before the client can open the first. `None` if there is no memory: the connection must close.
    pub(crate) fn reserve_streams(&self) -> Option<u32> {
        let streams_max = self.edge.limits.streams_max;
        let reserve = |streams: u32, quarters| {
            self.reserve_until_close(streams as usize * STREAM_SLOT_BYTES, quarters).then_some(streams)
        };
        let streams = reserve(streams_max, ALL_STREAMS_QUARTERS)
            .or_else(|| reserve(streams_max.min(FEW_STREAMS), CONNECTIONS_QUARTERS));
        self.lock_activity().is_out_of_memory = streams.is_none();
        streams
    }

    /// Records that the connection uses HTTP/1, and reserves its memory. Returns whether there is enough; otherwise the connection
    /// must close.
    pub(crate) fn start_http1(&self) -> bool {
        let is_reserved = self.reserve_until_close(HTTP1_CONNECTION_BYTES, CONNECTIONS_QUARTERS);
        let mut activity = self.lock_activity();
        activity.is_http1 = true;
        activity.is_out_of_memory = !is_reserved;
        is_reserved
    }

    fn reserve_until_close(&self, bytes: usize, quarters: usize) -> bool {
        let reservation = self.budgets.get().and_then(|(_, shared)| shared.try_reserve_quarters(bytes, quarters));
        let is_reserved = reservation.is_some();
        self.lock_activity().connection_memory = reservation;
        is_reserved
    }

    fn try_reserve_memory(&self, bytes: usize) -> Option<Reservation> {
        let reservation = self.budgets.get()?.0.try_reserve(bytes);
        if reservation.is_none() {
            self.edge.stats().requests_out_of_memory.add(1);
        }
        reservation
    }

    fn record_stream_reset(&self, activity: &mut ConnectionActivity) {
        activity.stream_resets += 1;
        if activity.stream_resets > self.edge.limits.resets_max {
            self.must_close.notify_one();
        }
    }

    fn lock_activity(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the connection is ready for its first request.
    pub(crate) fn mark_ready(&self) {
        self.lock_activity().idle_since = Instant::now();
    }

    /// Records a new request. It is in flight until the return value is dropped. `None` if there is no memory for it.
    pub(crate) fn start_request(self: &Arc<Self>) -> Option<InFlightRequest> {
        let memory = self.try_reserve_memory(OVERHEAD_BYTES);
        self.is_streaming.store(false, Ordering::Relaxed);
        let mut activity = self.lock_activity();
        let Some(memory) = memory else {
            // Rejected streams cost CPU time too.
            self.record_stream_reset(&mut activity);
            return None;
        };
        activity.in_flight += 1;
        activity.unsolicited_bytes = 0;
        activity.header_started_at = None;
        if !activity.has_requested {
            activity.has_requested = true;
            self.first_request.notify_one();
        }
        drop(activity);
        Some(InFlightRequest { watchdog: Arc::clone(self), response_started: false, _memory: memory })
    }

    /// Waits for the first request. Wakes one waiter, once.
    pub(crate) async fn wait_first_request(&self) {
        self.first_request.notified().await;
    }

    /// Records received bytes. Returns whether more may be read.
    ///
    /// The reader must stop if not: a connection with much to read may never yield to the task that closes it.
    pub(crate) fn record_read(&self, bytes: usize) -> bool {
        let mut activity = self.lock_activity();
        activity.unsolicited_bytes = activity.unsolicited_bytes.saturating_add(bytes);
        if activity.is_http1 && activity.in_flight == 0 && activity.has_requested {
            activity.header_started_at.get_or_insert_with(Instant::now);
        }
        let is_flooded = activity.unsolicited_bytes > self.edge.limits.unsolicited_bytes_max;
        if is_flooded {
            self.must_close.notify_one();
        }
        !is_flooded
    }

    /// Records that the HTTP/2 library closed the connection because of the peer.
    pub(crate) fn record_protocol_error(&self) {
        self.lock_activity().has_protocol_error = true;
    }

    /// The limit that the peer exceeded by flooding, if it did.
    pub(crate) fn flood_reason(&self) -> Option<CloseReason> {
        self.lock_activity().flood_reason(&self.edge.limits)
    }

    /// Records whether a write completed or is blocked.
    pub(crate) fn record_write(&self, is_blocked: bool) {
        let mut activity = self.lock_activity();
        if is_blocked {
            activity.write_blocked_since.get_or_insert_with(Instant::now);
        } else {
            activity.write_blocked_since = None;
        }
    }

    /// How long the next request waits because of earlier ones that failed.
    pub(crate) fn attempt_delay(&self) -> Option<Duration> {
        self.failed_attempts.delay(Instant::now())
    }

    /// Records a response that the application marked as [`FailedAttempt`](ipseity_domain::FailedAttempt).
    pub(crate) fn record_failed_attempt(&self) {
        self.failed_attempts.record(Instant::now());
    }

    /// Records that the response has no known length. It ends when the client leaves.
    pub(crate) fn mark_streaming(&self) {
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    /// Whether the last response of this HTTP/1 connection is a stream.
    pub(crate) fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    /// Records that a request's body was not read to its end.
    pub(crate) fn mark_unread_body(&self) {
        self.lock_activity().has_unread_body = true;
    }

    pub(crate) fn has_unread_body(&self) -> bool {
        self.lock_activity().has_unread_body
    }

    /// Records that the connection is shutting down.
    pub(crate) fn mark_closing(&self) {
        self.lock_activity().closing_since = Some(Instant::now());
    }

    /// Waits until the connection exceeds a limit.
    pub(crate) async fn expired(&self) -> CloseReason {
        loop {
            let wake_at = match self.lock_activity().check_deadlines(Instant::now(), &self.edge.limits) {
                Ok(wake_at) => wake_at,
                Err(reason) => return reason,
            };
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = self.must_close.notified() => {}
            }
        }
    }
}

impl ConnectionActivity {
    fn flood_reason(&self, limits: &EdgeLimits) -> Option<CloseReason> {
        let reset_flood = (self.stream_resets > limits.resets_max).then_some(CloseReason::StreamResets);
        let unsolicited_flood =
            (self.unsolicited_bytes > limits.unsolicited_bytes_max).then_some(CloseReason::UnsolicitedBytes);
        let other_reasons =
            [(self.has_protocol_error, CloseReason::ProtocolError), (self.is_out_of_memory, CloseReason::OutOfMemory)];
        let other_reason = other_reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason));
        reset_flood.or(unsolicited_flood).or(other_reason)
    }

    /// The limit that is exceeded now, or when to check again.
    fn check_deadlines(&self, now: Instant, limits: &EdgeLimits) -> Result<Instant, CloseReason> {
        if let Some(reason) = self.flood_reason(limits) {
            return Err(reason);
        }
        let idle_deadline = match self.closing_since {
            // The peer gets one write timeout to receive the shutdown.
            Some(closing_since) => {
                (closing_since.max(self.idle_since) + limits.write_timeout, CloseReason::IdleTimeout)
            }
            None if self.has_requested => match self.header_started_at {
                Some(header_started_at) => (header_started_at + limits.header_timeout, CloseReason::HeaderTimeout),
                None => (self.idle_since + limits.idle_timeout, CloseReason::IdleTimeout),
            },
            None => (self.idle_since + limits.header_timeout, CloseReason::HeaderTimeout),
        };
        let write_deadline = self.writes.iter().map(|write| write.deadline(limits)).min();
        let deadlines = [
            (self.in_flight == 0 && self.writes.is_empty()).then_some(idle_deadline),
            self.write_blocked_since.map(|since| (since + limits.write_timeout, CloseReason::WriteTimeout)),
            write_deadline.map(|deadline| (deadline, CloseReason::WriteTimeout)),
        ];
        // Activity that starts after this check cannot expire before the shortest timeout, so it need not wake us.
        let shortest_timeout = limits.write_timeout.min(limits.idle_timeout).min(limits.header_timeout);
        deadlines.into_iter().flatten().try_fold(now + shortest_timeout, |wake_at, (deadline, reason)| {
            if deadline <= now { Err(reason) } else { Ok(wake_at.min(deadline)) }
        })
    }
}

/// A request, from its header to the end of its response.
pub(crate) struct InFlightRequest {
    watchdog: Arc<ConnectionWatchdog>,
    response_started: bool,
    _memory: Reservation,
}

impl InFlightRequest {
    /// Records that the response header is ready.
    pub(crate) fn start_response(&mut self) {
        self.response_started = true;
    }

    /// Records a chunk of the response, which the peer has received when the return value is dropped. Bytes that are
    /// shared, such as those of a file, take no memory. `None` if there is no memory for the others.
    pub(crate) fn start_write(&self, bytes: &Bytes) -> Option<PendingWrite> {
        self.start_write_of(if bytes.is_unique() { bytes.len() } else { 0 })
    }

    /// Records a chunk that takes this much memory.
    pub(crate) fn start_write_of(&self, memory_bytes: usize) -> Option<PendingWrite> {
        let memory = self.watchdog.try_reserve_memory(OVERHEAD_BYTES + memory_bytes)?;
        let mut activity = self.watchdog.lock_activity();
        activity.last_write_id += 1;
        let id = activity.last_write_id;
        activity.writes.push(WriteProgress { id, started_at: Instant::now(), bytes_sent: 0 });
        Some(PendingWrite { watchdog: Arc::clone(&self.watchdog), id, _memory: memory })
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut activity = self.watchdog.lock_activity();
        activity.in_flight -= 1;
        activity.idle_since = Instant::now();
        if !self.response_started {
            self.watchdog.record_stream_reset(&mut activity);
        }
    }
}

/// A chunk of a response that the peer has not received.
pub(crate) struct PendingWrite {
    watchdog: Arc<ConnectionWatchdog>,
    id: u64,
    _memory: Reservation,
}

impl PendingWrite {
    /// Records that a part of the chunk was sent.
    pub(crate) fn record_sent(&self, bytes: usize) {
        let mut activity = self.watchdog.lock_activity();
        if let Some(write) = activity.writes.iter_mut().find(|write| write.id == self.id) {
            write.bytes_sent += bytes;
        }
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        let mut activity = self.watchdog.lock_activity();
        activity.writes.retain(|write| write.id != self.id);
        activity.idle_since = Instant::now();
    }
}
