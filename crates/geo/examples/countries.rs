//! Prints what follows from each country code given, one JSON object a line, asked of a database that tells the codes alone.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use domain::Address;
use geo::Atlas;
use ipnet::IpNet;
use mmdb_writer::{Value, Writer};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    for code in std::env::args().skip(1) {
        let mut writer = Writer::builder("country ipv4").description(&[("en", "One country")]).build();
        let record = Value::map([("country_code", Value::from(code.as_str()))]);
        writer.insert_value("0.0.0.0/0".parse::<IpNet>()?, record)?;
        let atlas = Atlas::decode(Path::new("country"), writer.to_bytes()?)?;
        let place = atlas.locate(Address::new(Ipv4Addr::LOCALHOST.into()), 0).place;
        let answer = json!({
            "country": place.country, "country_name": place.country_name, "continent": place.continent,
            "is_eu": place.is_eu, "currency": place.currency,
        });
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
