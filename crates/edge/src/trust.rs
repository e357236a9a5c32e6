//! Whose word is believed about a client's address, and about its connection.
//!
//! All comparison is of canonical addresses: an IPv4-mapped IPv6 address is IPv4, on both sides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::Address;
use http::HeaderMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{ForwardingHeader, Reports};

/// The networks of the proxies in front of the service, the one header in which they name their clients, and what else they tell.
pub struct Trust {
    networks: Vec<IpNet>,
    header: ForwardingHeader,
    reports: Reports,
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
    AllOfIpv4(IpNet),
    /// The networks together hold more of the Internet than anybody's proxies do.
    #[error(
        "the trusted networks hold a sixteenth of all {0} addresses or more, so that strangers among them could claim to be anyone; name only the networks of your own proxies"
    )]
    TooMany(&'static str),
}

/// Whose address is answered.
pub struct Origin {
    /// The client's address.
    pub address: Address,
    /// How far the client is from the peer.
    pub distance: Distance,
}

/// How far a client is from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The peer is the client.
    Here,
    /// The peer is a trusted proxy that took the client's connection itself.
    NextDoor,
    /// There are more proxies in between, or the client could not be named.
    Beyond,
}

/// One step on the way from the peer to the client.
pub enum Step {
    /// A trusted network holds this address: what it says of others is read.
    Trusted(Address),
    /// No trusted network holds this address: it is the client.
    Stranger(Address),
    /// The peer sent no such header: it is itself the client.
    Silent,
    /// What stands there is no address: the client is the last one that could be named.
    Unreadable,
}

impl Trust {
    /// Believes the header when it comes from these networks; refuses networks that hold everyone.
    pub fn new(networks: Vec<IpNet>, header: ForwardingHeader) -> Result<Self, UnsafeTrust> {
        let networks = networks.into_iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        // Merged, so that two halves of the world are seen to be all of it.
        let networks = IpNet::aggregate(&networks);
        if let Some(everyone) = networks.iter().find(|network| network.prefix_len() == 0) {
            return Err(UnsafeTrust::Everyone(*everyone));
        }
        refuse_too_many(&networks)?;
        Ok(Self { networks, header, reports: Reports::default(), pass_through: PassThrough::Nothing })
    }

    /// Believes nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self {
            networks: Vec::new(),
            header: ForwardingHeader::XForwardedFor,
            reports: Reports::default(),
            pass_through: PassThrough::Nothing,
        }
    }

    /// Believes these headers too, about the connection of a client that the peer took itself.
    #[must_use]
    pub fn with_reports(self, reports: Reports) -> Self {
        Self { reports, ..self }
    }

    /// Takes what the senders of PROXY headers pass on for the client's own.
    #[must_use]
    pub fn with_pass_through(self, pass_through: PassThrough) -> Self {
        Self { pass_through, ..self }
    }

    /// Finds the client: from the right, the first address that no trusted network holds.
    #[must_use]
    pub fn origin(&self, peer: Address, headers: &HeaderMap) -> Origin {
        self.follow(peer, headers, |_| {})
    }

    /// As [`Trust::origin`], and tells each step of the way.
    pub fn follow(&self, peer: Address, headers: &HeaderMap, mut tell: impl FnMut(Step)) -> Origin {
        if !self.holds(peer) {
            tell(Step::Stranger(peer));
            return Origin { address: peer, distance: Distance::Here };
        }
        tell(Step::Trusted(peer));
        if !headers.contains_key(self.header.name()) {
            tell(Step::Silent);
            return Origin { address: peer, distance: Distance::Here };
        }
        let (mut client, mut hops, mut named) = (peer, 0, true);
        self.header.walk(headers, |hop| {
            let Some(hop) = hop else {
                named = false;
                tell(Step::Unreadable);
                return false;
            };
            (client, hops) = (hop, hops + 1);
            let goes_on = self.holds(hop);
            tell(if goes_on { Step::Trusted(hop) } else { Step::Stranger(hop) });
            goes_on
        });
        let distance = if named && hops == 1 { Distance::NextDoor } else { Distance::Beyond };
        Origin { address: client, distance }
    }

    /// Whether a trusted network holds the address.
    #[must_use]
    pub fn holds(&self, address: Address) -> bool {
        self.networks.iter().any(|network| network.contains(&address.expose()))
    }

    /// The one header that is read.
    #[must_use]
    pub fn header(&self) -> ForwardingHeader {
        self.header
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.reports
    }

    pub(crate) fn pass_through(&self) -> PassThrough {
        self.pass_through
    }
}

/// No operator's proxies fill a sixteenth of IPv4, or of the part of IPv6 that is given out; private networks do not count there.
fn refuse_too_many(networks: &[IpNet]) -> Result<(), UnsafeTrust> {
    const IPV4_MAX: u64 = 1 << 28;
    // In networks of 64 bits, of which 2000::/3 has 2^61.
    const IPV6_MAX: u128 = 1 << 57;
    let global = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    let (mut ipv4, mut ipv6) = (0_u64, 0_u128);
    for network in networks {
        match network {
            IpNet::V4(network) => ipv4 += 1 << (32 - network.prefix_len()),
            IpNet::V6(network) if network.contains(&global) => ipv6 += IPV6_MAX,
            IpNet::V6(network) if global.contains(network) => ipv6 += 1 << 64_u8.saturating_sub(network.prefix_len()),
            IpNet::V6(_) => {}
        }
    }
    match (ipv4 >= IPV4_MAX, ipv6 >= IPV6_MAX) {
        (true, _) => Err(UnsafeTrust::TooMany("IPv4")),
        (_, true) => Err(UnsafeTrust::TooMany("IPv6")),
        (false, false) => Ok(()),
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
    fn networks_that_hold_much_of_the_internet_are_refused() {
        for network in ["0.0.0.0/1", "128.0.0.0/4", "2000::/3", "2000::/7", "3000::/4"] {
            assert!(matches!(trust(network), Err(UnsafeTrust::TooMany(_))), "{network} passed");
        }
        for network in ["10.0.0.0/8", "fc00::/7", "104.16.0.0/13", "2400:cb00::/32", "2600::/12"] {
            assert!(trust(network).is_ok(), "{network} was refused");
        }
        let scattered = (0..32).map(|place| format!("{}.0.0.0/8", place * 7).parse().expect("a network"));
        let refused = Trust::new(scattered.collect(), ForwardingHeader::XForwardedFor);
        assert!(matches!(refused, Err(UnsafeTrust::TooMany("IPv4"))));
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
