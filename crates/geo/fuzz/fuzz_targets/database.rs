//! Opens arbitrary bytes as a database, looks up addresses and verifies it.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipseity_domain::Address;
use ipseity_geo::Atlas;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(atlas) = Atlas::from_bytes(Path::new("fuzz"), bytes.to_vec()) else { return };
    let known =
        [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
    let edges = [0, 1, u32::MAX >> 1, u32::MAX].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    for address in known.into_iter().chain(edges) {
        let facts = atlas.locate(Address::new(address), 1_790_000_000);
        // Facts must be valid values of a response.
        assert!(facts.location.latitude.is_none_or(f64::is_finite) && facts.location.longitude.is_none_or(f64::is_finite));
        assert_eq!(facts.location.latitude.is_some(), facts.location.longitude.is_some());
        assert!(facts.location.region_code.is_none_or(|code| code.is_ascii()));
    }
    let _ = atlas.verify();
});
