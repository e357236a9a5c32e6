//! Prints the facts about each address on standard input, one JSON object per line, in the order of the input.
//!
//! Usage: `locate NOW_S FILE...`, where `NOW_S` is the Unix time of the time zone offsets.

use std::error::Error;
use std::io::{self, BufRead, BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use ipseity_domain::Address;
use ipseity_geo::{Atlas, AtlasSources};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let now_s: i64 = arguments.next().ok_or("usage: locate NOW_S FILE...")?.parse()?;
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let atlas = Atlas::open(&AtlasSources { files, ..AtlasSources::default() })?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let address: IpAddr = line?.trim().parse()?;
        let facts = atlas.locate(Address::new(address), now_s);
        let (location, network) = (facts.location, facts.network);
        let output = json!({
            "city": location.city, "region": location.region, "region_code": location.region_code, "country": location.country,
            "country_name": location.country_name, "continent": location.continent, "latitude": location.latitude,
            "longitude": location.longitude, "timezone": location.timezone, "timezone_offset": location.timezone_offset,
            "postal_code": location.postal_code, "is_eu": location.is_eu, "currency": location.currency,
            "asn": network.asn, "org": network.org, "proxy": network.proxy, "hosting": network.hosting,
        });
        writeln!(out, "{output}")?;
    }
    Ok(out.flush()?)
}
