//! Charge ids, which find a charge in the log if its reply was lost.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::columns::{column, decimal_digits};

/// Number of ids. The time in milliseconds followed by an id still fits into 64 bits, which Redis stores compactly.
const CHARGE_IDS: u32 = 250_000;
const CHARGE_ID_DIGITS: usize = column("charge_id").width;

/// A number of six digits that identifies a charge in the log of its key, together with the arrival of its request.
///
/// Ids are multiples of four. In the log, 1 is added if the daily quota rejected the request, and 2 if it was charged to the day
/// after its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeId(u32);

impl ChargeId {
    /// Returns the next id of this process.
    ///
    /// A process repeats its ids after 250,000 charges. An id is looked up among the charges of one key that arrived in the same
    /// millisecond, so it is unambiguous in a process. Each process starts at a random id, so charges of one key on different nodes
    /// rarely share an id.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(fastrand::u32(..)));
        Self(NEXT.fetch_add(1, Ordering::Relaxed) % CHARGE_IDS * 4)
    }

    /// Parses the number of an id.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        (number.is_multiple_of(4) && number < CHARGE_IDS * 4).then_some(Self(number))
    }

    /// The id as a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn digits(self) -> [u8; CHARGE_ID_DIGITS] {
        decimal_digits(self.0.into())
    }
}

impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}
