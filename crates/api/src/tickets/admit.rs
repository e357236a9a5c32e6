//! Admits requests with tickets.

use http::request::Parts;
use ipseity_domain::Client;

use super::Ticket;
use crate::admission::admitted::Admitted;
use crate::error::Refusal;
use crate::sealed::CLOCK_TOLERANCE_S;
use crate::state::Api;

impl Api {
    /// Reads a ticket that has not expired. It may have been used up or invalidated.
    pub(crate) fn open_ticket(&self, text: &str) -> Result<Ticket, Refusal> {
        let tickets = self.tickets.as_deref().ok_or(Refusal::InvalidTicket)?;
        let ticket = Ticket::open(&tickets.sealer, text, self.admission.sealing_time_s());
        let is_valid =
            |ticket: &Ticket| self.admission.now_of(&ticket.key).as_secs() <= ticket.expires_at_s + CLOCK_TOLERANCE_S;
        ticket.filter(is_valid).ok_or(Refusal::InvalidTicket)
    }

    /// Admits a request with a ticket. One that is not admitted is not a use of the ticket.
    pub(crate) async fn admit_ticket(&self, client: &Client, parts: &Parts, text: &str) -> Result<Admitted, Refusal> {
        let ticket = self.open_ticket(text)?;
        let tickets = self.tickets.as_deref().ok_or(Refusal::InvalidTicket)?;
        let is_counted = tickets.uses.take(&ticket, self.admission.now_of(&ticket.key).as_secs())?;
        if !is_counted {
            self.metrics.count_uncounted_ticket();
        }
        let admitted = self.admission.admit(client, parts, ticket.key, Some(&ticket)).await;
        match admitted {
            Ok(admitted) => Ok(admitted.narrowed_to(Some(ticket.scope.name())).without_burst_left()),
            Err(refusal) => {
                if is_counted {
                    tickets.uses.give_back(&ticket);
                }
                Err(refusal.for_ticket())
            }
        }
    }
}
