//! A small City and a small ASN database, written on the spot from [`samples`]: the same bytes every time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use domain::{Network, Place};
use mmdb_writer::ipnet::IpNet;
use mmdb_writer::{Value, Writer};

use crate::samples;

/// When the databases claim to have been built: 2026-01-01.
pub const BUILD_UNIX_S: u64 = 1_767_225_600;

/// Writes both databases into a folder; city first.
pub fn write(folder: &Path) -> Result<[PathBuf; 2]> {
    let files = [folder.join("city.mmdb"), folder.join("asn.mmdb")];
    let mut city = writer("GeoLite2-City", "Places for tests", BUILD_UNIX_S);
    let mut asn = writer("GeoLite2-ASN", "Networks for tests", BUILD_UNIX_S);
    for sample in samples::ALL {
        let network: IpNet = sample.network.parse()?;
        if let Some(record) = city_record(&sample.facts.place) {
            city.insert_value(network, record)?;
        }
        if let Some(record) = asn_record(&sample.facts.network) {
            asn.insert_value(network, record)?;
        }
    }
    fs::write(&files[0], city.to_bytes()?)?;
    fs::write(&files[1], asn.to_bytes()?)?;
    Ok(files)
}

/// The bytes of a City database that claims to have been built at a time and knows these networks.
pub fn city(built_unix_s: u64, places: &[(&str, Place<'_>)]) -> Result<Vec<u8>> {
    city_called("GeoLite2-City", built_unix_s, places)
}

/// The same, under another name, which tells what kind of database it is.
pub fn city_called(name: &str, built_unix_s: u64, places: &[(&str, Place<'_>)]) -> Result<Vec<u8>> {
    let mut city = writer(name, "Places for tests", built_unix_s);
    for (network, place) in places {
        if let Some(record) = city_record(place) {
            city.insert_value(network.parse::<IpNet>()?, record)?;
        }
    }
    Ok(city.to_bytes()?)
}

fn writer(kind: &str, description: &str, built_unix_s: u64) -> Writer {
    let built = SystemTime::UNIX_EPOCH + Duration::from_secs(built_unix_s);
    // Readers that verify a file refuse one without a description.
    Writer::builder(kind).description(&[("en", description)]).build_epoch(built).build()
}

fn city_record(place: &Place<'_>) -> Option<Value> {
    let subdivision = place.region_code.and_then(|code| code.split_once('-')).map(|(_, own)| own);
    map([
        ("continent", map([("code", text(place.continent))])),
        (
            "country",
            map([
                ("iso_code", text(place.country)),
                ("names", english(place.country_name)),
                // As in the real databases: absent when false.
                ("is_in_european_union", place.is_eu.filter(|&is_eu| is_eu).map(Value::from)),
            ]),
        ),
        (
            "subdivisions",
            map([("iso_code", text(subdivision)), ("names", english(place.region))]).map(|first| Value::array([first])),
        ),
        ("city", map([("names", english(place.city))])),
        ("postal", map([("code", text(place.postal_code))])),
        (
            "location",
            map([
                ("latitude", place.latitude.map(Value::from)),
                ("longitude", place.longitude.map(Value::from)),
                ("accuracy_radius", place.accuracy_km.map(Value::from)),
                ("time_zone", text(place.timezone)),
            ]),
        ),
    ])
}

fn asn_record(network: &Network<'_>) -> Option<Value> {
    map([
        ("autonomous_system_number", network.asn.map(Value::from)),
        ("autonomous_system_organization", text(network.org)),
    ])
}

fn english(name: Option<&str>) -> Option<Value> {
    map([("en", text(name))])
}

fn text(text: Option<&str>) -> Option<Value> {
    text.map(Value::from)
}

/// A map of what is known; `None` when nothing is.
fn map<const N: usize>(entries: [(&str, Option<Value>); N]) -> Option<Value> {
    let known: Vec<(&str, Value)> =
        entries.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect();
    (!known.is_empty()).then(|| Value::map(known))
}
