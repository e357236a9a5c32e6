//! The watchdog of one connection: it records activity and reports when the connection exceeds a limit.
//!
//! It never touches the connection itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::{CloseReason, EdgeLimits, EdgeState};

/// Records the activity of a connection and checks it against the limits.
pub(crate) struct ConnectionWatchdog {
    edge: Arc<EdgeState>,
    activity: Mutex<ConnectionActivity>,
    first_request: Notify,
    flood_detected: Notify,
}

struct ConnectionActivity {
    /// Requests whose response has not ended.
    in_flight: usize,
    /// When the last response ended, or the connection was ready for its first request.
    idle_since: Instant,
    has_requested: bool,
    /// Since when the socket has accepted no write.
    write_blocked_since: Option<Instant>,
    /// Responses with a chunk that waits for the peer's flow control, and when the last chunk was sent.
    pending_writes: usize,
    last_write_at: Instant,
    stream_resets: usize,
    /// Bytes read since the last request started.
    unsolicited_bytes: usize,
    /// On HTTP/1, the timeout of the next header starts at the end of the previous response.
    is_http1: bool,
    has_protocol_error: bool,
    closing_since: Option<Instant>,
}

impl ConnectionWatchdog {
    pub(crate) fn new(edge: Arc<EdgeState>) -> Self {
        let now = Instant::now();
        let activity = ConnectionActivity {
            in_flight: 0,
            idle_since: now,
            has_requested: false,
            write_blocked_since: None,
            pending_writes: 0,
            last_write_at: now,
            stream_resets: 0,
            unsolicited_bytes: 0,
            is_http1: false,
            has_protocol_error: false,
            closing_since: None,
        };
        Self { edge, activity: Mutex::new(activity), first_request: Notify::new(), flood_detected: Notify::new() }
    }

    fn lock_activity(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the connection is ready for its first request.
    pub(crate) fn mark_ready(&self) {
        self.lock_activity().idle_since = Instant::now();
    }

    /// Records that the connection uses HTTP/1.
    pub(crate) fn mark_http1(&self) {
        self.lock_activity().is_http1 = true;
    }

    /// Records a new request. It is in flight until the return value is dropped.
    pub(crate) fn start_request(self: &Arc<Self>) -> InFlightRequest {
        let mut activity = self.lock_activity();
        activity.in_flight += 1;
        activity.unsolicited_bytes = 0;
        if !activity.has_requested {
            activity.has_requested = true;
            self.first_request.notify_one();
        }
        InFlightRequest { watchdog: Arc::clone(self), response_started: false, is_write_pending: false }
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
        let is_flooded = activity.unsolicited_bytes > self.edge.limits.unsolicited_bytes_max;
        if is_flooded {
            self.flood_detected.notify_one();
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
                () = self.flood_detected.notified() => {}
            }
        }
    }
}

impl ConnectionActivity {
    /// Updates whether one response has a pending chunk.
    fn set_write_pending(&mut self, was_pending: bool, is_pending: bool) {
        self.pending_writes = self.pending_writes - usize::from(was_pending) + usize::from(is_pending);
        // The clock is read only if the value will be used.
        if self.pending_writes > 0 {
            self.last_write_at = Instant::now();
        }
    }

    fn flood_reason(&self, limits: &EdgeLimits) -> Option<CloseReason> {
        let reset_flood = (self.stream_resets > limits.resets_max).then_some(CloseReason::StreamResets);
        let unsolicited_flood =
            (self.unsolicited_bytes > limits.unsolicited_bytes_max).then_some(CloseReason::UnsolicitedBytes);
        reset_flood.or(unsolicited_flood).or(self.has_protocol_error.then_some(CloseReason::ProtocolError))
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
            None if self.has_requested => (self.idle_since + limits.idle_timeout, CloseReason::IdleTimeout),
            None => (self.idle_since + limits.header_timeout, CloseReason::HeaderTimeout),
        };
        let deadlines = [
            (self.in_flight == 0).then_some(idle_deadline),
            (self.in_flight == 0 && self.is_http1)
                .then_some((self.idle_since + limits.header_timeout, CloseReason::HeaderTimeout)),
            self.write_blocked_since.map(|since| (since + limits.write_timeout, CloseReason::WriteTimeout)),
            (self.pending_writes > 0).then_some((self.last_write_at + limits.write_timeout, CloseReason::WriteTimeout)),
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
    is_write_pending: bool,
}

impl InFlightRequest {
    /// Records that the response header is ready.
    pub(crate) fn start_response(&mut self) {
        self.response_started = true;
        self.set_write_pending(true);
    }

    /// Records whether a chunk of the response waits for the peer.
    pub(crate) fn set_write_pending(&mut self, is_pending: bool) {
        self.watchdog.lock_activity().set_write_pending(self.is_write_pending, is_pending);
        self.is_write_pending = is_pending;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut activity = self.watchdog.lock_activity();
        activity.set_write_pending(self.is_write_pending, false);
        activity.in_flight -= 1;
        activity.idle_since = Instant::now();
        if !self.response_started {
            activity.stream_resets += 1;
            if activity.stream_resets > self.watchdog.edge.limits.resets_max {
                self.watchdog.flood_detected.notify_one();
            }
        }
    }
}
