//! Geo databases, and the archives that they are downloaded in.

use std::io::Cursor;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipseity_domain::Address;
use ipseity_geo::Atlas;

#[path = "../../crates/server/src/geo/extract.rs"]
mod extract;

const DATABASE_BYTES_MAX: u64 = 65536;

/// Facts of any file that opens as a database are valid values of a response.
pub(crate) fn check_database(bytes: &[u8]) {
    let Ok(atlas) = Atlas::from_bytes(Path::new("fuzz"), bytes.to_vec()) else { return };
    let known =
        [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
    let edges = [0, 1, u32::MAX >> 1, u32::MAX].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    for address in known.into_iter().chain(edges) {
        let location = atlas.locate(Address::new(address), 1_790_000_000).location;
        assert!(location.latitude.is_none_or(f64::is_finite) && location.longitude.is_none_or(f64::is_finite));
        assert_eq!(location.latitude.is_some(), location.longitude.is_some());
        assert!(location.region_code.is_none_or(|code| code.is_ascii()));
    }
    let _ = atlas.verify();
}

/// An extracted file is never larger than allowed.
pub(crate) fn check_archive(bytes: &[u8]) {
    let mut extracted = Vec::new();
    if extract::extract_database(&mut Cursor::new(bytes), &mut extracted, DATABASE_BYTES_MAX).is_ok() {
        assert!(extracted.len() as u64 <= DATABASE_BYTES_MAX);
    }
}
