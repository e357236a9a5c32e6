//! Restrictions of a key: who may use it, and for how long. Its owner sets them.

pub mod network;
pub mod origin;

use crate::client::Address;
use crate::plan::BURST_LIMIT;
use network::AllowedNetwork;
use origin::AllowedOrigin;

/// Maximum number of allowed origins of a key.
pub const ORIGINS_MAX: usize = 20;
/// Maximum number of allowed networks of a key.
pub const NETWORKS_MAX: usize = 50;

/// The largest limit per caller. A larger one has no effect: the burst limit pauses the key first.
pub const CALLER_LIMIT_MAX: u32 = BURST_LIMIT as u32;

/// Too many entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyEntries {
    /// Of allowed origins.
    #[error("a key has at most {ORIGINS_MAX} allowed origins")]
    Origins,
    /// Of allowed networks.
    #[error("a key has at most {NETWORKS_MAX} allowed networks")]
    Networks,
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
}

/// The restrictions of a key, and their version.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Which restriction refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictionRefusal {
    /// The origin is not allowed.
    Origin,
    /// The address is not in an allowed network.
    Network,
    /// The caller has used its share of the key.
    Caller,
}

impl Restrictions {
    /// Checks the number of entries.
    ///
    /// # Errors
    /// If there are too many.
    pub const fn check_lengths(&self) -> Result<(), TooManyEntries> {
        if self.origins.len() > ORIGINS_MAX {
            Err(TooManyEntries::Origins)
        } else if self.networks.len() > NETWORKS_MAX {
            Err(TooManyEntries::Networks)
        } else {
            Ok(())
        }
    }

    /// Checks the origin and the address of a request. The limit of a caller is not checked here.
    ///
    /// # Errors
    /// If one of them is not allowed.
    pub fn check(&self, origin: RequestOrigin<'_>, address: Address) -> Result<(), RestrictionRefusal> {
        let allows_origin = |origin| self.origins.iter().any(|allowed| allowed.allows(origin));
        if !self.origins.is_empty() && !matches!(origin, RequestOrigin::Value(origin) if allows_origin(origin)) {
            return Err(RestrictionRefusal::Origin);
        }
        let is_in_network = |address| self.networks.iter().any(|network| network.contains(address));
        if !self.networks.is_empty() && !address.expose().is_some_and(is_in_network) {
            return Err(RestrictionRefusal::Network);
        }
        Ok(())
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
        let check = |origin| restrictions.check(origin, address("192.0.2.1"));
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
        assert_eq!(restrictions.check(RequestOrigin::Missing, address("192.0.2.1")), Ok(()));
        assert_eq!(restrictions.check(RequestOrigin::Missing, address("::ffff:192.0.2.1")), Ok(()));
        for refused in [address("198.51.100.1"), address("2001:db8::1"), Address::UNKNOWN] {
            assert_eq!(restrictions.check(RequestOrigin::Missing, refused), Err(RestrictionRefusal::Network));
        }
    }

    #[test]
    fn empty_restrictions_refuse_nothing() {
        assert_eq!(Restrictions::default().check(RequestOrigin::Value(b"null"), Address::UNKNOWN), Ok(()));
    }
}
