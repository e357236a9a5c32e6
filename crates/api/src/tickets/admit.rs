//! Admits requests with tickets.

use http::request::Parts;
use ipseity_domain::Client;

use super::Ticket;
use super::bounds::LIFETIME_S_MAX;
use crate::admission::admitted::Admitted;
use crate::admission::restricted::request_origin;
use crate::error::Refusal;
use crate::sealed::CLOCK_TOLERANCE_S;
use crate::state::Api;

impl Api {
    /// Reads a ticket that has not expired. It may have been used up or invalidated.
    pub(crate) fn open_ticket(&self, text: &str) -> Result<Ticket, Refusal> {
        let tickets = self.tickets.as_deref().ok_or(Refusal::InvalidTicket)?;
        let ticket = Ticket::open(&tickets.sealer, text, self.admission.sealing_time_s());
        let is_valid = |ticket: &Ticket| {
            let now_s = self.admission.now_of(&ticket.key).as_secs();
            // If the clock was set back, no ticket lives longer than a new one.
            now_s <= ticket.expires_at_s + CLOCK_TOLERANCE_S
                && ticket.expires_at_s <= now_s + LIFETIME_S_MAX + CLOCK_TOLERANCE_S
        };
        ticket.filter(is_valid).ok_or(Refusal::InvalidTicket)
    }

    /// Admits a request with a ticket. It is a use of the ticket if it counts toward a limit of the key.
    pub(crate) async fn admit_ticket(&self, client: &Client, parts: &Parts, text: &str) -> Result<Admitted, Refusal> {
        let ticket = self.open_ticket(text)?;
        let tickets = self.tickets.as_deref().ok_or(Refusal::InvalidTicket)?;
        // A request from another origin is refused, and the ticket of a visitor must not be used up by it.
        let is_foreign = !ticket.allows(request_origin(&parts.headers));
        let is_counted = !is_foreign && tickets.uses.take(&ticket, self.admission.sealing_time_s())?;
        if !is_counted && !is_foreign {
            self.metrics.count_uncounted_ticket();
        }
        let admitted = self.admission.admit(client, parts, ticket.key, Some(&ticket)).await;
        match admitted {
            Ok(admitted) => Ok(admitted.narrowed_to(Some(ticket.scope.name())).without_burst_left()),
            Err(refusal) => {
                if is_counted && !refusal.counts_toward_burst() {
                    tickets.uses.give_back(&ticket);
                }
                Err(refusal.for_ticket())
            }
        }
    }
}
