//! Which files are accepted, and the errors of the others.

use std::path::{Path, PathBuf};

use ipseity_geo::{Atlas, AtlasSources, DatabaseKind, Edition, GeoError};

use crate::fixture::{
    BUILD_EPOCH_S, TempFile, asn_record, atlas_sources, brisbane_flat_record, country_record, database_bytes,
    database_file, locate, mmdb_map, open_atlas, san_francisco_record,
};

fn open_error(path: &Path) -> GeoError {
    match Atlas::open(&AtlasSources { files: vec![path.to_owned()], ..AtlasSources::default() }) {
        Ok(_) => panic!("{} was accepted", path.display()),
        Err(error) => error,
    }
}

/// A database with an IPv4 and an IPv6 network, so that it has every part of the format.
fn sample_database() -> Vec<u8> {
    database_bytes(
        "GeoLite2-City",
        [("198.51.100.0/24", san_francisco_record()), ("2001:db8::/32", country_record("FR", "France"))],
    )
}

#[test]
fn edition_matches_the_database_metadata() {
    let asn = database_file("GeoLite2-ASN", [("198.51.100.0/24", asn_record(209, "Lumen"))]);
    let atlas = open_atlas(&[&asn]);
    let [edition] = atlas.editions() else { panic!("one file has one edition") };
    let Edition { kind, database_type, build_epoch_s, ip_version, node_count, description } = edition.clone();
    assert_eq!((kind, database_type.as_str()), (DatabaseKind::Asn, "GeoLite2-ASN"));
    assert_eq!((build_epoch_s, description.as_str()), (BUILD_EPOCH_S, "A small database"));
    assert_eq!(ip_version, 6);
    assert!(node_count > 24);
}

#[test]
fn missing_database_error_names_the_file() {
    let error = open_error(&PathBuf::from("no/such/file.mmdb"));
    assert!(matches!(error, GeoError::Unreadable { .. }));
    assert!(error.to_string().starts_with("failed to read no/such/file.mmdb: "), "{error}");
}

#[test]
fn non_mmdb_file_is_rejected() {
    for content in [&b""[..], b"<html>", &[0; 4096]] {
        let file = TempFile::new(content);
        let error = open_error(file.path());
        assert!(matches!(error, GeoError::InvalidMmdb { .. }), "{error}");
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}

#[test]
fn truncated_database_is_rejected() {
    let complete = sample_database();
    for length in (0..complete.len()).step_by(7) {
        let file = TempFile::new(&complete[..length]);
        assert!(
            matches!(open_error(file.path()), GeoError::InvalidMmdb { .. }),
            "{length} of {} bytes",
            complete.len()
        );
    }
}

#[test]
fn unsupported_database_type_is_rejected_by_name() {
    let file = database_file(
        "GeoIP2-Connection-Type",
        [("198.51.100.0/24", mmdb_map([("connection_type", "Cable/DSL".into())]))],
    );
    let error = open_error(file.path());
    assert!(matches!(error, GeoError::UnsupportedType { .. }));
    assert!(error.to_string().contains("\"GeoIP2-Connection-Type\""), "{error}");
}

#[test]
fn unknown_schema_or_empty_database_is_rejected() {
    let unknown_schema = database_file("GeoLite2-City", [("198.51.100.0/24", mmdb_map([("country", "US".into())]))]);
    let error = open_error(unknown_schema.path());
    assert!(matches!(error, GeoError::UnknownSchema { .. }), "{error}");
    assert!(error.to_string().contains("has records in an unknown schema: "), "{error}");
    let empty = database_file("GeoLite2-City", []);
    assert!(matches!(open_error(empty.path()), GeoError::UnsupportedType { .. }));
}

#[test]
fn kind_is_detected_from_records_if_the_type_is_unknown() {
    let country_file = database_file("ours", [("198.51.100.0/24", country_record("FR", "France"))]);
    let asn = database_file("ours", [("198.51.100.0/24", asn_record(209, "Lumen"))]);
    let vpn = database_file("ours", [("198.51.100.0/24", mmdb_map([("is_anonymous_vpn", true.into())]))]);
    let atlas = open_atlas(&[&country_file, &asn, &vpn]);
    let kinds: Vec<_> = atlas.editions().iter().map(|edition| edition.kind).collect();
    assert_eq!(kinds, [DatabaseKind::City, DatabaseKind::Asn, DatabaseKind::Anonymous]);
    let facts = locate(&atlas, "198.51.100.7");
    assert_eq!((facts.location.country, facts.network.asn), (Some("FR"), Some(209)));
    assert_eq!((facts.network.proxy, facts.network.hosting), (Some(true), Some(false)));
}

#[test]
fn records_override_a_wrong_database_type() {
    let asn = database_file("City of networks", [("198.51.100.0/24", asn_record(209, "Lumen"))]);
    assert_eq!(open_atlas(&[&asn]).editions()[0].kind, DatabaseKind::Asn);
}

#[test]
fn valid_database_verifies_with_and_without_description() {
    assert!(open_atlas(&[&TempFile::new(&sample_database())]).verify().is_ok());
    let mut writer = mmdb_writer::Writer::builder("city ipv6").build();
    writer
        .insert_value("2001:db8::/32".parse::<ipnet::IpNet>().expect("network parses"), brisbane_flat_record())
        .expect("record is inserted");
    assert!(open_atlas(&[&TempFile::new(&writer.to_bytes().expect("database is encoded"))]).verify().is_ok());
}

#[test]
fn verify_finds_damage_outside_the_opening_sample() {
    // A record in the middle of many networks, far from the sampled ones.
    let networks: Vec<String> = (0..6000).map(|number| format!("2001:db8:{number:x}::/48")).collect();
    let leaked = networks.into_iter().map(|network| &*network.leak());
    let records =
        leaked.enumerate().map(|(number, network)| (network, country_record("FR", &format!("Unique name {number}"))));
    let mut damaged_bytes = database_bytes("GeoLite2-Country", records);
    let name = b"Unique name 5000";
    let offset = damaged_bytes.windows(name.len()).position(|window| window == name).expect("file contains the name");
    // Invalid UTF-8.
    damaged_bytes[offset] = 0xff;
    let atlas = open_atlas(&[&TempFile::new(&damaged_bytes)]);
    let error = atlas.verify().expect_err("damaged record is found");
    assert!(matches!(error, GeoError::InvalidMmdb { .. } | GeoError::UnknownSchema { .. }), "{error}");
}

#[test]
fn one_invalid_file_fails_the_atlas() {
    let (valid, invalid) = (TempFile::new(&sample_database()), TempFile::new(b"bad"));
    assert!(Atlas::open(&atlas_sources(&[&valid, &invalid])).is_err());
}

#[test]
fn flipped_bytes_never_cause_a_panic() {
    let original = sample_database();
    for offset in 0..original.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = original.clone();
            damaged[offset] ^= mask;
            let file = TempFile::new(&damaged);
            if let Ok(atlas) = Atlas::open(&atlas_sources(&[&file])) {
                locate(&atlas, "198.51.100.7");
                locate(&atlas, "2001:db8::1");
                let _ = atlas.verify();
            }
        }
    }
}
