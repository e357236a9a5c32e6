//! Prints the time zone and offset for each line on standard input, one JSON list per line, in the order of the input.
//!
//! A line is a JSON list: `["Europe/Kiev", NOW_S]`, or `[LATITUDE, LONGITUDE, NOW_S]` for the zone of a point. The
//! lines become records of a small database, in which an address is looked up for each.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::IpNet;
use ipseity_domain::Address;
use ipseity_geo::Atlas;
use mmdb_writer::{Value, Writer};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let lines: Vec<Vec<serde_json::Value>> = io::stdin()
        .lock()
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let mut address_bits = HashMap::new();
    let mut writer = Writer::builder("zones").description(&[("en", "Time zones")]).build();
    for line in &lines {
        let (_, query) = line.split_last().ok_or("the line is empty")?;
        let bits = u32::try_from(address_bits.len())?;
        if address_bits.contains_key(query) {
            continue;
        }
        address_bits.insert(query, bits);
        let mut record = vec![("country_code", Value::from("ZZ"))];
        match query {
            [zone] => record.push(("timezone", zone.as_str().ok_or("the zone must be a string")?.into())),
            [latitude, longitude] => {
                record.push(("latitude", latitude.as_f64().ok_or("the latitude must be a number")?.into()));
                record.push(("longitude", longitude.as_f64().ok_or("the longitude must be a number")?.into()));
            }
            _ => return Err("a line must be [zone, now] or [latitude, longitude, now]".into()),
        }
        writer.insert_value(IpNet::new(Ipv4Addr::from_bits(bits).into(), 32)?, Value::map(record))?;
    }
    let atlas = Atlas::from_bytes(Path::new("zones"), writer.to_bytes()?)?;

    let mut out = BufWriter::new(io::stdout().lock());
    for line in &lines {
        let (now_s, query) = line.split_last().ok_or("the line is empty")?;
        let address = Address::new(Ipv4Addr::from_bits(address_bits[query]).into());
        let location = atlas.locate(address, now_s.as_i64().ok_or("the time must be an integer")?).location;
        writeln!(out, "{}", json!([location.timezone, location.timezone_offset]))?;
    }
    Ok(out.flush()?)
}
