//! The clock of a Redis server as this node knows it: the times of its replies, advanced by the monotonic clock.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ledger_time::LedgerTime;

/// A correction larger than this is a step of the server's clock, or of this node's estimate after a long delay.
const STEP_MIN_MS: u64 = 1_000;

const ALMOST_MS: Duration = Duration::from_nanos(999_999);

/// How fast the clocks of server and node may move apart. NTP slews a clock by at most 500 ppm.
const DRIFT_PPM: u64 = 500;

/// How long a fall of the clock matters: a little longer than the burst window.
pub(crate) const FALL_VALID: Duration = Duration::from_secs(61);
/// Maximum number of falls that are remembered one by one.
const FALLS_MAX: usize = 64;

pub(crate) struct ServerClock {
    start: Instant,
    offset: Mutex<ClockOffset>,
    /// A smaller fall can be an error of the replies.
    fall_min_ms: u64,
}

/// Unix time of the clock's `start` in milliseconds, by the server's clock: certainly not later than the truth at `at`.
struct ClockOffset {
    start_ms: u64,
    at: Instant,
    /// Until the first reply it is that of the system clock.
    is_synced: bool,
    /// Certainly not earlier than the truth at this time.
    upper: (u64, Instant),
    /// When the clock was found to have been set back, and by how much at most.
    falls: VecDeque<(Instant, u64)>,
    fell_at: Option<Instant>,
}

impl ClockOffset {
    /// The offset at another time: less what the clocks may have moved apart.
    fn start_ms_at(&self, instant: Instant) -> u64 {
        self.start_ms.saturating_sub(drift_ms(self.at, instant))
    }

    fn upper_ms_at(&self, instant: Instant) -> u64 {
        self.upper.0 + drift_ms(self.upper.1, instant)
    }

    fn record_fall(&mut self, at: Instant, fall_ms: u64) {
        if self.falls.len() >= FALLS_MAX
            && let Some((last_at, last_ms)) = self.falls.back_mut()
        {
            (*last_at, *last_ms) = (at, last_ms.saturating_add(fall_ms));
        } else {
            self.falls.push_back((at, fall_ms));
        }
    }
}

/// What the clocks may have moved apart between two times.
fn drift_ms(one: Instant, other: Instant) -> u64 {
    let age = other.saturating_duration_since(one).max(one.saturating_duration_since(other));
    (as_millis(age) * DRIFT_PPM).div_ceil(1_000_000)
}

impl ServerClock {
    /// A clock that counts from `start`.
    pub(crate) fn new(start: Instant, fall_min_ms: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = as_millis(now).saturating_sub(as_millis(start.elapsed()));
        let (upper, falls) = ((start_ms, start), VecDeque::new());
        let offset = ClockOffset { start_ms, at: start, is_synced: false, upper, falls, fell_at: None };
        Self { start, offset: Mutex::new(offset), fall_min_ms }
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
        let (current, upper) = (offset.start_ms_at(received), offset.upper_ms_at(received));
        if offset.is_synced && earliest > current && offset.fell_at.is_some_and(|fell_at| sent < fell_at) {
            // Concurrent replies arrive in any order. This one may be from before the fall.
            return false;
        }
        if offset.is_synced && latest < current {
            offset.fell_at = Some(received);
            let fall_ms = upper.saturating_sub(earliest);
            if fall_ms >= self.fall_min_ms {
                offset.record_fall(received, fall_ms);
            }
        }
        let is_possible = (earliest..=latest).contains(&current);
        if !offset.is_synced || !is_possible || latest < upper {
            offset.upper = (latest, received);
        }
        if offset.is_synced && is_possible {
            return false;
        }
        let is_stepped = earliest.abs_diff(offset.start_ms) > STEP_MIN_MS;
        (offset.start_ms, offset.at, offset.is_synced) = (earliest, received, true);
        is_stepped
    }

    /// By how much the clock was set back in the last minute, at most.
    pub(crate) fn fallen_ms(&self, now: Instant) -> u64 {
        let mut offset = self.lock_offset();
        while offset.falls.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > FALL_VALID) {
            offset.falls.pop_front();
        }
        offset.falls.iter().map(|(_, fall_ms)| fall_ms).sum()
    }

    /// The earliest and the latest Unix time in milliseconds at which the clock may have been at the common start when a
    /// reply has last set each of them. Clocks that move apart are not included.
    pub(crate) fn bounds_ms(&self) -> Option<(u64, u64)> {
        let offset = self.lock_offset();
        offset.is_synced.then_some((offset.start_ms, offset.upper.0))
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
        let clock = ServerClock::new(Instant::now(), 1);
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
        let clock = ServerClock::new(Instant::now(), 1);
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

    #[test]
    fn falls_of_the_last_minute_are_added() {
        let clock = synced_clock();
        let at = |ms: u64| clock.start + Duration::from_millis(ms);
        let sync = |at_ms: u64, offset_ms: i64| {
            let now = LedgerTime((1_000_000 + at_ms).saturating_add_signed(offset_ms));
            clock.sync(now, at(at_ms), at(at_ms + 1));
        };
        for ms in 1..500 {
            sync(ms, 0);
        }
        assert_eq!(clock.fallen_ms(at(500)), 0, "a clock that runs");
        sync(500, 3_000);
        assert_eq!(clock.fallen_ms(at(501)), 0, "a clock that was set forward");
        sync(502, 2_950);
        let first = clock.fallen_ms(at(503));
        assert!((50..=52).contains(&first), "{first}");
        sync(10_000, 2_450);
        let both = clock.fallen_ms(at(10_001));
        assert!((550..=570).contains(&both), "{both}, with ten seconds of drift");
        assert_eq!(clock.fallen_ms(at(62_000)), both - first);
        assert_eq!(clock.fallen_ms(at(72_000)), 0);
    }

    #[test]
    fn fall_is_counted_once_if_replies_are_out_of_order() {
        let clock = synced_clock();
        let at = |ms: u64| clock.start + Duration::from_millis(ms);
        for ms in 100..120 {
            // Sent before the fall and received after it, then the other way around.
            clock.sync(LedgerTime(1_000_000 + 99), at(98), at(ms));
            clock.sync(LedgerTime(1_000_000 + ms - 50), at(ms), at(ms + 1));
        }
        let fallen = clock.fallen_ms(at(130));
        assert!((50..=52).contains(&fallen), "{fallen}");
    }

    #[test]
    fn slow_replies_are_no_falls() {
        let clock = synced_clock();
        let at = |ms: u64| clock.start + Duration::from_millis(ms);
        for ms in (1..60_000).step_by(97) {
            // The server reads its clock at any time between.
            clock.sync(LedgerTime(1_000_000 + ms + ms % 200), at(ms), at(ms + 200));
        }
        assert_eq!(clock.fallen_ms(at(60_000)), 0);
    }
}
