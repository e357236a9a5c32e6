//! Opens each given file, looks up addresses, verifies the file, and prints the result, one JSON object per file.

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipseity_domain::Address;
use ipseity_geo::{Atlas, AtlasSources, GeoError};
use serde_json::json;

/// Number of addresses to look up in each file, half of them IPv4 and half IPv6.
const LOOKUPS: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    for file in std::env::args().skip(1) {
        let (outcome, reason) = match inspect_file(PathBuf::from(&file)) {
            Ok(known) => ("valid", format!("{known} of {LOOKUPS} addresses known")),
            Err(error) => ("rejected", error.to_string()),
        };
        writeln!(out, "{}", json!({ "file": file, "outcome": outcome, "reason": reason }))?;
    }
    Ok(())
}

fn inspect_file(file: PathBuf) -> Result<usize, GeoError> {
    let atlas = Atlas::open(&AtlasSources { files: vec![file], ..AtlasSources::default() })?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut known = 0;
    for _ in 0..LOOKUPS / 2 {
        let addresses =
            [IpAddr::from(Ipv4Addr::from_bits(rng.u32(..))), IpAddr::from(Ipv6Addr::from_bits(rng.u128(..)))];
        for address in addresses {
            let facts = atlas.locate(Address::new(address), 0);
            known += usize::from(facts.location.country.is_some() || facts.network.proxy.is_some());
        }
    }
    atlas.verify()?;
    Ok(known)
}
