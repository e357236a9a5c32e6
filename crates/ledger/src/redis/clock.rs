//! The clock of a Redis server as this node knows it: the times of its replies, advanced by the monotonic clock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ledger_time::LedgerTime;

/// A correction larger than this is a step of the server's clock, or of this node's estimate after a long delay.
const STEP_MIN_MS: u64 = 1_000;

const ALMOST_MS: Duration = Duration::from_nanos(999_999);

/// How fast the clocks of server and node may move apart. NTP slews a clock by at most 500 ppm.
const DRIFT_PPM: u64 = 500;

pub(crate) struct ServerClock {
    start: Instant,
    offset: Mutex<ClockOffset>,
}

/// Unix time of the clock's `start` in milliseconds, by the server's clock: certainly not later than the truth at `at`.
#[derive(Clone, Copy)]
struct ClockOffset {
    start_ms: u64,
    at: Instant,
    /// Until the first reply it is that of the system clock.
    is_synced: bool,
}

impl ClockOffset {
    /// The offset at another time: less what the clocks may have moved apart.
    fn start_ms_at(self, instant: Instant) -> u64 {
        let age = instant.saturating_duration_since(self.at).max(self.at.saturating_duration_since(instant));
        self.start_ms.saturating_sub((as_millis(age) * DRIFT_PPM).div_ceil(1_000_000))
    }
}

impl ServerClock {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = Instant::now();
        let offset = ClockOffset { start_ms: as_millis(now), at: start, is_synced: false };
        Self { start, offset: Mutex::new(offset) }
    }

    /// Corrects the clock by a reply with the server's time `now`, which it read between `sent` and `received`. The
    /// estimate is the latest that is certainly not ahead of the server: a charge is not applied before its time.
    /// Returns whether the clock was stepped.
    pub(crate) fn sync(&self, now: LedgerTime, sent: Instant, received: Instant) -> bool {
        let since_start = |at: Instant| at.saturating_duration_since(self.start);
        // Rounded up, so that the sum of rounded times is not ahead either.
        let earliest = now.0.saturating_sub(as_millis(since_start(received) + ALMOST_MS));
        let latest = now.0.saturating_sub(as_millis(since_start(sent)));
        let mut offset = self.lock_offset();
        let current = offset.start_ms_at(received);
        if offset.is_synced && (earliest..=latest).contains(&current) {
            return false;
        }
        let is_stepped = earliest.abs_diff(offset.start_ms) > STEP_MIN_MS;
        *offset = ClockOffset { start_ms: earliest, at: received, is_synced: true };
        is_stepped
    }

    pub(crate) fn now(&self) -> LedgerTime {
        self.at(Instant::now())
    }

    /// Whether a reply has set the clock.
    pub(crate) fn is_synced(&self) -> bool {
        self.lock_offset().is_synced
    }

    /// The server's time at an instant, or an earlier time.
    pub(crate) fn at(&self, instant: Instant) -> LedgerTime {
        let start_ms = self.lock_offset().start_ms_at(instant);
        LedgerTime(match instant.checked_duration_since(self.start) {
            Some(since_start) => start_ms + as_millis(since_start),
            None => start_ms.saturating_sub(as_millis(self.start - instant + ALMOST_MS)),
        })
    }

    fn lock_offset(&self) -> MutexGuard<'_, ClockOffset> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock whose offset was 1,000,000 ms when it started.
    fn synced_clock() -> ServerClock {
        let clock = ServerClock::new();
        clock.sync(LedgerTime(1_000_000), clock.start, clock.start);
        clock
    }

    fn start_ms(clock: &ServerClock) -> u64 {
        clock.lock_offset().start_ms
    }

    #[test]
    fn time_of_an_instant_is_never_ahead() {
        let (clock, half_ms) = (synced_clock(), Duration::from_micros(500));
        assert_eq!(clock.at(clock.start + half_ms), LedgerTime(1_000_000));
        assert_eq!(clock.at(clock.start + half_ms * 5), LedgerTime(1_000_001), "a millisecond for drift");
        assert_eq!(clock.at(clock.start - half_ms), LedgerTime(999_999));
        assert_eq!(clock.at(clock.start + Duration::from_secs(10)), LedgerTime(1_009_995), "500 ppm");
    }

    #[test]
    fn system_clock_that_is_ahead_is_not_kept() {
        let clock = ServerClock::new();
        let (sent, received) = (clock.start, clock.start + Duration::from_millis(80));
        // The server read its clock 40 ms after the call was sent, and is 30 ms behind this machine.
        let now = LedgerTime(start_ms(&clock) + 40 - 30);
        clock.sync(now, sent, received);
        assert_eq!(clock.at(received), now);
    }

    #[test]
    fn late_reply_does_not_move_a_possible_estimate() {
        let clock = synced_clock();
        let (sent, received) = (clock.start, clock.start + Duration::from_millis(3_000));
        assert!(!clock.sync(LedgerTime(1_001_000), sent, received));
        assert_eq!(start_ms(&clock), 1_000_000);
        assert!(clock.sync(LedgerTime(1_009_000), sent, received));
        assert_eq!(start_ms(&clock), 1_006_000);
        assert!(clock.sync(LedgerTime(1_001_000), sent, received), "the clock was set back");
        assert_eq!(start_ms(&clock), 998_000);
    }
}
