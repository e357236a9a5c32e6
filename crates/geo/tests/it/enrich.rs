//! Facts that are not in a database, but follow from its records.

use mmdb_writer::Value;

use crate::fixture::{asn_record, database_file, locate, mmdb_map, named_value, open_atlas};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

#[test]
fn database_country_name_overrides_the_builtin_table() {
    let with_name =
        database_file("GeoLite2-Country", [(NETWORK, mmdb_map([("country", named_value("TR", "Turkey"))]))]);
    let without_name =
        database_file("GeoLite2-Country", [(NETWORK, mmdb_map([("country", mmdb_map([("iso_code", "TR".into())]))]))]);
    assert_eq!(locate(&open_atlas(&[&with_name]), ADDRESS).location.country_name, Some("Turkey"));
    assert_eq!(locate(&open_atlas(&[&without_name]), ADDRESS).location.country_name, Some("Türkiye"));
}

#[test]
fn missing_region_code_is_derived_from_the_region_name() {
    let record = |country: &str, region: &str| {
        let region = mmdb_map([("names", mmdb_map([("en", region.into())]))]);
        mmdb_map([("country", named_value(country, "x")), ("subdivisions", Value::array([region]))])
    };
    let city = database_file(
        "DBIP-City-Lite",
        [(NETWORK, record("DE", "Bavaria")), ("203.0.113.0/24", record("DE", "Wonderland"))],
    );
    let atlas = open_atlas(&[&city]);
    assert_eq!(locate(&atlas, ADDRESS).location.region_code, Some("DE-BY"));
    assert_eq!(locate(&atlas, "203.0.113.7").location.region_code, None);
}

#[test]
fn invalid_coordinates_are_dropped_and_sea_has_no_time_zone() {
    let record_at = |latitude: f64, longitude: f64| {
        let location = mmdb_map([("latitude", latitude.into()), ("longitude", longitude.into())]);
        mmdb_map([("country", named_value("PT", "Portugal")), ("location", location)])
    };
    let city = database_file(
        "GeoLite2-City",
        [(NETWORK, record_at(f64::NAN, 0.0)), ("203.0.113.0/24", record_at(40.0, -40.0))],
    );
    let atlas = open_atlas(&[&city]);
    let invalid = locate(&atlas, ADDRESS).location;
    assert_eq!((invalid.latitude, invalid.longitude, invalid.timezone), (None, None, None));
    let atlantic = locate(&atlas, "203.0.113.7").location;
    assert_eq!((atlantic.latitude, atlantic.timezone, atlantic.timezone_offset), (Some(40.0), None, None));
}

#[test]
fn missing_org_falls_back_to_the_registered_as_name() {
    let unnamed = mmdb_map([("autonomous_system_number", 3320_u32.into())]);
    let asn = database_file("GeoLite2-ASN", [(NETWORK, unnamed), ("203.0.113.0/24", asn_record(3320, "From record"))]);
    let atlas = open_atlas(&[&asn]);
    assert_eq!(locate(&atlas, ADDRESS).network.org, Some("Deutsche Telekom AG"));
    assert_eq!(locate(&atlas, "203.0.113.7").network.org, Some("From record"));
}

#[test]
fn enterprise_record_includes_network_facts() {
    let record =
        mmdb_map([("country", named_value("DE", "Germany")), ("traits", asn_record(24940, "Hetzner Online GmbH"))]);
    let enterprise = database_file("GeoIP2-Enterprise", [(NETWORK, record)]);
    let hosting = locate(&open_atlas(&[&enterprise]), ADDRESS).network.hosting;
    assert_eq!(hosting, Some(true));
}
