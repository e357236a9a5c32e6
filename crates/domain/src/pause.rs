//! A pause and its evidence.

use crate::key::KeyId;
use crate::limit::BURST_WINDOW_S;

/// Requests in each of the guilty minute's 60 seconds, oldest first; counts only.
pub type PauseCounts = [u16; BURST_WINDOW_S as usize];

/// A key that exceeded the burst limit: when, and what it did in the 60 seconds before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The key.
    pub key: KeyId,
    /// The window it happened in: a resume opens the next, so that a late duplicate of an old pause is known as old.
    pub window: u64,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The evidence.
    pub counts: PauseCounts,
}
