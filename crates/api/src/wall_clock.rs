//! The clock of this machine, for responses that no store takes part in.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_ledger::LedgerTime;

/// The time of this machine.
pub(crate) fn wall_clock() -> LedgerTime {
    let elapsed_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    LedgerTime(u64::try_from(elapsed_ms).unwrap_or(u64::MAX))
}
