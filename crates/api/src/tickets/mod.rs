//! Tickets: what a page sends in place of a key.
//!
//! A server creates a ticket with its key (`POST /api/v1/tickets`) and gives it to a visitor. The ticket works for a few lookups
//! in a few minutes. It seals the digest of the key, so that a lookup is charged and refused like one with the key itself.
//! Nothing is stored.

mod admit;
pub(crate) mod body;
pub(crate) mod bounds;
mod creation;
pub(crate) mod handler;
mod ticket;
mod ticket_uses;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::ticket::Ticket;
use self::ticket_uses::TicketUses;
use crate::limits::MinuteLimits;
use crate::minute_limiter::MinuteLimiter;
use crate::sealed::TokenSealer;

/// How many keys of one network can create tickets at their limit.
const KEYS_PER_SUBNET: u32 = 10;

/// Limits on tickets.
#[derive(Clone, Copy, Debug)]
pub struct TicketLimits {
    /// Maximum number of tickets that a key creates per minute.
    pub per_key_per_min_max: u32,
    /// How long a node waits for the body of a request for a ticket.
    pub body_timeout: Duration,
    /// Maximum number of tickets whose uses are counted, and of keys whose tickets are.
    pub counters_max: usize,
}

/// Creates and reads tickets.
pub struct Tickets {
    sealer: Arc<TokenSealer>,
    body_timeout: Duration,
    creations: MinuteLimiter,
    uses: TicketUses,
}

impl Tickets {
    /// All nodes must have the keys of this sealer, because a visitor may reach another node than the server did.
    #[must_use]
    pub fn new(sealer: Arc<TokenSealer>, limits: TicketLimits) -> Self {
        let creations = MinuteLimits {
            requests_per_key_per_min_max: limits.per_key_per_min_max,
            // One server may have several keys.
            requests_per_subnet_per_min_max: limits.per_key_per_min_max.saturating_mul(KEYS_PER_SUBNET),
            entries_max: limits.counters_max,
        };
        Self {
            sealer,
            body_timeout: limits.body_timeout,
            creations: MinuteLimiter::new(creations),
            uses: TicketUses::new(limits.counters_max),
        }
    }
}
