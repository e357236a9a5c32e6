//! Whose word is believed about a client's address.
//!
//! All comparison is of canonical addresses: an IPv4-mapped IPv6 address is IPv4, on both sides.

use std::net::{IpAddr, Ipv4Addr};

use domain::Address;
use http::HeaderMap;
use ipnet::{IpNet, Ipv4Net};

use crate::ForwardingHeader;

/// The networks of the proxies in front of the service, and the one header that they set.
pub struct Trust {
    networks: Vec<IpNet>,
    header: ForwardingHeader,
}

/// A trusted network that would let strangers choose their own address.
#[derive(Debug, thiserror::Error)]
pub enum UnsafeTrust {
    /// The network has a prefix of no bits.
    #[error(
        "the trusted network {0} holds every address, so that any caller could claim to be anyone; name only the networks of your own proxies"
    )]
    Everyone(IpNet),
    /// The network holds all of the IPv4-mapped block.
    #[error(
        "the trusted network {0} holds every IPv4 address in its IPv4-mapped form, so that any IPv4 caller could claim to be anyone; name the networks of your own proxies in IPv4 notation"
    )]
    AllOfIpv4(IpNet),
}

/// Whose address is answered.
pub struct Origin {
    /// The client's address.
    pub address: Address,
    /// Whether it came through a trusted proxy, so that the connection at hand is not the client's.
    pub forwarded: bool,
}

impl Trust {
    /// Believes the header when it comes from these networks; refuses networks that hold everyone.
    pub fn new(networks: Vec<IpNet>, header: ForwardingHeader) -> Result<Self, UnsafeTrust> {
        let networks = networks.into_iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        // Merged, so that two halves of the world are seen to be all of it.
        let networks = IpNet::aggregate(&networks);
        match networks.iter().find(|network| network.prefix_len() == 0) {
            Some(everyone) => Err(UnsafeTrust::Everyone(*everyone)),
            None => Ok(Self { networks, header }),
        }
    }

    /// Believes nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self { networks: Vec::new(), header: ForwardingHeader::XForwardedFor }
    }

    /// Finds the client: from the right, the first address that no trusted network holds.
    ///
    /// Where the walk meets something that is no address, the client is the last proxy that could be named.
    #[must_use]
    pub fn origin(&self, peer: Address, headers: &HeaderMap) -> Origin {
        let mut client = peer;
        let forwarded = self.holds(peer) && headers.contains_key(self.header.name());
        if forwarded {
            self.header.walk(headers, |hop| {
                client = hop;
                self.holds(hop)
            });
        }
        Origin { address: client, forwarded }
    }

    fn holds(&self, address: Address) -> bool {
        self.networks.iter().any(|network| network.contains(&address.expose()))
    }
}

fn canonical(network: IpNet) -> Result<IpNet, UnsafeTrust> {
    const MAPPED_BITS: u8 = 96;
    if network.prefix_len() == 0 {
        return Err(UnsafeTrust::Everyone(network));
    }
    let mapped = IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped());
    if network.prefix_len() <= MAPPED_BITS && network.contains(&mapped) {
        return Err(UnsafeTrust::AllOfIpv4(network));
    }
    // A network within the mapped block has more than its 96 bits, and at most 128.
    let inner = match network.addr().to_canonical() {
        IpAddr::V4(address) if matches!(network, IpNet::V6(_)) => {
            Ipv4Net::new(address, network.prefix_len().saturating_sub(MAPPED_BITS)).ok().map(IpNet::V4)
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    };
    Ok(inner.unwrap_or(network).trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(network: &str) -> Result<Trust, UnsafeTrust> {
        Trust::new(vec![network.parse().expect("a network")], ForwardingHeader::XForwardedFor)
    }

    fn holds(network: &str, address: &str) -> bool {
        let trust = trust(network).unwrap_or_else(|error| panic!("{error}"));
        trust.holds(Address::new(address.parse().expect("an address")))
    }

    #[test]
    fn networks_that_hold_everyone_are_refused() {
        for network in ["0.0.0.0/0", "::/0", "10.0.0.0/0", "2001:db8::/0"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::Everyone(_))), "{network} passed");
        }
        for network in ["::ffff:0:0/96", "::ffff:10.0.0.1/96", "::ffff:0:0/95", "::/80", "::/1"] {
            let Err(refused) = trust(network) else { panic!("{network} passed") };
            assert!(matches!(refused, UnsafeTrust::AllOfIpv4(_)), "{network}");
            assert!(refused.to_string().contains("every IPv4 address"), "{refused}");
        }
    }

    #[test]
    fn networks_that_together_hold_everyone_are_refused() {
        for halves in [["0.0.0.0/1", "128.0.0.0/1"], ["::ffff:0.0.0.0/97", "128.0.0.0/1"]] {
            let halves = halves.map(|network| network.parse().expect("a network")).to_vec();
            let refused = Trust::new(halves, ForwardingHeader::Forwarded);
            assert!(matches!(refused, Err(UnsafeTrust::Everyone(_))));
        }
    }

    #[test]
    fn notation_does_not_decide_only_bits() {
        assert!(holds("10.0.0.0/8", "10.1.2.3"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(holds("::ffff:a00:0/104", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.1.2.3/128", "10.1.2.3"));
        assert!(holds("10.1.2.3/8", "10.9.9.9"));
        assert!(holds("2001:db8::/32", "2001:db8::1"));
        assert!(!holds("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(!holds("::ffff:10.1.2.3/128", "10.1.2.4"));
        assert!(!holds("10.0.0.0/8", "::10.1.2.3"));
        assert!(!holds("2001:db8::/32", "2001:db9::1"));
    }

    #[test]
    fn nobody_is_trusted_by_nobody() {
        assert!(!Trust::nobody().holds(Address::new("127.0.0.1".parse().expect("an address"))));
    }
}
