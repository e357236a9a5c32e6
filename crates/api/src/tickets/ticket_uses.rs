//! How often tickets were used. Each node counts by itself, in memory only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::ticket::{Ticket, TicketId};
use crate::error::Refusal;

/// How long a ticket is counted after it has expired. The shards of Redis may have different clocks.
const KEPT_AFTER_EXPIRY_S: u64 = 60;

/// Counts the uses of tickets that have not expired.
pub(super) struct TicketUses {
    tickets_max: usize,
    state: Mutex<TicketUsesState>,
}

#[derive(Default)]
struct TicketUsesState {
    tickets: HashMap<TicketId, UsedTicket>,
    /// When tickets that have expired were last removed.
    purged_at_s: u64,
}

struct UsedTicket {
    uses: u8,
    expires_at_s: u64,
}

impl TicketUses {
    pub(super) fn new(tickets_max: usize) -> Self {
        Self { tickets_max, state: Mutex::default() }
    }

    /// Counts a use, unless the ticket is used up. Returns `false` if there are too many tickets to count this one: they
    /// must not exclude those of other keys.
    pub(super) fn take(&self, ticket: &Ticket, now_s: u64) -> Result<bool, Refusal> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = state.tickets.get_mut(&ticket.id) {
            if used.uses >= ticket.uses_max {
                return Err(Refusal::InvalidTicket);
            }
            used.uses += 1;
            return Ok(true);
        }
        if state.tickets.len() >= self.tickets_max && state.purged_at_s != now_s {
            state.purged_at_s = now_s;
            state.tickets.retain(|_, used| used.expires_at_s + KEPT_AFTER_EXPIRY_S >= now_s);
        }
        if state.tickets.len() >= self.tickets_max {
            return Ok(false);
        }
        state.tickets.insert(ticket.id, UsedTicket { uses: 1, expires_at_s: ticket.expires_at_s });
        Ok(true)
    }

    /// Uncounts a use that was not admitted.
    pub(super) fn give_back(&self, ticket: &Ticket) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = state.tickets.get_mut(&ticket.id) else { return };
        used.uses = used.uses.saturating_sub(1);
        if used.uses == 0 {
            state.tickets.remove(&ticket.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::{ApiKey, KeyDigest, KeyId, Scope};

    use super::*;

    fn ticket(number: u8) -> Ticket {
        Ticket {
            id: [number; 16],
            key: ApiKey { id: KeyId::parse("0123456789").expect("valid id"), digest: KeyDigest::new([9; 32]) },
            restriction_version: 0,
            scope: Scope::Ip,
            expires_at_s: 100,
            uses_max: 5,
            origin: None,
        }
    }

    #[test]
    fn ticket_is_used_up() {
        let uses = TicketUses::new(10);
        assert_eq!((0..5_000).filter(|_| uses.take(&ticket(1), 50).is_ok()).count(), 5);
        assert_eq!(uses.take(&ticket(2), 50), Ok(true), "tickets are counted separately");
        uses.give_back(&ticket(1));
        assert_eq!((0..100).filter(|_| uses.take(&ticket(1), 50).is_ok()).count(), 1);
    }

    #[test]
    fn number_of_counted_tickets_is_bounded() {
        let uses = TicketUses::new(2);
        assert_eq!([1, 2, 3].map(|number| uses.take(&ticket(number), 50)), [Ok(true), Ok(true), Ok(false)]);
        uses.give_back(&ticket(3));
        assert_eq!(uses.take(&ticket(4), 160), Ok(false), "they may still be valid");
        assert_eq!(uses.take(&ticket(4), 161), Ok(true));
        uses.give_back(&ticket(4));
        assert!(uses.state.lock().expect("not poisoned").tickets.is_empty());
    }
}
