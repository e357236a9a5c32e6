//! What the restrictions of a key say about a request.

use std::sync::Arc;

use http::HeaderMap;
use http::header::ORIGIN;
use http::request::Parts;
use ipseity_domain::{
    Address, Client, Credential, RequestOrigin, RestrictionRefusal, Restrictions, VersionedRestrictions,
};
use ipseity_ledger::{AppliedRestrictions, LedgerTime};

use crate::admission::caller_limits::CallerRefusal;
use crate::error::Refusal;
use crate::tickets::Ticket;

/// Who sent a request.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    headers: &'a HeaderMap,
    pub(super) address: Address,
    /// `None` if the request has the key itself.
    pub(super) ticket: Option<&'a Ticket>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(client: &Client, parts: &'a Parts, ticket: Option<&'a Ticket>) -> Self {
        Self { headers: &parts.headers, address: client.address, ticket }
    }

    /// The origin. Most requests do not need it.
    pub(super) fn origin(&self) -> RequestOrigin<'a> {
        request_origin(self.headers)
    }

    pub(super) fn credential(&self) -> Credential {
        self.ticket.map_or(Credential::Key, Ticket::credential)
    }

    /// Whether the request has a ticket for another origin.
    pub(super) fn has_foreign_ticket(&self) -> bool {
        self.ticket.is_some_and(|ticket| !ticket.allows(self.origin()))
    }
}

/// The `Origin` of a request.
pub(crate) fn request_origin(headers: &HeaderMap) -> RequestOrigin<'_> {
    let mut values = headers.get_all(ORIGIN).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => RequestOrigin::Value(value.as_bytes()),
        (None, _) | (_, Some(_)) => RequestOrigin::Missing,
    }
}

/// The restrictions that this node knows of a key.
#[derive(Clone)]
pub(super) struct KnownRestrictions {
    pub(super) versioned: Arc<VersionedRestrictions>,
    /// The subscription epoch in which they were read.
    pub(super) epoch: u64,
}

/// The restrictions that were applied to a request, and what they say.
#[derive(Clone)]
pub(super) struct Restricted {
    pub(super) restrictions: Option<KnownRestrictions>,
    pub(super) refusal: Option<RestrictionRefusal>,
    /// What the limit per caller says.
    pub(super) caller: Result<(), CallerRefusal>,
    /// The caller that the request is counted for.
    pub(super) counted: Option<Address>,
}

impl Default for Restricted {
    fn default() -> Self {
        Self { restrictions: None, refusal: None, caller: Ok(()), counted: None }
    }
}

impl Restricted {
    /// The restrictions, without their version.
    pub(super) fn restrictions(&self) -> Option<&Restrictions> {
        self.restrictions.as_ref().map(|known| &known.versioned.restrictions)
    }

    pub(super) fn applied(&self) -> AppliedRestrictions {
        let version = self.restrictions.as_ref().map_or(0, |known| known.versioned.version);
        AppliedRestrictions { version, is_refused: self.refusal.is_some() }
    }

    /// Whether the key has allowed origins, so that it is in a page.
    pub(super) fn has_origins(&self) -> bool {
        self.restrictions().is_some_and(|restrictions| !restrictions.origins.is_empty())
    }

    /// Whether the key has expired at this time.
    pub(super) fn has_expired(&self, now: LedgerTime) -> bool {
        let expires_at_s = self.restrictions().and_then(|restrictions| restrictions.expires_at_s);
        expires_at_s.is_some_and(|expires_at_s| now.as_secs() >= expires_at_s)
    }

    /// The response to a request that the restrictions refuse.
    pub(super) fn refusal(&self, now: LedgerTime) -> Refusal {
        match (self.refusal, self.caller) {
            (Some(RestrictionRefusal::Origin), _) => Refusal::OriginNotAllowed,
            (Some(RestrictionRefusal::Network), _) => Refusal::NetworkNotAllowed,
            (Some(RestrictionRefusal::TicketRequired), _) => Refusal::TicketRequired,
            (Some(RestrictionRefusal::InvalidTicket), _) => Refusal::InvalidTicket,
            (Some(RestrictionRefusal::Caller), Err(CallerRefusal { limit, retry_after_s })) => {
                Refusal::CallerLimited { now, limit, retry_after_s }
            }
            (Some(RestrictionRefusal::Caller) | None, _) => Refusal::Internal,
        }
    }
}
