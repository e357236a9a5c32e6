//! Which proxies are trusted to report a client's address and connection.
//!
//! Addresses are compared in canonical form: an IPv4-mapped IPv6 address equals its IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ipseity_domain::Address;

use crate::{ConnectionHeaders, ForwardingHeader};

/// The networks of trusted proxies, the header in which they name their clients, and what else they report.
pub struct Trust {
    networks: Vec<IpNet>,
    forwarding_header: ForwardingHeader,
    connection_headers: ConnectionHeaders,
    pass_through: PassThrough,
}

/// What proxies with a PROXY header forward unchanged, so that it describes the client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassThrough {
    /// Nothing. They terminate HTTP and send new requests.
    #[default]
    Nothing,
    /// HTTP. They terminate TLS, so a TLS session seen here is theirs.
    Http,
    /// TLS, and HTTP within it.
    Tls,
}

/// Trusted networks so broad that untrusted clients could choose their address.
#[derive(Debug, thiserror::Error)]
pub enum UnsafeTrust {
    /// The network has a prefix length of 0.
    #[error(
        "the trusted network {0} contains every address, so any client could claim any address. List only the networks of your proxies."
    )]
    Everyone(IpNet),
    /// The network contains the whole IPv4-mapped block.
    #[error(
        "the trusted network {0} contains every IPv4 address in IPv4-mapped form, so any IPv4 client could claim any address. List the networks of your proxies in IPv4 notation."
    )]
    AllIpv4(IpNet),
    /// The networks together contain at least a sixteenth of the Internet, more than any operator's proxies.
    #[error(
        "the trusted networks contain a sixteenth or more of all {0} addresses, so other clients in them could claim any address. List only the networks of your proxies."
    )]
    TooBroad(&'static str),
}

/// The client of a request.
pub struct ClientOrigin {
    /// The client's address. Unknown if a trusted proxy does not name it.
    pub address: Address,
    /// The distance between client and peer.
    pub distance: Distance,
}

/// The distance between a client and the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The peer is the client.
    Direct,
    /// The peer is a trusted proxy that accepted the client's connection.
    OneHop,
    /// There are more proxies between them, or the client is unknown.
    Unknown,
}

/// One step in the search from the peer to the client.
pub enum TrustStep {
    /// The address is in a trusted network, so the entry before it is read.
    Trusted(Address),
    /// The address is in no trusted network, so it is the client.
    Untrusted(Address),
    /// The trusted peer sent no forwarding header, so it is the client.
    NoHeader,
    /// The entry is missing or not an address, so the client is unknown. A proxy's own address is never the client's.
    Unparsable,
}

impl Trust {
    /// Trusts the header from these networks. Returns an error if they are too broad.
    pub fn new(networks: Vec<IpNet>, header: ForwardingHeader) -> Result<Self, UnsafeTrust> {
        let networks = networks.into_iter().map(canonical_network).collect::<Result<Vec<_>, _>>()?;
        // Aggregated, so that two halves of the address space are recognized as all of it.
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

    /// Trusts no proxy.
    #[must_use]
    pub fn none() -> Self {
        Self {
            networks: Vec::new(),
            forwarding_header: ForwardingHeader::XForwardedFor,
            connection_headers: ConnectionHeaders::default(),
            pass_through: PassThrough::Nothing,
        }
    }

    /// Also trusts these headers about the client's connection, if the peer accepted that connection.
    #[must_use]
    pub fn with_connection_headers(self, connection_headers: ConnectionHeaders) -> Self {
        Self { connection_headers, ..self }
    }

    /// Sets what proxies with a PROXY header forward unchanged.
    #[must_use]
    pub fn with_pass_through(self, pass_through: PassThrough) -> Self {
        Self { pass_through, ..self }
    }

    /// Finds the client: the first address from the right that is in no trusted network.
    #[must_use]
    pub fn client_origin(&self, peer: Address, headers: &HeaderMap) -> ClientOrigin {
        self.trace_client_origin(peer, headers, |_| {})
    }

    /// Like [`Trust::client_origin`], and reports each step.
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
        let (mut client, mut hops) = (Address::UNKNOWN, 0);
        self.forwarding_header.walk_hops(headers, |hop| {
            (client, hops) = (hop.unwrap_or(Address::UNKNOWN), hops + 1);
            let is_trusted = self.is_trusted(client);
            if let Some(hop) = hop {
                on_step(if is_trusted { TrustStep::Trusted(hop) } else { TrustStep::Untrusted(hop) });
            }
            is_trusted
        });
        if client == Address::UNKNOWN {
            on_step(TrustStep::Unparsable);
            return ClientOrigin { address: client, distance: Distance::Unknown };
        }
        let distance = if hops == 1 { Distance::OneHop } else { Distance::Unknown };
        ClientOrigin { address: client, distance }
    }

    /// Whether the address is in a trusted network.
    #[must_use]
    pub fn is_trusted(&self, address: Address) -> bool {
        address.expose().is_some_and(|address| self.networks.iter().any(|network| network.contains(&address)))
    }

    /// The forwarding header that is read.
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

/// Rejects networks that contain a sixteenth of IPv4 or of global IPv6 (2000::/3). Private IPv6 networks do not count.
fn refuse_too_broad(networks: &[IpNet]) -> Result<(), UnsafeTrust> {
    const IPV4_ADDRESSES_MAX: u64 = 1 << 28;
    // In /64 networks, of which 2000::/3 has 2^61.
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
    // A network within the mapped block has a prefix of 97 to 128 bits.
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
        Trust::new(vec![network.parse().expect("network parses")], ForwardingHeader::XForwardedFor)
    }

    fn is_trusted(network: &str, address: &str) -> bool {
        let trust = trust(network).unwrap_or_else(|error| panic!("{error}"));
        trust.is_trusted(Address::new(address.parse().expect("address parses")))
    }

    #[test]
    fn network_covering_every_address_is_rejected() {
        for network in ["0.0.0.0/0", "::/0", "10.0.0.0/0", "2001:db8::/0"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::Everyone(_))), "{network} was accepted");
        }
        for network in ["::ffff:0:0/96", "::ffff:10.0.0.1/96", "::ffff:0:0/95", "::/80", "::/1"] {
            let Err(refused) = trust(network) else { panic!("{network} was accepted") };
            assert!(matches!(refused, UnsafeTrust::AllIpv4(_)), "{network}");
            assert!(refused.to_string().contains("every IPv4 address"), "{refused}");
        }
    }

    #[test]
    fn networks_that_together_cover_every_address_are_rejected() {
        for halves in [["0.0.0.0/1", "128.0.0.0/1"], ["::ffff:0.0.0.0/97", "128.0.0.0/1"]] {
            let halves = halves.map(|network| network.parse().expect("network parses")).to_vec();
            let refused = Trust::new(halves, ForwardingHeader::Forwarded);
            assert!(matches!(refused, Err(UnsafeTrust::Everyone(_))));
        }
    }

    #[test]
    fn networks_covering_much_of_the_internet_are_rejected() {
        for network in ["0.0.0.0/1", "128.0.0.0/4", "2000::/3", "2000::/7", "3000::/4"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::TooBroad(_))), "{network} was accepted");
        }
        for network in ["10.0.0.0/8", "fc00::/7", "104.16.0.0/13", "2400:cb00::/32", "2600::/12"] {
            assert!(trust(network).is_ok(), "{network} was refused");
        }
        let scattered = (0..32).map(|index| format!("{}.0.0.0/8", index * 7).parse().expect("network parses"));
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
        assert!(!Trust::none().is_trusted(Address::new("127.0.0.1".parse().expect("address parses"))));
    }
}
