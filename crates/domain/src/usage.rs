//! Days, and the requests charged to them.

/// Seconds in a day.
pub const DAY_S: u64 = 86_400;

/// A day in UTC: whole days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(pub u32);

impl UtcDay {
    /// The Unix time at which the day ends, in seconds.
    #[must_use]
    pub const fn end_s(self) -> u64 {
        (self.0 as u64 + 1) * DAY_S
    }
}

/// Requests charged to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyUsage {
    /// The day.
    pub day: UtcDay,
    /// Requests charged to it.
    pub count: u64,
}
