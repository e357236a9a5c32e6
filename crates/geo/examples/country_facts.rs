//! Prints the facts that follow from each given country code, one JSON object per line.
//!
//! It looks them up in a database that contains only the code.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::IpNet;
use ipseity_domain::Address;
use ipseity_geo::Atlas;
use mmdb_writer::{Value, Writer};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    for code in std::env::args().skip(1) {
        let mut writer = Writer::builder("country ipv4").description(&[("en", "One country")]).build();
        let record = Value::map([("country_code", Value::from(code.as_str()))]);
        writer.insert_value("0.0.0.0/0".parse::<IpNet>()?, record)?;
        let atlas = Atlas::from_bytes(Path::new("country"), writer.to_bytes()?)?;
        let location = atlas.locate(Address::new(Ipv4Addr::LOCALHOST.into()), 0).location;
        let output = json!({
            "country": location.country, "country_name": location.country_name, "continent": location.continent,
            "is_eu": location.is_eu, "currency": location.currency,
        });
        writeln!(out, "{output}")?;
    }
    Ok(())
}
