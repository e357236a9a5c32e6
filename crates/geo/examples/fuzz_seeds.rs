//! Writes small databases of every schema and record size to a directory, as seeds for fuzzing.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use ipnet::IpNet;
use mmdb_writer::{RecordSize, Value, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("usage: fuzz_seeds DIR")?);
    fs::create_dir_all(&dir)?;
    for (size, record_size) in [(24, RecordSize::Bits24), (28, RecordSize::Bits28), (32, RecordSize::Bits32)] {
        for (name, record) in seed_records() {
            let mut writer = Writer::builder(name)
                .description(&[("en", "A seed")])
                .record_size(record_size)
                .build_epoch(UNIX_EPOCH)
                .build();
            for network in ["198.51.100.0/24", "2001:db8::/32"] {
                writer.insert_value(network.parse::<IpNet>()?, record.clone())?;
            }
            fs::write(dir.join(format!("{}-{size}.mmdb", name.replace(' ', "-"))), writer.to_bytes()?)?;
        }
    }
    Ok(())
}

fn seed_records() -> [(&'static str, Value); 4] {
    let names = || Value::map([("en", Value::from("Oslo")), ("de", Value::from("Oslo"))]);
    let named = |code: &str| Value::map([("iso_code", Value::from(code)), ("names", names())]);
    let traits = Value::map([("autonomous_system_number", Value::U32(2119))]);
    let location = Value::map([
        ("latitude", Value::from(59.9)),
        ("longitude", Value::from(10.7)),
        ("time_zone", Value::from("Europe/Oslo")),
    ]);
    [
        (
            "GeoLite2-City",
            Value::map([
                ("city", Value::map([("names", names())])),
                ("continent", Value::map([("code", Value::from("EU"))])),
                ("country", named("NO")),
                ("registered_country", named("NO")),
                ("subdivisions", Value::array([named("03"), named("3")])),
                ("location", location),
                ("postal", Value::map([("code", Value::from("0150"))])),
                ("traits", traits),
            ]),
        ),
        (
            "city ipv6",
            Value::map([
                ("city", Value::from("Oslo")),
                ("country_code", Value::from("NO")),
                ("latitude", Value::Float(59.9)),
                ("longitude", Value::Float(10.7)),
                ("postcode", Value::from("")),
                ("state1", Value::from("Oslo")),
                ("timezone", Value::from("")),
            ]),
        ),
        (
            "GeoLite2-ASN",
            Value::map([
                ("autonomous_system_number", Value::U32(2119)),
                ("autonomous_system_organization", Value::from("Telenor")),
            ]),
        ),
        (
            "GeoIP2-Anonymous-IP",
            Value::map([("is_anonymous", Value::from(true)), ("is_tor_exit_node", Value::from(true))]),
        ),
    ]
}
