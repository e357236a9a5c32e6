//! The watch over one connection: what it is doing, and when one of its bounds breaks.
//!
//! Everything that happens on a connection is noted here; nothing here touches the connection itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::{Bound, Bounds, Edge};

/// What is known of a connection.
pub(crate) struct Vigil {
    edge: Arc<Edge>,
    notes: Mutex<Notes>,
    asked: Notify,
    flooded: Notify,
}

struct Notes {
    /// Requests whose answer has not ended.
    in_flight: usize,
    /// When the last answer ended, or the connection was ready for its first request.
    quiet_since: Instant,
    asked: bool,
    /// Since when the socket has refused what we write.
    blocked_since: Option<Instant>,
    /// Answers of which a piece is ready and the peer has not made room for it, and when the last piece was taken.
    untaken: usize,
    taken_at: Instant,
    resets: usize,
    /// Bytes read since the last request began.
    unasked_bytes: usize,
    /// HTTP/1, where the next header is due from the end of the answer before.
    is_http1: bool,
    broke_protocol: bool,
    leaving_since: Option<Instant>,
}

impl Vigil {
    pub(crate) fn new(edge: Arc<Edge>) -> Self {
        let now = Instant::now();
        let notes = Notes {
            in_flight: 0,
            quiet_since: now,
            asked: false,
            blocked_since: None,
            untaken: 0,
            taken_at: now,
            resets: 0,
            unasked_bytes: 0,
            is_http1: false,
            broke_protocol: false,
            leaving_since: None,
        };
        Self { edge, notes: Mutex::new(notes), asked: Notify::new(), flooded: Notify::new() }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is ready for its first request from now on.
    pub(crate) fn ready(&self) {
        self.notes().quiet_since = Instant::now();
    }

    /// The connection speaks HTTP/1.
    pub(crate) fn speaks_http1(&self) {
        self.notes().is_http1 = true;
    }

    /// A request has begun; it is in flight until what is returned is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> InFlight {
        let mut notes = self.notes();
        notes.in_flight += 1;
        notes.unasked_bytes = 0;
        if !notes.asked {
            notes.asked = true;
            self.asked.notify_one();
        }
        InFlight { vigil: Arc::clone(self), answered: false, untaken: false }
    }

    /// Waits for the first request; one waiter hears it, once.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Bytes came in; whether any more may be read.
    ///
    /// The reader must heed it: a connection that has plenty to read may not come to rest before it is all read.
    pub(crate) fn read(&self, bytes: usize) -> bool {
        let mut notes = self.notes();
        notes.unasked_bytes = notes.unasked_bytes.saturating_add(bytes);
        let is_flooded = notes.unasked_bytes > self.edge.bounds.unasked_bytes_max;
        if is_flooded {
            self.flooded.notify_one();
        }
        !is_flooded
    }

    /// The library ended the connection for what the peer did.
    pub(crate) fn break_protocol(&self) {
        self.notes().broke_protocol = true;
    }

    /// The bound by which the connection was flooded, if it was.
    pub(crate) fn flood(&self) -> Option<Bound> {
        self.notes().flood(&self.edge.bounds)
    }

    /// A write ended, or could not.
    pub(crate) fn wrote(&self, blocked: bool) {
        let mut notes = self.notes();
        if blocked {
            notes.blocked_since.get_or_insert_with(Instant::now);
        } else {
            notes.blocked_since = None;
        }
    }

    /// The connection was told to end.
    pub(crate) fn leave(&self) {
        self.notes().leaving_since = Some(Instant::now());
    }

    /// Waits until a bound is broken.
    pub(crate) async fn broken(&self) -> Bound {
        loop {
            let look_at = match self.notes().judge(Instant::now(), &self.edge.bounds) {
                Ok(look_at) => look_at,
                Err(bound) => return bound,
            };
            tokio::select! {
                () = sleep_until(look_at) => {}
                () = self.flooded.notified() => {}
            }
        }
    }
}

impl Notes {
    /// One answer's piece waited or did not, and does so now or not.
    fn offer(&mut self, waited: bool, waits: bool) {
        self.untaken = self.untaken - usize::from(waited) + usize::from(waits);
        // The clock is asked only when somebody will look at it.
        if self.untaken > 0 {
            self.taken_at = Instant::now();
        }
    }

    fn flood(&self, bounds: &Bounds) -> Option<Bound> {
        let is_reset = (self.resets > bounds.resets_max).then_some(Bound::Resets);
        let is_unasked = (self.unasked_bytes > bounds.unasked_bytes_max).then_some(Bound::Unasked);
        is_reset.or(is_unasked).or(self.broke_protocol.then_some(Bound::Protocol))
    }

    /// The bound that is broken now, or when to look again.
    fn judge(&self, now: Instant, bounds: &Bounds) -> Result<Instant, Bound> {
        if let Some(bound) = self.flood(bounds) {
            return Err(bound);
        }
        let quiet = match self.leaving_since {
            // The peer gets one more write's time to hear that it should go.
            Some(leaving) => (leaving.max(self.quiet_since) + bounds.write_timeout, Bound::Idle),
            None if self.asked => (self.quiet_since + bounds.idle_timeout, Bound::Idle),
            None => (self.quiet_since + bounds.header_timeout, Bound::Header),
        };
        let ends = [
            (self.in_flight == 0).then_some(quiet),
            (self.in_flight == 0 && self.is_http1).then_some((self.quiet_since + bounds.header_timeout, Bound::Header)),
            self.blocked_since.map(|since| (since + bounds.write_timeout, Bound::Write)),
            (self.untaken > 0).then_some((self.taken_at + bounds.write_timeout, Bound::Write)),
        ];
        // What begins after this look breaks no sooner than the shortest bound from now, so nothing has to wake the watch.
        let shortest = bounds.write_timeout.min(bounds.idle_timeout).min(bounds.header_timeout);
        ends.into_iter().flatten().try_fold(
            now + shortest,
            |look_at, (end, bound)| {
                if end <= now { Err(bound) } else { Ok(look_at.min(end)) }
            },
        )
    }
}

/// A request from its header to the end of its answer.
pub(crate) struct InFlight {
    vigil: Arc<Vigil>,
    answered: bool,
    untaken: bool,
}

impl InFlight {
    /// The answer's head is made.
    pub(crate) fn answer(&mut self) {
        self.answered = true;
        self.offer(true);
    }

    /// A piece of the answer waits for the peer, or it was taken and the next one is not ready.
    pub(crate) fn offer(&mut self, waits: bool) {
        self.vigil.notes().offer(self.untaken, waits);
        self.untaken = waits;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut notes = self.vigil.notes();
        notes.offer(self.untaken, false);
        notes.in_flight -= 1;
        notes.quiet_since = Instant::now();
        if !self.answered {
            notes.resets += 1;
            if notes.resets > self.vigil.edge.bounds.resets_max {
                self.vigil.flooded.notify_one();
            }
        }
    }
}
