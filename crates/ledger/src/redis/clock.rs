//! The clock of a Redis server as this node knows it: the times of its replies, advanced by the monotonic clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ledger_time::LedgerTime;

/// A correction larger than this is a step of the server's clock, or of this node's estimate after a long delay.
const STEP_MIN_MS: u64 = 1_000;

const ALMOST_MS: Duration = Duration::from_nanos(999_999);

pub(crate) struct ServerClock {
    start: Instant,
    /// Unix time of `start` in milliseconds, by the server's clock. By the system clock until the first reply.
    start_ms: AtomicU64,
}

impl ServerClock {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_ms: AtomicU64::new(as_millis(now)) }
    }

    /// Corrects the clock by a reply with the server's time `now`, which it read between `sent` and `received`. The
    /// estimate is the latest that is certainly not ahead of the server: a charge is not applied before its time.
    /// Returns whether the clock was stepped.
    pub(crate) fn sync(&self, now: LedgerTime, sent: Instant, received: Instant) -> bool {
        let since_start = |at: Instant| at.saturating_duration_since(self.start);
        // Rounded up, so that the sum of rounded times is not ahead either.
        let earliest = now.0.saturating_sub(as_millis(since_start(received) + ALMOST_MS));
        let latest = now.0.saturating_sub(as_millis(since_start(sent)));
        let current = self.start_ms.load(Ordering::Relaxed);
        let corrected = if current > latest { earliest } else { current.max(earliest) };
        if corrected != current {
            self.start_ms.store(corrected, Ordering::Relaxed);
        }
        corrected.abs_diff(current) > STEP_MIN_MS
    }

    pub(crate) fn now(&self) -> LedgerTime {
        self.at(Instant::now())
    }

    /// The server's time at an instant, or an earlier time.
    pub(crate) fn at(&self, instant: Instant) -> LedgerTime {
        let start_ms = self.start_ms.load(Ordering::Relaxed);
        LedgerTime(match instant.checked_duration_since(self.start) {
            Some(since_start) => start_ms + as_millis(since_start),
            None => start_ms.saturating_sub(as_millis(self.start - instant + ALMOST_MS)),
        })
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_an_instant_is_never_ahead() {
        let clock = ServerClock::new();
        let start_ms = clock.start_ms.load(Ordering::Relaxed);
        let half_ms = Duration::from_micros(500);
        assert_eq!(clock.at(clock.start + half_ms * 5), LedgerTime(start_ms + 2));
        assert_eq!(clock.at(clock.start - half_ms), LedgerTime(start_ms - 1));
    }

    #[test]
    fn late_reply_does_not_move_a_possible_estimate() {
        let clock = ServerClock::new();
        let (sent, before) = (clock.start, clock.start_ms.load(Ordering::Relaxed));
        let received = sent + Duration::from_millis(3_000);
        assert!(!clock.sync(LedgerTime(before + 1_000), sent, received));
        assert_eq!(clock.start_ms.load(Ordering::Relaxed), before);
        assert!(clock.sync(LedgerTime(before + 9_000), sent, received));
        assert_eq!(clock.start_ms.load(Ordering::Relaxed), before + 6_000);
        assert!(clock.sync(LedgerTime(before + 1_000), sent, received), "the clock was set back");
        assert_eq!(clock.start_ms.load(Ordering::Relaxed), before - 2_000);
    }
}
