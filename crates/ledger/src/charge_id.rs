//! The ids of charges.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names that there are: with the millisecond before it, an entry in the log is still a number that the store keeps in 64 bits.
const CHARGE_IDS: u32 = 500_000;
const CHARGE_ID_DIGITS: usize = 6;

/// Six digits that name a charge; with the millisecond before them they are its entry in the log. Always even: the odd number after it is
/// the entry of the same request if the day's limit refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeId(u32);

impl ChargeId {
    /// The next name of this process: two of its charges never share one within the reach of a log, as random names now and then
    /// did. Processes begin anywhere, so that they hardly meet.
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
