//! When a request arrived.

use std::time::Instant;

use crate::ledger_time::LedgerTime;

/// Number of remote slots.
pub const REMOTE_SLOTS: u8 = 30;

/// Identifies a remote node that may admit requests before they are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSlot(u8);

impl RemoteSlot {
    /// The slot with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (number < REMOTE_SLOTS).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// When a node received a request. It counts for the burst limit from then, however long its charge is on its way.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// By the clock of this node.
    Here(Instant),
    /// By the clock of the Redis server that owns the key. Never later than the truth.
    AtOwner(LedgerTime),
    /// A remote node received the request and sent its charge, both by the same clock.
    AtRemoteNode {
        /// When the request arrived.
        arrival: LedgerTime,
        /// When the remote node sent the charge. Its time limit starts then.
        sent_at: LedgerTime,
        /// The slot of the remote node, if it may admit requests before they are charged.
        slot: Option<RemoteSlot>,
    },
}
