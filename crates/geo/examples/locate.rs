//! Prints what is known of each address on standard input, one JSON object a line, in the order of the input.
//!
//! Usage: `locate NOW_S FILE...`, where `NOW_S` is the Unix time that time zone offsets are told for.

use std::error::Error;
use std::io::{self, BufRead, BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use domain::Address;
use geo::{Atlas, Sources};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let now_s: i64 = arguments.next().ok_or("usage: locate NOW_S FILE...")?.parse()?;
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let atlas = Atlas::open(&Sources { files, ..Sources::default() })?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let address: IpAddr = line?.trim().parse()?;
        let facts = atlas.locate(Address::new(address), now_s);
        let (place, network) = (facts.place, facts.network);
        let answer = json!({
            "city": place.city, "region": place.region, "region_code": place.region_code, "country": place.country,
            "country_name": place.country_name, "continent": place.continent, "latitude": place.latitude,
            "longitude": place.longitude, "timezone": place.timezone, "timezone_offset": place.timezone_offset,
            "postal_code": place.postal_code, "is_eu": place.is_eu, "currency": place.currency,
            "asn": network.asn, "org": network.org, "proxy": network.proxy, "hosting": network.hosting,
        });
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}
