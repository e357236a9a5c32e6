//! Prints the facts about each AS number on standard input, one JSON object per line.
//!
//! It looks them up in a database that contains only the numbers.

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
    let asns: Vec<u32> =
        io::stdin().lock().lines().map(|line| Ok(line?.trim().parse()?)).collect::<Result<_, Box<dyn Error>>>()?;
    let mut writer = Writer::builder("asn").description(&[("en", "AS numbers")]).build();
    for (address, asn) in (0..).map(Ipv4Addr::from_bits).zip(&asns) {
        let record = Value::map([("autonomous_system_number", Value::U32(*asn))]);
        writer.insert_value(IpNet::new(address.into(), 32)?, record)?;
    }
    let atlas = Atlas::from_bytes(Path::new("networks"), writer.to_bytes()?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for address in (0..).map(Ipv4Addr::from_bits).take(asns.len()) {
        let network = atlas.locate(Address::new(address.into()), 0).network;
        let output = json!({
            "asn": network.asn, "org": network.org, "hosting": network.hosting, "proxy": network.proxy,
        });
        writeln!(out, "{output}")?;
    }
    Ok(out.flush()?)
}
