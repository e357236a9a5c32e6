//! Charge ids, which find a charge in the log if its reply was lost.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::columns::column;

/// Number of ids. The time in milliseconds followed by an id still fits into 64 bits, which Redis stores compactly.
const CHARGE_IDS: u32 = 500_000;
const CHARGE_ID_DIGITS: usize = column("charge_id").width;

/// An even number of six digits that identifies a charge in the log of its key.
///
/// The odd number after it marks the same request in the log if the daily quota rejected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeId(u32);

impl ChargeId {
    /// Returns the next id of this process.
    ///
    /// A process repeats its ids after 500,000 charges. Ids are looked up among the charges of one key within about two
    /// seconds, so they are unambiguous up to 200,000 charges per second and process. Each process starts at a random id, so charges
    /// of one key on different nodes rarely share an id.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(fastrand::u32(..)));
        Self(NEXT.fetch_add(1, Ordering::Relaxed) % CHARGE_IDS * 2)
    }

    pub(crate) fn digits(self) -> [u8; CHARGE_ID_DIGITS] {
        let mut rest = self.0;
        let mut digits = [b'0'; CHARGE_ID_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }
}

impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}
