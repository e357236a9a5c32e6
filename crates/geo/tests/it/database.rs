//! Small databases in both schemas.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use domain::{Address, Facts};
use geo::{Atlas, Sources};
use ipnet::IpNet;
use mmdb_writer::{Value, Writer};

/// 2026-07-02, summer in the north.
pub const NOW_S: i64 = 1_783_000_000;
pub const BUILD_EPOCH_S: u64 = 1_780_000_000;

/// A file that is gone with its value.
pub struct File(PathBuf);

impl File {
    pub fn new(bytes: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ipseity-geo-{}-{number}.mmdb", std::process::id()));
        std::fs::write(&path, bytes).expect("the temporary folder can be written");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn bytes(database_type: &str, records: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<u8> {
    let mut writer = Writer::builder(database_type)
        .description(&[("en", "A small database")])
        .build_epoch(UNIX_EPOCH + Duration::from_secs(BUILD_EPOCH_S))
        .build();
    for (network, record) in records {
        writer.insert_value(network.parse::<IpNet>().expect("a network"), record).expect("a record");
    }
    writer.to_bytes().expect("a database")
}

pub fn file(database_type: &str, records: impl IntoIterator<Item = (&'static str, Value)>) -> File {
    File::new(&bytes(database_type, records))
}

pub fn sources(files: &[&File]) -> Sources {
    Sources { files: files.iter().map(|file| file.path().to_owned()).collect(), ..Sources::default() }
}

pub fn open(files: &[&File]) -> Atlas {
    Atlas::open(&sources(files)).expect("the files are sound")
}

pub fn locate<'a>(atlas: &'a Atlas, address: &str) -> Facts<'a> {
    atlas.locate(Address::new(address.parse::<IpAddr>().expect("an address")), NOW_S)
}

pub fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::map(entries)
}

pub fn named(code: &str, name: &str) -> Value {
    map([("iso_code", code.into()), ("names", map([("de", "anders".into()), ("en", name.into())]))])
}

pub fn country(code: &str, name: &str) -> Value {
    map([("country", named(code, name))])
}

pub fn network(number: u32, name: &str) -> Value {
    map([("autonomous_system_number", number.into()), ("autonomous_system_organization", name.into())])
}

/// San Francisco, with two subdivisions and all that a City record can hold.
pub fn san_francisco() -> Value {
    map([
        ("city", map([("names", map([("en", "San Francisco".into())]))])),
        ("continent", map([("code", "NA".into()), ("names", map([("en", "North America".into())]))])),
        ("country", named("US", "United States")),
        ("registered_country", named("CA", "Canada")),
        (
            "location",
            map([
                ("latitude", 37.7749.into()),
                ("longitude", (-122.4194).into()),
                ("time_zone", "US/Pacific".into()),
                ("accuracy_radius", Value::U16(20)),
            ]),
        ),
        ("postal", map([("code", "94107".into())])),
        ("subdivisions", Value::array([named("CA", "California"), named("SF", "San Francisco County")])),
    ])
}

/// Brisbane in the flat schema, with what its makers leave empty.
pub fn brisbane() -> Value {
    map([
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
