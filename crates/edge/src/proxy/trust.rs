//! Whose word is believed about a client's address, and about its connection.
//!
//! All comparison is of canonical addresses: an IPv4-mapped IPv6 address is IPv4, on both sides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ipseity_domain::Address;

use crate::{ConnectionHeaders, ForwardingHeader};

/// The networks of the proxies in front of the service, the one header in which they name their clients, and what else they tell.
pub struct Trust {
    networks: Vec<IpNet>,
    forwarding_header: ForwardingHeader,
    connection_headers: ConnectionHeaders,
    pass_through: PassThrough,
}

/// What the proxies that send a PROXY header leave as the client sent it, so that what is seen of it here is the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassThrough {
    /// They read requests and send their own.
    #[default]
    Nothing,
    /// They pass the bytes of HTTP on; a TLS session seen here is theirs.
    Http,
    /// They pass the bytes of TLS on.
    Tls,
}

/// Trusted networks that would let strangers choose their own address.
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
    AllIpv4(IpNet),
    /// The networks together hold more of the Internet than anybody's proxies do.
    #[error(
        "the trusted networks hold a sixteenth of all {0} addresses or more, so that strangers among them could claim to be anyone; name only the networks of your own proxies"
    )]
    TooBroad(&'static str),
}

/// Whose address is answered.
pub struct ClientOrigin {
    /// The client's address.
    pub address: Address,
    /// How far the client is from the peer.
    pub distance: Distance,
}

/// How far a client is from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The peer is the client.
    Direct,
    /// The peer is a trusted proxy that took the client's connection itself.
    OneHop,
    /// There are more proxies in between, or the client could not be named.
    Unknown,
}

/// One step on the way from the peer to the client.
pub enum TrustStep {
    /// A trusted network holds this address: what it says of others is read.
    Trusted(Address),
    /// No trusted network holds this address: it is the client.
    Untrusted(Address),
    /// The peer sent no such header: it is itself the client.
    NoHeader,
    /// What stands there is no address: the client is the last one that could be named.
    Unparsable,
}

impl Trust {
    /// Believes the header when it comes from these networks; refuses networks that hold everyone.
    pub fn new(networks: Vec<IpNet>, header: ForwardingHeader) -> Result<Self, UnsafeTrust> {
        let networks = networks.into_iter().map(canonical_network).collect::<Result<Vec<_>, _>>()?;
        // Merged, so that two halves of the world are seen to be all of it.
        let networks = IpNet::aggregate(&networks);
        if let Some(everyone) = networks.iter().find(|network| network.prefix_len() == 0) {
            return Err(UnsafeTrust::Everyone(*everyone));
        }
        refuse_too_broad(&networks)?;
        Ok(Self {
            networks,
            forwarding_header: header,
            connection_headers: ConnectionHeaders::default(),
            pass_through: PassThrough::Nothing,
        })
    }

    /// Believes nobody.
    #[must_use]
    pub fn none() -> Self {
        Self {
            networks: Vec::new(),
            forwarding_header: ForwardingHeader::XForwardedFor,
            connection_headers: ConnectionHeaders::default(),
            pass_through: PassThrough::Nothing,
        }
    }

    /// Believes these headers too, about the connection of a client that the peer took itself.
    #[must_use]
    pub fn with_connection_headers(self, connection_headers: ConnectionHeaders) -> Self {
        Self { connection_headers, ..self }
    }

    /// Takes what the senders of PROXY headers pass on for the client's own.
    #[must_use]
    pub fn with_pass_through(self, pass_through: PassThrough) -> Self {
        Self { pass_through, ..self }
    }

    /// Finds the client: from the right, the first address that no trusted network holds.
    #[must_use]
    pub fn client_origin(&self, peer: Address, headers: &HeaderMap) -> ClientOrigin {
        self.trace_client_origin(peer, headers, |_| {})
    }

    /// As [`Trust::origin`], and tells each step of the way.
    pub fn trace_client_origin(
        &self,
        peer: Address,
        headers: &HeaderMap,
        mut on_step: impl FnMut(TrustStep),
    ) -> ClientOrigin {
        if !self.is_trusted(peer) {
            on_step(TrustStep::Untrusted(peer));
            return ClientOrigin { address: peer, distance: Distance::Direct };
        }
        on_step(TrustStep::Trusted(peer));
        if !headers.contains_key(self.forwarding_header.name()) {
            on_step(TrustStep::NoHeader);
            return ClientOrigin { address: peer, distance: Distance::Direct };
        }
        let (mut client, mut hops, mut is_named) = (peer, 0, true);
        self.forwarding_header.walk_hops(headers, |hop| {
            let Some(hop) = hop else {
                is_named = false;
                on_step(TrustStep::Unparsable);
                return false;
            };
            (client, hops) = (hop, hops + 1);
            let is_trusted = self.is_trusted(hop);
            on_step(if is_trusted { TrustStep::Trusted(hop) } else { TrustStep::Untrusted(hop) });
            is_trusted
        });
        let distance = if is_named && hops == 1 { Distance::OneHop } else { Distance::Unknown };
        ClientOrigin { address: client, distance }
    }

    /// Whether a trusted network holds the address.
    #[must_use]
    pub fn is_trusted(&self, address: Address) -> bool {
        self.networks.iter().any(|network| network.contains(&address.expose()))
    }

    /// The one header that is read.
    #[must_use]
    pub fn forwarding_header(&self) -> ForwardingHeader {
        self.forwarding_header
    }

    pub(crate) fn connection_headers(&self) -> &ConnectionHeaders {
        &self.connection_headers
    }

    pub(crate) fn pass_through(&self) -> PassThrough {
        self.pass_through
    }
}

/// No operator's proxies fill a sixteenth of IPv4, or of the part of IPv6 that is given out; private networks do not count there.
fn refuse_too_broad(networks: &[IpNet]) -> Result<(), UnsafeTrust> {
    const IPV4_ADDRESSES_MAX: u64 = 1 << 28;
    // In networks of 64 bits, of which 2000::/3 has 2^61.
    const IPV6_SUBNETS_MAX: u128 = 1 << 57;
    let global = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    let (mut ipv4, mut ipv6) = (0_u64, 0_u128);
    for network in networks {
        match network {
            IpNet::V4(network) => ipv4 += 1 << (32 - network.prefix_len()),
            IpNet::V6(network) if network.contains(&global) => ipv6 += IPV6_SUBNETS_MAX,
            IpNet::V6(network) if global.contains(network) => ipv6 += 1 << 64_u8.saturating_sub(network.prefix_len()),
            IpNet::V6(_) => {}
        }
    }
    match (ipv4 >= IPV4_ADDRESSES_MAX, ipv6 >= IPV6_SUBNETS_MAX) {
        (true, _) => Err(UnsafeTrust::TooBroad("IPv4")),
        (_, true) => Err(UnsafeTrust::TooBroad("IPv6")),
        (false, false) => Ok(()),
    }
}

fn canonical_network(network: IpNet) -> Result<IpNet, UnsafeTrust> {
    const MAPPED_PREFIX_BITS: u8 = 96;
    if network.prefix_len() == 0 {
        return Err(UnsafeTrust::Everyone(network));
    }
    let mapped = IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped());
    if network.prefix_len() <= MAPPED_PREFIX_BITS && network.contains(&mapped) {
        return Err(UnsafeTrust::AllIpv4(network));
    }
    // A network within the mapped block has more than its 96 bits, and at most 128.
    let inner = match network.addr().to_canonical() {
        IpAddr::V4(address) if matches!(network, IpNet::V6(_)) => {
            Ipv4Net::new(address, network.prefix_len().saturating_sub(MAPPED_PREFIX_BITS)).ok().map(IpNet::V4)
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

    fn is_trusted(network: &str, address: &str) -> bool {
        let trust = trust(network).unwrap_or_else(|error| panic!("{error}"));
        trust.is_trusted(Address::new(address.parse().expect("an address")))
    }

    #[test]
    fn network_covering_every_address_is_refused() {
        for network in ["0.0.0.0/0", "::/0", "10.0.0.0/0", "2001:db8::/0"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::Everyone(_))), "{network} passed");
        }
        for network in ["::ffff:0:0/96", "::ffff:10.0.0.1/96", "::ffff:0:0/95", "::/80", "::/1"] {
            let Err(refused) = trust(network) else { panic!("{network} passed") };
            assert!(matches!(refused, UnsafeTrust::AllIpv4(_)), "{network}");
            assert!(refused.to_string().contains("every IPv4 address"), "{refused}");
        }
    }

    #[test]
    fn networks_that_together_cover_every_address_are_refused() {
        for halves in [["0.0.0.0/1", "128.0.0.0/1"], ["::ffff:0.0.0.0/97", "128.0.0.0/1"]] {
            let halves = halves.map(|network| network.parse().expect("a network")).to_vec();
            let refused = Trust::new(halves, ForwardingHeader::Forwarded);
            assert!(matches!(refused, Err(UnsafeTrust::Everyone(_))));
        }
    }

    #[test]
    fn networks_covering_much_of_the_internet_are_refused() {
        for network in ["0.0.0.0/1", "128.0.0.0/4", "2000::/3", "2000::/7", "3000::/4"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::TooBroad(_))), "{network} passed");
        }
        for network in ["10.0.0.0/8", "fc00::/7", "104.16.0.0/13", "2400:cb00::/32", "2600::/12"] {
            assert!(trust(network).is_ok(), "{network} was refused");
        }
        let scattered = (0..32).map(|index| format!("{}.0.0.0/8", index * 7).parse().expect("a network"));
        let refused = Trust::new(scattered.collect(), ForwardingHeader::XForwardedFor);
        assert!(matches!(refused, Err(UnsafeTrust::TooBroad("IPv4"))));
    }

    #[test]
    fn trust_does_not_depend_on_address_notation() {
        assert!(is_trusted("10.0.0.0/8", "10.1.2.3"));
        assert!(is_trusted("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(is_trusted("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(is_trusted("::ffff:a00:0/104", "::ffff:10.1.2.3"));
        assert!(is_trusted("::ffff:10.1.2.3/128", "10.1.2.3"));
        assert!(is_trusted("10.1.2.3/8", "10.9.9.9"));
        assert!(is_trusted("2001:db8::/32", "2001:db8::1"));
        assert!(!is_trusted("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(!is_trusted("::ffff:10.1.2.3/128", "10.1.2.4"));
        assert!(!is_trusted("10.0.0.0/8", "::10.1.2.3"));
        assert!(!is_trusted("2001:db8::/32", "2001:db9::1"));
    }

    #[test]
    fn empty_trust_trusts_no_address() {
        assert!(!Trust::none().is_trusted(Address::new("127.0.0.1".parse().expect("an address"))));
    }
}
