//! Times on the clock of Redis.

use ipseity_domain::{DAY_S, UtcDay};

/// A time on the clock of Redis, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerTime(pub u64);

impl LedgerTime {
    /// Whole seconds since the Unix epoch.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// The UTC day of this time.
    #[must_use]
    pub const fn day(self) -> UtcDay {
        #[expect(clippy::cast_possible_truncation, reason = "a u32 of days lasts eleven million years")]
        UtcDay((self.as_secs() / DAY_S) as u32)
    }
}
