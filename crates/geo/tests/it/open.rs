//! Which files are taken, and what is said of the others.

use std::path::{Path, PathBuf};

use geo::{Atlas, Edition, GeoError, Kind};

use crate::database::{BUILD_EPOCH_S, File, bytes, country, file, locate, map, network, open, san_francisco};

fn refusal(path: &Path) -> GeoError {
    match Atlas::open(&[path.to_owned()]) {
        Ok(_) => panic!("{} was taken", path.display()),
        Err(error) => error,
    }
}

/// A database with an IPv4 and an IPv6 network, enough to have every part of the format.
fn sample() -> Vec<u8> {
    bytes("GeoLite2-City", [("198.51.100.0/24", san_francisco()), ("2001:db8::/32", country("FR", "France"))])
}

#[test]
fn an_edition_is_what_the_metadata_says() {
    let asn = file("GeoLite2-ASN", [("198.51.100.0/24", network(209, "Lumen"))]);
    let atlas = open(&[&asn]);
    let [edition] = atlas.editions() else { panic!("one file, one edition") };
    let Edition { kind, database_type, build_epoch_s, node_count, description } = edition.clone();
    assert_eq!((kind, database_type.as_str()), (Kind::Asn, "GeoLite2-ASN"));
    assert_eq!((build_epoch_s, description.as_str()), (BUILD_EPOCH_S, "A small database"));
    assert!(node_count > 24);
}

#[test]
fn a_missing_file_is_refused_by_name() {
    let error = refusal(&PathBuf::from("no/such/file.mmdb"));
    assert!(matches!(error, GeoError::Unreadable { .. }));
    assert!(error.to_string().starts_with("the database no/such/file.mmdb cannot be read: "), "{error}");
}

#[test]
fn a_file_that_is_no_mmdb_is_refused() {
    for content in [&b""[..], b"<html>", &[0; 4096]] {
        let file = File::new(content);
        let error = refusal(file.path());
        assert!(matches!(error, GeoError::Unsound { .. }), "{error}");
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = sample();
    for length in (0..whole.len()).step_by(7) {
        let file = File::new(&whole[..length]);
        assert!(matches!(refusal(file.path()), GeoError::Unsound { .. }), "{length} of {} bytes", whole.len());
    }
}

#[test]
fn an_unknown_type_is_refused_by_name() {
    let file = file("GeoIP2-Connection-Type", [("198.51.100.0/24", map([("connection_type", "Cable/DSL".into())]))]);
    let error = refusal(file.path());
    assert!(matches!(error, GeoError::UnknownType { .. }));
    assert!(error.to_string().contains("\"GeoIP2-Connection-Type\""), "{error}");
}

#[test]
fn a_file_in_another_schema_or_with_no_record_is_refused() {
    let flat = file("dbip-City", [("198.51.100.0/24", map([("country_code", "US".into()), ("city", "".into())]))]);
    assert!(matches!(refusal(flat.path()), GeoError::Unsound { .. }), "a city that is a text does not decode");
    let flat = file("geo-Country", [("198.51.100.0/24", map([("country_code", "US".into())]))]);
    assert!(matches!(refusal(flat.path()), GeoError::UnknownSchema { .. }));
    let empty = file("GeoLite2-City", []);
    assert!(matches!(refusal(empty.path()), GeoError::UnknownSchema { .. }));
}

#[test]
fn one_bad_file_refuses_all() {
    let (good, bad) = (File::new(&sample()), File::new(b"bad"));
    assert!(Atlas::open(&[good.path().to_owned(), bad.path().to_owned()]).is_err());
}

#[test]
fn no_damaged_byte_makes_a_panic() {
    let whole = sample();
    for place in 0..whole.len() {
        for damage in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] ^= damage;
            let file = File::new(&damaged);
            if let Ok(atlas) = Atlas::open(&[file.path().to_owned()]) {
                locate(&atlas, "198.51.100.7");
                locate(&atlas, "2001:db8::1");
            }
        }
    }
}
