//! Which files are taken, and what is said of the others.

use std::path::{Path, PathBuf};

use geo::{Atlas, Edition, GeoError, Kind, Sources};

use crate::database::{
    BUILD_EPOCH_S, File, brisbane, bytes, country, file, locate, map, network, open, san_francisco, sources,
};

fn refusal(path: &Path) -> GeoError {
    match Atlas::open(&Sources { files: vec![path.to_owned()], ..Sources::default() }) {
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
    let Edition { kind, database_type, build_epoch_s, ip_version, node_count, description } = edition.clone();
    assert_eq!((kind, database_type.as_str()), (Kind::Asn, "GeoLite2-ASN"));
    assert_eq!((build_epoch_s, description.as_str()), (BUILD_EPOCH_S, "A small database"));
    assert_eq!(ip_version, 6);
    assert!(node_count > 24);
}

#[test]
fn a_missing_file_is_refused_by_name() {
    let error = refusal(&PathBuf::from("no/such/file.mmdb"));
    assert!(matches!(error, GeoError::Unreadable { .. }));
    assert!(error.to_string().starts_with("the file no/such/file.mmdb cannot be read: "), "{error}");
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
    assert!(matches!(error, GeoError::Foreign { .. }));
    assert!(error.to_string().contains("\"GeoIP2-Connection-Type\""), "{error}");
}

#[test]
fn a_file_in_another_schema_or_with_no_record_is_refused() {
    let odd = file("GeoLite2-City", [("198.51.100.0/24", map([("country", "US".into())]))]);
    let error = refusal(odd.path());
    assert!(matches!(error, GeoError::UnknownSchema { .. }), "{error}");
    assert!(error.to_string().contains("has records in an unknown schema: "), "{error}");
    let empty = file("GeoLite2-City", []);
    assert!(matches!(refusal(empty.path()), GeoError::Foreign { .. }));
}

#[test]
fn what_a_file_tells_is_seen_from_its_records_when_its_type_does_not_say() {
    let place = file("ours", [("198.51.100.0/24", country("FR", "France"))]);
    let asn = file("ours", [("198.51.100.0/24", network(209, "Lumen"))]);
    let vpn = file("ours", [("198.51.100.0/24", map([("is_anonymous_vpn", true.into())]))]);
    let atlas = open(&[&place, &asn, &vpn]);
    let kinds: Vec<_> = atlas.editions().iter().map(|edition| edition.kind).collect();
    assert_eq!(kinds, [Kind::City, Kind::Asn, Kind::Anonymous]);
    let facts = locate(&atlas, "198.51.100.7");
    assert_eq!((facts.place.country, facts.network.asn), (Some("FR"), Some(209)));
    assert_eq!((facts.network.proxy, facts.network.hosting), (Some(true), Some(false)));
}

#[test]
fn a_type_that_promises_what_the_records_do_not_tell_is_not_believed() {
    let asn = file("City of networks", [("198.51.100.0/24", network(209, "Lumen"))]);
    assert_eq!(open(&[&asn]).editions()[0].kind, Kind::Asn);
}

#[test]
fn a_sound_file_is_verified_with_and_without_a_description() {
    assert!(open(&[&File::new(&sample())]).verify().is_ok());
    let mut undescribed = mmdb_writer::Writer::builder("city ipv6").build();
    undescribed
        .insert_value("2001:db8::/32".parse::<ipnet::IpNet>().expect("a network"), brisbane())
        .expect("a record");
    assert!(open(&[&File::new(&undescribed.to_bytes().expect("a database"))]).verify().is_ok());
}

#[test]
fn a_damaged_record_that_opening_does_not_meet_is_found_by_verifying() {
    // A record far from the sampled ones: of many networks, one in the middle.
    let networks: Vec<String> = (0..6000).map(|number| format!("2001:db8:{number:x}::/48")).collect();
    let leaked = networks.into_iter().map(|network| &*network.leak());
    let records =
        leaked.enumerate().map(|(number, network)| (network, country("FR", &format!("Unique name {number}"))));
    let mut whole = bytes("GeoLite2-Country", records);
    let name = b"Unique name 5000";
    let place = whole.windows(name.len()).position(|window| window == name).expect("the name is in the file");
    // No text in UTF-8.
    whole[place] = 0xff;
    let atlas = open(&[&File::new(&whole)]);
    let error = atlas.verify().expect_err("a damaged record");
    assert!(matches!(error, GeoError::Unsound { .. } | GeoError::UnknownSchema { .. }), "{error}");
}

#[test]
fn one_bad_file_refuses_all() {
    let (good, bad) = (File::new(&sample()), File::new(b"bad"));
    assert!(Atlas::open(&sources(&[&good, &bad])).is_err());
}

#[test]
fn no_damaged_byte_makes_a_panic() {
    let whole = sample();
    for place in 0..whole.len() {
        for damage in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] ^= damage;
            let file = File::new(&damaged);
            if let Ok(atlas) = Atlas::open(&sources(&[&file])) {
                locate(&atlas, "198.51.100.7");
                locate(&atlas, "2001:db8::1");
                let _ = atlas.verify();
            }
        }
    }
}
