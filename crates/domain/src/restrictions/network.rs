//! Allowed networks of a key: the addresses that may use it.

use std::net::IpAddr;

use ipnet::IpNet;

/// A network such as `198.51.100.0/24`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedNetwork(IpNet);

/// Why an entry is not a network that can be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is not a network.
    #[error("is not a network. Enter an address or a network such as 198.51.100.0/24")]
    Malformed,
    /// The address has bits after the prefix.
    #[error("has bits after its prefix. The network is {0}")]
    HostBits(AllowedNetwork),
    /// It allows all addresses.
    #[error("allows every address")]
    Everything,
}

impl AllowedNetwork {
    /// Parses what an owner entered. An address without a prefix length is a network of one address.
    ///
    /// # Errors
    /// If it is not a network, or allows every address.
    pub fn parse(entry: &str) -> Result<Self, NetworkError> {
        let entry = entry.trim();
        let network: IpNet = match entry.parse::<IpAddr>() {
            Ok(address) => address.into(),
            Err(_) => entry.parse().map_err(|_| NetworkError::Malformed)?,
        };
        if network.prefix_len() == 0 {
            return Err(NetworkError::Everything);
        }
        // Clients never have such an address: it becomes IPv4.
        if let IpAddr::V6(address) = network.addr()
            && address.to_ipv4_mapped().is_some()
        {
            return Err(NetworkError::Malformed);
        }
        if network.trunc() != network {
            return Err(NetworkError::HostBits(Self(network.trunc())));
        }
        Ok(Self(network))
    }

    /// Whether an address belongs to the network.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether it is an IPv4 network.
    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }
}

impl std::fmt::Display for AllowedNetwork {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_addresses_are_parsed() {
        for (entry, text) in [
            ("198.51.100.0/24", "198.51.100.0/24"),
            (" 198.51.100.7 ", "198.51.100.7/32"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("2001:db8::7", "2001:db8::7/128"),
        ] {
            assert_eq!(AllowedNetwork::parse(entry).map(|network| network.to_string()).as_deref(), Ok(text), "{entry}");
        }
    }

    #[test]
    fn everything_host_bits_and_garbage_are_rejected() {
        for entry in ["", "198.51.100.0/33", "198.51.100/24", "example.com", "::ffff:198.51.100.7", "1.2.3.4/24/24"] {
            assert_eq!(AllowedNetwork::parse(entry), Err(NetworkError::Malformed), "{entry}");
        }
        for entry in ["0.0.0.0/0", "::/0"] {
            assert_eq!(AllowedNetwork::parse(entry), Err(NetworkError::Everything), "{entry}");
        }
        let error = AllowedNetwork::parse("198.51.100.7/24").expect_err("host bits");
        assert!(error.to_string().contains("198.51.100.0/24"), "{error}");
    }

    #[test]
    fn network_contains_its_addresses() {
        let network = AllowedNetwork::parse("198.51.100.0/25").expect("valid network");
        for (address, is_contained) in [("198.51.100.127", true), ("198.51.100.128", false), ("2001:db8::1", false)] {
            assert_eq!(network.contains(address.parse().expect("address parses")), is_contained, "{address}");
        }
    }
}
