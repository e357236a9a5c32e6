//! Small databases in both schemas.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use ipnet::IpNet;
use ipseity_domain::{Address, GeoFacts};
use ipseity_geo::{Atlas, AtlasSources};
use mmdb_writer::{Value, Writer};

/// 2026-07-02, summer in the northern hemisphere.
pub const NOW_S: i64 = 1_783_000_000;
pub const BUILD_EPOCH_S: u64 = 1_780_000_000;

/// A file that is removed when dropped.
pub struct TempFile(PathBuf);

impl TempFile {
    pub fn new(bytes: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ipseity-geo-{}-{number}.mmdb", std::process::id()));
        std::fs::write(&path, bytes).expect("temporary file is written");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn database_bytes(database_type: &str, records: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<u8> {
    let mut writer = Writer::builder(database_type)
        .description(&[("en", "A small database")])
        .build_epoch(UNIX_EPOCH + Duration::from_secs(BUILD_EPOCH_S))
        .build();
    for (network, record) in records {
        writer.insert_value(network.parse::<IpNet>().expect("network parses"), record).expect("record is inserted");
    }
    writer.to_bytes().expect("database is encoded")
}

pub fn database_file(database_type: &str, records: impl IntoIterator<Item = (&'static str, Value)>) -> TempFile {
    TempFile::new(&database_bytes(database_type, records))
}

pub fn atlas_sources(files: &[&TempFile]) -> AtlasSources {
    AtlasSources { files: files.iter().map(|file| file.path().to_owned()).collect(), ..AtlasSources::default() }
}

pub fn open_atlas(files: &[&TempFile]) -> Atlas {
    Atlas::open(&atlas_sources(files)).expect("databases open")
}

pub fn locate<'a>(atlas: &'a Atlas, address: &str) -> GeoFacts<'a> {
    atlas.locate(Address::new(address.parse::<IpAddr>().expect("address parses")), NOW_S)
}

pub fn mmdb_map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::map(entries)
}

pub fn named_value(code: &str, name: &str) -> Value {
    mmdb_map([("iso_code", code.into()), ("names", mmdb_map([("de", "anders".into()), ("en", name.into())]))])
}

pub fn country_record(code: &str, name: &str) -> Value {
    mmdb_map([("country", named_value(code, name))])
}

pub fn asn_record(number: u32, name: &str) -> Value {
    mmdb_map([("autonomous_system_number", number.into()), ("autonomous_system_organization", name.into())])
}

/// San Francisco, with two subdivisions and every field of a City record.
pub fn san_francisco_record() -> Value {
    mmdb_map([
        ("city", mmdb_map([("names", mmdb_map([("en", "San Francisco".into())]))])),
        ("continent", mmdb_map([("code", "NA".into()), ("names", mmdb_map([("en", "North America".into())]))])),
        ("country", named_value("US", "United States")),
        ("registered_country", named_value("CA", "Canada")),
        (
            "location",
            mmdb_map([
                ("latitude", 37.7749.into()),
                ("longitude", (-122.4194).into()),
                ("time_zone", "US/Pacific".into()),
                ("accuracy_radius", Value::U16(20)),
            ]),
        ),
        ("postal", mmdb_map([("code", "94107".into())])),
        ("subdivisions", Value::array([named_value("CA", "California"), named_value("SF", "San Francisco County")])),
    ])
}

/// Brisbane in the flat schema, with the fields that ip-location-db leaves empty.
pub fn brisbane_flat_record() -> Value {
    mmdb_map([
        ("city", "South Brisbane".into()),
        ("country_code", "AU".into()),
        ("latitude", Value::Float(-27.4767)),
        ("longitude", Value::Float(153.017)),
        ("postcode", "".into()),
        ("state1", "Queensland".into()),
        ("state2", "".into()),
        ("timezone", "".into()),
    ])
}
