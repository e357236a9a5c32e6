use std::net::IpAddr;

use ipseity_domain::{Address, GeoFacts};
use ipseity_geo::{Atlas, AtlasSources};
use ipseity_testkit::TestDir;
use ipseity_testkit::fixtures::geo_database;
use ipseity_testkit::fixtures::samples;

const JANUARY_S: i64 = 1_800_000_000;

#[test]
fn every_geo_sample_is_located_as_listed() {
    let dir = TestDir::create().expect("create a directory");
    let files = geo_database::write_databases(dir.path()).expect("write the databases").into();
    let atlas = Atlas::open(&AtlasSources { files, ..AtlasSources::default() }).expect("atlas opens");
    let locate = |address: &str| {
        let address: IpAddr = address.parse().expect("valid address");
        atlas.locate(Address::new(address), JANUARY_S)
    };
    for sample in samples::ALL {
        let mut found = locate(sample.address);
        assert_eq!(
            found.location.timezone_offset.is_some(),
            sample.facts.location.timezone.is_some(),
            "{}",
            sample.address
        );
        if sample.facts.location.timezone_offset.is_none() {
            found.location.timezone_offset = None;
        }
        assert_eq!(found, sample.facts, "{}", sample.address);
    }
    assert_eq!(locate(samples::UNKNOWN_ADDRESS), GeoFacts::default());
}

#[test]
fn generated_databases_are_deterministic() {
    let read = || {
        let dir = TestDir::create().expect("create a directory");
        geo_database::write_databases(dir.path())
            .expect("write the databases")
            .map(|file| std::fs::read(file).expect("read the file"))
    };
    assert_eq!(read(), read());
}
