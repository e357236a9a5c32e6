//! The token of pairing: a sealed address and when it expires.

use std::net::{IpAddr, Ipv6Addr};

use ipseity_domain::{Address, Client};

use crate::sealed::{CLOCK_TOLERANCE_S, Purpose, TokenSealer};

const PURPOSE: Purpose = Purpose("pair");

/// Why a token was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedToken {
    Expired,
    /// The token has an address of the same family as the connection, or the family of the connection is unknown.
    SameFamily,
    /// The token was changed, is for another origin or service, or its key is gone.
    Unreadable,
}

impl UnusedToken {
    /// The value of the response header.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::SameFamily => "same-family",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Seals the address of a client. All tokens have the same length: an IPv4 address is written as an IPv6 address. `None` if
/// the address is unknown.
pub(super) fn seal(
    sealer: &TokenSealer,
    origin: &[u8],
    address: Address,
    lifetime_s: u64,
    now_s: u64,
) -> Option<String> {
    let address = match address.expose()? {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let content = [&address.octets()[..], &(now_s + lifetime_s).to_be_bytes()].concat();
    sealer.seal(PURPOSE, origin, &content, now_s).ok()
}

/// The address of a token that was sealed for this origin.
pub(super) fn open(sealer: &TokenSealer, origin: &[u8], token: &[u8], now_s: u64) -> Result<Address, UnusedToken> {
    let content = sealer.open(PURPOSE, origin, token, now_s).ok_or(UnusedToken::Unreadable)?;
    let (address, expires_s) = content.split_first_chunk().ok_or(UnusedToken::Unreadable)?;
    let expires_s = u64::from_be_bytes(expires_s.try_into().map_err(|_| UnusedToken::Unreadable)?);
    if now_s > expires_s + CLOCK_TOLERANCE_S {
        return Err(UnusedToken::Expired);
    }
    Ok(Address::new(Ipv6Addr::from_octets(*address).into()))
}

/// The address, if its family is not that of the client.
pub(super) fn check_family(address: Address, client: &Client) -> Result<Address, UnusedToken> {
    let is_other = client.address.family().is_some_and(|family| address.family() != Some(family));
    if is_other { Ok(address) } else { Err(UnusedToken::SameFamily) }
}
