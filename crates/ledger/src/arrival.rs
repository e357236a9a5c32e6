//! When a request arrived.

use std::time::Instant;

use crate::ledger_time::LedgerTime;

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
    },
}
