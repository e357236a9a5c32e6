//! A pause and its evidence.

use crate::key::KeyId;
use crate::plan::BURST_WINDOW_S;

/// Requests in each of the guilty minute's 60 seconds, oldest first; counts only.
pub type PerSecondCounts = [u16; BURST_WINDOW_S as usize];

/// A key that exceeded the burst limit: when, and what it did in the 60 seconds before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPause {
    /// The key.
    pub key: KeyId,
    /// The window it happened in: a resume opens the next, so that a late duplicate of an old pause is known as old.
    pub burst_epoch: u64,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The evidence.
    pub counts: PerSecondCounts,
}
