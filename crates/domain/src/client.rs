//! The client of a request and its connection. The edge identifies it once; no other crate reads forwarding headers.

use std::net::{IpAddr, Ipv6Addr};

/// The client's address.
///
/// It has no `Debug`, `Display` or `Serialize`, so it cannot be logged or stored by accident. [`Address::expose`] is
/// the only way to read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address(IpAddr);

impl Address {
    /// Wraps the address of a socket or from a trusted proxy. An IPv4-mapped IPv6 address becomes IPv4.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }

    /// The plain address, to look it up and to return it to the client.
    #[must_use]
    pub fn expose(self) -> IpAddr {
        self.0
    }

    /// The subnet of one subscriber, for counters in memory.
    #[must_use]
    pub fn subnet(self) -> ClientSubnet {
        ClientSubnet(match self.0 {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        })
    }
}

/// An IPv4 address, or the /64 network of an IPv6 address, within which a subscriber can choose any address.
///
/// It can be compared and hashed, but not read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientSubnet(IpAddr);

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
        assert_eq!(mapped.expose(), "198.51.100.7".parse::<IpAddr>().expect("address parses"));
    }

    #[test]
    fn subnet_is_one_ipv4_address_or_an_ipv6_64() {
        let subnet_of = |text: &str| Address::new(text.parse().expect("address parses")).subnet();
        assert!(subnet_of("198.51.100.7") == subnet_of("::ffff:198.51.100.7"));
        assert!(subnet_of("198.51.100.7") != subnet_of("198.51.100.8"));
        assert!(subnet_of("2001:db8:1:2::1") == subnet_of("2001:db8:1:2:ffff::"));
        assert!(subnet_of("2001:db8:1:2::1") != subnet_of("2001:db8:1:3::1"));
        assert!(subnet_of("0.0.0.0") != subnet_of("::"));
    }

    #[test]
    fn colo_is_three_capital_letters() {
        assert_eq!(Colo::parse("FRA").as_ref().map(Colo::as_str), Some("FRA"));
        for invalid in ["", "FR", "FRAX", "fra", "F1A", "ÄÖ"] {
            assert!(Colo::parse(invalid).is_none(), "{invalid} was accepted");
        }
    }
}
