//! Restrictions of a key: who may use it, and for how long. Its owner sets them.

pub mod network;
pub mod origin;
pub mod warning;

use crate::client::Address;
use crate::plan::BURST_LIMIT;
use network::AllowedNetwork;
use origin::AllowedOrigin;

/// Maximum number of allowed origins of a key.
pub const ORIGINS_MAX: usize = 20;
/// Maximum number of allowed networks of a key.
pub const NETWORKS_MAX: usize = 50;

/// The largest limit per caller. With the default burst limit a larger one has no effect: the key is paused first.
pub const CALLER_LIMIT_MAX: u32 = BURST_LIMIT as u32;

/// Why restrictions cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRestrictions {
    /// Too many allowed origins.
    #[error("a key has at most {ORIGINS_MAX} allowed origins")]
    TooManyOrigins,
    /// Too many allowed networks.
    #[error("a key has at most {NETWORKS_MAX} allowed networks")]
    TooManyNetworks,
    /// Such a key could neither be used nor create tickets.
    #[error("a key with allowed origins cannot create tickets, so it cannot accept only tickets")]
    TicketsWithOrigins,
}

/// What an owner sets. The default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Origins whose pages may use the key. Empty for any client, with or without an origin.
    pub origins: Vec<AllowedOrigin>,
    /// Networks whose addresses may use the key. Empty for any.
    pub networks: Vec<AllowedNetwork>,
    /// When the key expires, as Unix time in seconds.
    pub expires_at_s: Option<u64>,
    /// Requests per minute of one caller, at each node.
    pub caller_limit: Option<u32>,
    /// Requests per day. It only lowers the limit of the plan.
    pub daily_limit: Option<u64>,
    /// Whether the key itself is refused, and only its tickets are accepted.
    pub tickets_only: bool,
    /// The version at which all earlier tickets were invalidated. Not a time: the clocks of the stores may differ.
    pub tickets_since: u64,
}

/// The restrictions of a key, and their version. The default is a key that was never restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionedRestrictions {
    /// Raised by every change of the restrictions.
    pub version: u64,
    /// The restrictions.
    pub restrictions: Restrictions,
}

/// The `Origin` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin<'a> {
    /// It has none, or several.
    Missing,
    /// The value of the header.
    Value(&'a [u8]),
}

/// What a request proves its right with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The key itself.
    Key,
    /// A ticket of the key.
    Ticket {
        /// The version of the key's restrictions when the ticket was created.
        version: u64,
    },
}

/// Which restriction refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictionRefusal {
    /// The origin is not allowed.
    Origin,
    /// The address is not in an allowed network.
    Network,
    /// The caller has used its share of the key.
    Caller,
    /// The key accepts only tickets.
    TicketRequired,
    /// The ticket was invalidated.
    InvalidTicket,
}

impl Restrictions {
    /// Checks that the restrictions can be set.
    ///
    /// # Errors
    /// If there are too many entries, or no request could use the key.
    pub const fn validate(&self) -> Result<(), InvalidRestrictions> {
        if self.origins.len() > ORIGINS_MAX {
            Err(InvalidRestrictions::TooManyOrigins)
        } else if self.networks.len() > NETWORKS_MAX {
            Err(InvalidRestrictions::TooManyNetworks)
        } else if self.tickets_only && !self.origins.is_empty() {
            Err(InvalidRestrictions::TicketsWithOrigins)
        } else {
            Ok(())
        }
    }

    /// Checks a request. The limit of a caller is not checked here.
    ///
    /// # Errors
    /// If the request is not allowed.
    pub fn check(
        &self,
        credential: Credential,
        origin: RequestOrigin<'_>,
        address: Address,
    ) -> Result<(), RestrictionRefusal> {
        match credential {
            Credential::Key if self.tickets_only => return Err(RestrictionRefusal::TicketRequired),
            Credential::Ticket { version } if version < self.tickets_since => {
                return Err(RestrictionRefusal::InvalidTicket);
            }
            Credential::Key | Credential::Ticket { .. } => {}
        }
        let allows_origin = |origin| self.origins.iter().any(|allowed| allowed.allows(origin));
        if !self.origins.is_empty() && !matches!(origin, RequestOrigin::Value(origin) if allows_origin(origin)) {
            return Err(RestrictionRefusal::Origin);
        }
        // The networks are those of the owner's servers, which create the tickets for visitors.
        if credential == Credential::Key && !self.allows_address(address) {
            return Err(RestrictionRefusal::Network);
        }
        Ok(())
    }

    /// Whether a request with the key could be refused. Tickets that were invalidated do not count: later ones are accepted.
    #[must_use]
    pub fn restricts(&self) -> bool {
        *self != Self { tickets_since: self.tickets_since, ..Self::default() }
    }

    /// Whether an address is in an allowed network.
    #[must_use]
    pub fn allows_address(&self, address: Address) -> bool {
        let is_in_network = |address| self.networks.iter().any(|network| network.contains(address));
        self.networks.is_empty() || address.expose().is_some_and(is_in_network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("address parses"))
    }

    #[test]
    fn origin_list_refuses_requests_without_one_of_its_origins() {
        let origins = ["https://a.example", "https://b.example"].map(|text| AllowedOrigin::parse(text).expect("valid"));
        let restrictions = Restrictions { origins: origins.to_vec(), ..Restrictions::default() };
        let check = |origin| restrictions.check(Credential::Key, origin, address("192.0.2.1"));
        assert_eq!(check(RequestOrigin::Value(b"https://b.example")), Ok(()));
        for refused in
            [RequestOrigin::Missing, RequestOrigin::Value(b"null"), RequestOrigin::Value(b"https://c.example")]
        {
            assert_eq!(check(refused), Err(RestrictionRefusal::Origin), "{refused:?}");
        }
    }

    #[test]
    fn network_list_refuses_other_and_unknown_addresses() {
        let networks = vec![AllowedNetwork::parse("192.0.2.0/24").expect("valid network")];
        let restrictions = Restrictions { networks, ..Restrictions::default() };
        let check = |address| restrictions.check(Credential::Key, RequestOrigin::Missing, address);
        assert_eq!(check(address("192.0.2.1")), Ok(()));
        assert_eq!(check(address("::ffff:192.0.2.1")), Ok(()));
        for refused in [address("198.51.100.1"), address("2001:db8::1"), Address::UNKNOWN] {
            assert_eq!(check(refused), Err(RestrictionRefusal::Network));
            let ticket = Credential::Ticket { version: 0 };
            assert_eq!(restrictions.check(ticket, RequestOrigin::Missing, refused), Ok(()), "created by a server");
        }
    }

    #[test]
    fn empty_restrictions_refuse_nothing() {
        for credential in [Credential::Key, Credential::Ticket { version: 0 }] {
            let origin = RequestOrigin::Value(b"null");
            assert_eq!(Restrictions::default().check(credential, origin, Address::UNKNOWN), Ok(()));
        }
    }

    #[test]
    fn key_or_earlier_tickets_can_be_excluded() {
        let restrictions = Restrictions { tickets_only: true, tickets_since: 7, ..Restrictions::default() };
        let check = |credential| restrictions.check(credential, RequestOrigin::Missing, address("192.0.2.1"));
        assert_eq!(check(Credential::Key), Err(RestrictionRefusal::TicketRequired));
        assert_eq!(check(Credential::Ticket { version: 6 }), Err(RestrictionRefusal::InvalidTicket));
        assert_eq!(check(Credential::Ticket { version: 7 }), Ok(()));
    }
}
