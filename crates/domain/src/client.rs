//! The client of a request and its connection. The edge identifies it once; no other crate reads forwarding headers.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

/// The client's address, or that it is unknown.
///
/// It has no `Debug`, `Display` or `Serialize`, so it cannot be logged or stored by accident. [`Address::expose`] is
/// the only way to read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address(Option<IpAddr>);

impl Address {
    /// The address of a client that a trusted proxy does not name.
    pub const UNKNOWN: Self = Self(None);

    /// Wraps the address of a socket or from a trusted proxy. An IPv4-mapped IPv6 address becomes IPv4.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self(Some(address.to_canonical()))
    }

    /// The plain address, to look it up and to return it to the client. `None` if it is unknown.
    #[must_use]
    pub fn expose(self) -> Option<IpAddr> {
        self.0
    }

    /// Whether the address is IPv4 or IPv6. `None` if it is unknown.
    #[must_use]
    pub fn family(self) -> Option<AddressFamily> {
        self.0.map(|address| if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 })
    }

    /// Whether the address is for use within a machine or a local network: loopback, private or link-local.
    #[must_use]
    pub fn is_private(self) -> bool {
        self.0.is_some_and(|address| match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
            IpAddr::V6(address) => {
                address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
            }
        })
    }

    /// The networks that may belong to the client, for counters in memory. Clients with an unknown address share one.
    #[must_use]
    pub fn subnet(self) -> ClientSubnet {
        match self.0 {
            None => ClientSubnet::V4(NetworkId::new(0, 0)),
            Some(IpAddr::V4(address)) => ClientSubnet::V4(NetworkId::new(32, address.to_bits().into())),
            Some(IpAddr::V6(address)) => ClientSubnet::V6(
                IPV6_PREFIXES.map(|(length, _)| NetworkId::new(length, address.to_bits() >> (128 - length))),
            ),
        }
    }
}

/// The family of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4, also if the address was written as an IPv6 address.
    Ipv4,
    /// IPv6
    Ipv6,
}

impl AddressFamily {
    /// The name in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// Lengths of the IPv6 prefixes that are counted, and how many times the limit of a /64 each has. Providers give a
/// subscriber a /64, a /56 or a /48, which has 65,536 networks of /64.
const IPV6_PREFIXES: [(u32, u32); 3] = [(64, 1), (56, 2), (48, LARGEST_SUBNET_FACTOR)];
/// How many times the limit of one caller a subscriber can have.
pub const LARGEST_SUBNET_FACTOR: u32 = 4;

/// An IPv4 address, or the /64, /56 and /48 networks of an IPv6 address. A subscriber has one of them, and can choose any
/// address in it.
#[derive(Clone, Copy)]
pub enum ClientSubnet {
    /// An IPv4 address, or all clients with an unknown address.
    V4(NetworkId),
    /// The networks of an IPv6 address, from the smallest to the largest.
    V6([NetworkId; IPV6_PREFIXES.len()]),
}

impl ClientSubnet {
    /// The networks to count, each with the factor by which its limit is larger than that of the smallest.
    pub fn networks(&self) -> impl Iterator<Item = (NetworkId, u32)> + Clone {
        let networks = match self {
            Self::V4(network) => std::slice::from_ref(network),
            Self::V6(networks) => networks,
        };
        networks.iter().copied().zip(IPV6_PREFIXES.map(|(_, factor)| factor))
    }
}

/// A network in a counter: its hash, with a random key that only this process has. So no counter contains an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetworkId(u64);

impl NetworkId {
    fn new(prefix_length: u32, prefix: u128) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEY.hash_one((prefix_length, prefix)))
    }
}

/// The client of a request.
#[derive(Clone, Copy)]
pub struct Client {
    /// The client's address.
    pub address: Address,
    /// The client's connection.
    pub connection: ConnectionFacts,
}

/// Facts about the client's connection. `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// HTTP version of the request.
    pub http_protocol: Option<HttpProtocol>,
    /// Whether the client used TLS. Known even where the session is not.
    pub is_encrypted: Option<bool>,
    /// TLS session. `None` on a plaintext connection.
    pub tls: Option<TlsInfo>,
    /// Round-trip time, in whole milliseconds.
    pub rtt_ms: Option<u32>,
    /// IATA code of the site that accepted the connection.
    pub colo: Option<Colo>,
}

/// HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl HttpProtocol {
    /// The name in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// A TLS session's version and cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// Negotiated version.
    pub version: TlsVersion,
    /// IANA name of the negotiated cipher suite. `None` if a proxy reported only the version.
    pub cipher: Option<&'static str>,
}

/// The supported TLS versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2
    V12,
    /// TLS 1.3
    V13,
}

impl TlsVersion {
    /// The name in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V12 => "TLSv1.2",
            Self::V13 => "TLSv1.3",
        }
    }
}

/// The IATA code of a site: three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colo([u8; 3]);

impl Colo {
    /// Parses a code. Returns `None` unless it is three capital ASCII letters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let code: [u8; 3] = text.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_mapped_address_becomes_ipv4() {
        let mapped = Address::new("::ffff:198.51.100.7".parse().expect("address parses"));
        assert_eq!(mapped.expose(), Some("198.51.100.7".parse::<IpAddr>().expect("address parses")));
        assert_eq!(mapped.family(), Some(AddressFamily::Ipv4));
        let ipv6 = Address::new("2001:db8::1".parse().expect("address parses"));
        assert_eq!((ipv6.family(), Address::UNKNOWN.family()), (Some(AddressFamily::Ipv6), None));
    }

    #[test]
    fn loopback_private_and_link_local_addresses_are_private() {
        let is_private = |text: &str| Address::new(text.parse().expect("address parses")).is_private();
        for private in ["127.0.0.2", "10.1.2.3", "192.168.1.1", "169.254.1.1", "::1", "fd12::1", "fe80::1"] {
            assert!(is_private(private), "{private}");
        }
        for public in ["198.51.100.7", "8.8.8.8", "100.64.0.1", "2001:db8::1", "::2"] {
            assert!(!is_private(public), "{public}");
        }
    }

    fn networks_of(text: &str) -> Vec<NetworkId> {
        let subnet = Address::new(text.parse().expect("address parses")).subnet();
        subnet.networks().map(|(network, _)| network).collect()
    }

    #[test]
    fn ipv4_client_has_one_network() {
        assert!(networks_of("198.51.100.7") == networks_of("::ffff:198.51.100.7"));
        assert!(networks_of("198.51.100.7") != networks_of("198.51.100.8"));
        assert_eq!(networks_of("198.51.100.7").len(), 1);
        let unknown = || Address::UNKNOWN.subnet().networks().map(|(network, _)| network).collect::<Vec<_>>();
        assert!(unknown() == unknown() && unknown() != networks_of("0.0.0.0"));
    }

    #[test]
    fn ipv6_client_has_a_64_a_56_and_a_48() {
        let client = networks_of("2001:db8:1:2::1");
        for (other, shared) in [
            ("2001:db8:1:2:ffff::", [true, true, true]),
            ("2001:db8:1:3::1", [false, true, true]),
            ("2001:db8:1:102::1", [false, false, true]),
            ("2001:db8:2:2::1", [false, false, false]),
        ] {
            let is_shared: Vec<bool> = networks_of(other).iter().zip(&client).map(|(a, b)| a == b).collect();
            assert_eq!(is_shared, shared, "{other}");
        }
        let unspecified = networks_of("::");
        assert!(unspecified[0] != unspecified[1] && unspecified[1] != unspecified[2]);
        assert!(!unspecified.contains(&networks_of("0.0.0.0")[0]));
    }

    #[test]
    fn colo_is_three_capital_letters() {
        assert_eq!(Colo::parse("FRA").as_ref().map(Colo::as_str), Some("FRA"));
        for invalid in ["", "FR", "FRAX", "fra", "F1A", "ÄÖ"] {
            assert!(Colo::parse(invalid).is_none(), "{invalid} was accepted");
        }
    }
}
