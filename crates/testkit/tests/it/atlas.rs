use std::net::IpAddr;

use domain::{Address, Facts};
use geo::{Atlas, Sources};
use testkit::{Folder, atlas, samples};

const JANUARY_S: i64 = 1_800_000_000;

#[test]
fn every_sample_is_located_as_its_table_says() {
    let folder = Folder::open().expect("a folder");
    let files = atlas::write(folder.path()).expect("two databases").into();
    let atlas = Atlas::open(&Sources { files, ..Sources::default() }).expect("an atlas");
    let locate = |address: &str| {
        let address: IpAddr = address.parse().expect("an address");
        atlas.locate(Address::new(address), JANUARY_S)
    };
    for sample in samples::ALL {
        let mut found = locate(sample.address);
        assert_eq!(found.place.timezone_offset.is_some(), sample.facts.place.timezone.is_some(), "{}", sample.address);
        if sample.facts.place.timezone_offset.is_none() {
            found.place.timezone_offset = None;
        }
        assert_eq!(found, sample.facts, "{}", sample.address);
    }
    assert_eq!(locate(samples::UNKNOWN), Facts::default());
}

#[test]
fn the_databases_are_the_same_bytes_every_time() {
    let read = || {
        let folder = Folder::open().expect("a folder");
        atlas::write(folder.path()).expect("two databases").map(|file| std::fs::read(file).expect("a file"))
    };
    assert_eq!(read(), read());
}
