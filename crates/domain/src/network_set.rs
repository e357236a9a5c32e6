//! A set of networks that is read from a list and searched for every request.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::client::Address;

/// Networks of a list. Like [`Address`], it has no `Debug`, so that it cannot be logged by accident.
#[derive(Default)]
pub struct NetworkSet {
    /// Ranges of IPv4 addresses, sorted and apart from each other.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    network_count: usize,
}

/// Why a line of a list is not a network. It does not contain the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkLineError {
    /// It is not a network.
    #[error("it is neither an address nor a network such as 10.0.0.0/8")]
    Malformed,
    /// The address has bits after the prefix.
    #[error("its address has bits after the prefix, as in 10.0.0.7/8")]
    HostBits,
    /// It contains all addresses.
    #[error("it contains every address")]
    Everything,
}

impl NetworkSet {
    /// Parses a list with one address or network per line. Text after `#` is a comment.
    ///
    /// # Errors
    /// The number of the first line that is not a network, starting with 1, and why.
    pub fn parse(list: &str) -> Result<Self, (usize, NetworkLineError)> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(list.lines()) {
            let entry = line.split('#').next().unwrap_or_default().trim();
            match parse_network(entry).map_err(|error| (number, error))? {
                None => {}
                Some(IpNet::V4(network)) => v4.push((network.network().to_bits(), network.broadcast().to_bits())),
                Some(IpNet::V6(network)) => v6.push((network.network().to_bits(), network.broadcast().to_bits())),
            }
        }
        let network_count = v4.len() + v6.len();
        Ok(Self { v4: merge_ranges(v4), v6: merge_ranges(v6), network_count })
    }

    /// Whether the address is in one of the networks. An unknown address is in none.
    #[must_use]
    pub fn contains(&self, address: Address) -> bool {
        match address.expose() {
            None => false,
            Some(IpAddr::V4(address)) => is_in_ranges(&self.v4, address.to_bits()),
            Some(IpAddr::V6(address)) => is_in_ranges(&self.v6, address.to_bits()),
        }
    }

    /// The number of networks in the list.
    #[must_use]
    pub const fn network_count(&self) -> usize {
        self.network_count
    }
}

fn parse_network(entry: &str) -> Result<Option<IpNet>, NetworkLineError> {
    if entry.is_empty() {
        return Ok(None);
    }
    let network: IpNet = match entry.parse::<IpAddr>() {
        // Clients never have an IPv4-mapped address: it becomes IPv4.
        Ok(address) => address.to_canonical().into(),
        Err(_) => entry.parse().map_err(|_| NetworkLineError::Malformed)?,
    };
    let is_mapped = matches!(network.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if network.prefix_len() == 0 {
        Err(NetworkLineError::Everything)
    } else if is_mapped {
        Err(NetworkLineError::Malformed)
    } else if network.trunc() != network {
        Err(NetworkLineError::HostBits)
    } else {
        Ok(Some(network))
    }
}

/// Sorts ranges and joins those that overlap.
fn merge_ranges<T: Copy + Ord>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged.shrink_to_fit();
    merged
}

fn is_in_ranges<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let following = ranges.partition_point(|(first, _)| *first <= address);
    following.checked_sub(1).is_some_and(|index| ranges[index].1 >= address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("address parses"))
    }

    #[test]
    fn addresses_of_listed_networks_are_found() {
        let list = "# a comment\n198.51.100.0/25\n\n 203.0.113.7 # one\r\n2001:db8:1::/48\n2001:db8:2::9\n::ffff:192.0.2.1\n\
                    198.51.100.64/26\n10.0.0.0/8\n10.1.0.0/16\n";
        let set = NetworkSet::parse(list).map_err(|(line, error)| format!("{line}: {error}")).expect("valid list");
        assert_eq!(set.network_count(), 8);
        for found in [
            "198.51.100.0",
            "198.51.100.127",
            "203.0.113.7",
            "::ffff:203.0.113.7",
            "192.0.2.1",
            "10.255.255.255",
            "2001:db8:1:ffff::1",
            "2001:db8:2::9",
        ] {
            assert!(set.contains(address(found)), "{found}");
        }
        for other in
            ["198.51.100.128", "198.51.99.255", "203.0.113.8", "9.255.255.255", "11.0.0.0", "2001:db8:2::8", "::1"]
        {
            assert!(!set.contains(address(other)), "{other}");
        }
        assert!(!set.contains(Address::UNKNOWN));
        assert!(!NetworkSet::default().contains(address("198.51.100.0")));
    }

    #[test]
    fn invalid_line_is_named_by_its_number() {
        for (list, expected) in [
            ("198.51.100.0/24\nexample.com\n", (2, NetworkLineError::Malformed)),
            ("198.51.100.0/33", (1, NetworkLineError::Malformed)),
            ("\n\n198.51.100.7/24", (3, NetworkLineError::HostBits)),
            ("::ffff:198.51.100.0/120", (1, NetworkLineError::Malformed)),
            ("0.0.0.0/0", (1, NetworkLineError::Everything)),
            ("::/0", (1, NetworkLineError::Everything)),
        ] {
            assert_eq!(NetworkSet::parse(list).err(), Some(expected), "{list:?}");
        }
    }

    /// Compares the search with a scan over all networks.
    #[test]
    fn search_agrees_with_a_scan() {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let networks: Vec<IpNet> = (0..300)
            .map(|_| {
                let (bits, prefix) = ((next() & 0xff) << 8, 18 + (next() % 15) as u8);
                let network = ipnet::Ipv4Net::new(std::net::Ipv4Addr::from_bits(bits | (next() & 0xff)), prefix);
                IpNet::V4(network.expect("valid prefix").trunc())
            })
            .collect();
        let list = networks.iter().map(|network| format!("{network}\n")).collect::<String>();
        let Ok(set) = NetworkSet::parse(&list) else { panic!("valid list") };
        for bits in 0..=u32::from(u16::MAX) {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(bits));
            let is_listed = networks.iter().any(|network| network.contains(&address));
            assert_eq!(set.contains(Address::new(address)), is_listed, "{address}");
        }
    }
}
