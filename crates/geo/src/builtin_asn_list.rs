//! The built-in list of hosting operators and VPN or proxy operators, by AS number.
//!
//! `builtin_asn_list.csv` has a reviewed line for each entry, with a name and a reason for reviewers. Nothing is
//! inferred from the name of a network. For example, "IP-VPN" is an enterprise product.

use std::sync::LazyLock;

/// The category of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AsnCategory {
    /// Hosting or cloud.
    Hosting,
    /// VPN, proxy or Tor exits.
    Proxy,
}

impl AsnCategory {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "hosting" => Some(Self::Hosting),
            "proxy" => Some(Self::Proxy),
            _ => None,
        }
    }
}

static BUILTIN_ASNS: LazyLock<Vec<(u32, AsnCategory)>> = LazyLock::new(|| {
    let mut listed: Vec<_> = include_str!("builtin_asn_list.csv").lines().skip(1).filter_map(parse_line).collect();
    listed.sort_unstable();
    listed
});

fn parse_line(line: &str) -> Option<(u32, AsnCategory)> {
    let mut fields = line.split(',');
    Some((fields.next()?.parse().ok()?, AsnCategory::parse(fields.next()?)?))
}

/// Whether the built-in list has the AS number in this category.
pub(crate) fn is_in_builtin_list(asn: u32, category: AsnCategory) -> bool {
    BUILTIN_ASNS.binary_search(&(asn, category)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_list_lines_are_complete_and_unique() {
        let lines: Vec<_> = include_str!("builtin_asn_list.csv").lines().collect();
        assert_eq!(lines[0], "asn,kind,name,reason");
        let keys: Vec<_> = lines[1..].iter().map(|line| parse_line(line).unwrap_or_else(|| panic!("{line}"))).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "the list is sorted by number and kind");
        assert!(lines.iter().all(|line| line.splitn(4, ',').filter(|field| !field.is_empty()).count() == 4));
    }

    #[test]
    fn well_known_operators_are_in_the_builtin_list() {
        for asn in [16509, 14618, 15169, 396_982, 8075, 14061, 24940, 16276, 13335, 54113, 36183] {
            assert!(is_in_builtin_list(asn, AsnCategory::Hosting), "{asn}");
        }
        for asn in [9009, 212_238, 60068, 62371, 39351, 216_025, 197_141, 36183, 64267, 4224] {
            assert!(is_in_builtin_list(asn, AsnCategory::Proxy), "{asn}");
        }
    }

    #[test]
    fn networks_shared_with_a_relay_are_not_proxies() {
        // Cloudflare and Fastly use the same AS for WARP or Private Relay and for everything else.
        for asn in [13335, 54113] {
            assert!(!is_in_builtin_list(asn, AsnCategory::Proxy), "{asn}");
        }
    }

    #[test]
    fn access_providers_are_not_in_the_builtin_list() {
        // 35540 is the access network of OVH, not its servers.
        for asn in [7922, 3320, 9318, 12389, 11426, 35540] {
            assert!(
                !is_in_builtin_list(asn, AsnCategory::Hosting) && !is_in_builtin_list(asn, AsnCategory::Proxy),
                "{asn}"
            );
        }
    }
}
