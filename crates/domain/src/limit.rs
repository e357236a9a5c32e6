//! The limits of the contract, and days.

/// Requests that a key may make in any 60 seconds; one more pauses it.
pub const BURST_MAX: usize = 300;
/// Length of the burst limit's window, in seconds.
pub const BURST_WINDOW_S: u64 = 60;
/// Requests a day that all anonymous callers of the demo share.
pub const DEMO_DAILY_MAX: u64 = 1_000;
/// Keys that an account may hold.
pub const KEYS_PER_ACCOUNT_MAX: usize = 10;
/// Seconds in a day.
pub const DAY_S: u64 = 86_400;

/// A day in UTC: whole days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// The Unix time at which the day ends, in seconds.
    #[must_use]
    pub const fn end_s(self) -> u64 {
        (self.0 as u64 + 1) * DAY_S
    }
}
