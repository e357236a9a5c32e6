//! The pause of a key, and its evidence.

use crate::key::KeyId;
use crate::plan::BURST_WINDOW_S;

/// The number of requests in each second of the 60-second window, oldest first.
pub type PerSecondCounts = [u16; BURST_WINDOW_S as usize];

/// The pause of a key that exceeded the burst limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPause {
    /// The key.
    pub key: KeyId,
    /// The burst epoch of the pause. A resume starts the next epoch, so a late duplicate of an old pause is recognized.
    pub burst_epoch: u64,
    /// When the key was paused, as Unix time in milliseconds.
    pub at_ms: u64,
    /// The evidence: the requests of the 60 seconds before.
    pub counts: PerSecondCounts,
}
