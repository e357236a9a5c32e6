//! The flat schema of ip-location-db.

use mmdb_writer::Value;

use crate::fixture::{
    brisbane_flat_record, country_record, database_file, locate, mmdb_map, open_atlas, san_francisco_record,
};

#[test]
fn flat_record_yields_a_complete_location() {
    let city = database_file("city ipv4", [("198.51.100.0/24", brisbane_flat_record())]);
    let atlas = open_atlas(&[&city]);
    let location = locate(&atlas, "198.51.100.7").location;
    assert_eq!((location.city, location.region), (Some("South Brisbane"), Some("Queensland")));
    assert_eq!((location.region_code, location.country), (Some("AU-QLD"), Some("AU")));
    assert_eq!((location.country_name, location.continent), (Some("Australia"), Some("OC")));
    assert_eq!((location.latitude, location.longitude), (Some(-27.4767), Some(153.017)), "no spurious digits");
    assert_eq!((location.timezone, location.timezone_offset), (Some("Australia/Brisbane"), Some(36_000)));
    assert_eq!((location.postal_code, location.currency, location.is_eu), (None, Some("AUD"), Some(false)));
}

#[test]
fn empty_strings_are_unknown() {
    let fields = ["city", "state1", "state2", "postcode", "timezone", "country_code"];
    let record = Value::map(fields.map(|field| (field, Value::from(""))));
    let city = database_file("city ipv4", [("198.51.100.0/24", record), ("203.0.113.0/24", brisbane_flat_record())]);
    let atlas = open_atlas(&[&city]);
    assert_eq!(locate(&atlas, "198.51.100.7"), ipseity_domain::GeoFacts::default());
}

#[test]
fn time_zone_of_the_record_overrides_the_coordinates() {
    let record = mmdb_map([
        ("country_code", "AU".into()),
        ("latitude", Value::Float(-27.4767)),
        ("longitude", Value::Float(153.017)),
        ("timezone", "Asia/Calcutta".into()),
    ]);
    let city = database_file("city ipv4", [("198.51.100.0/24", record)]);
    let atlas = open_atlas(&[&city]);
    assert_eq!(locate(&atlas, "198.51.100.7").location.timezone, Some("Asia/Kolkata"));
}

#[test]
fn ipv4_and_ipv6_can_come_from_separate_files() {
    let four = database_file("country ipv4", [("198.51.100.0/24", mmdb_map([("country_code", "US".into())]))]);
    let six = database_file("country ipv6", [("2001:db8::/32", mmdb_map([("country_code", "FR".into())]))]);
    let atlas = open_atlas(&[&four, &six]);
    assert_eq!(locate(&atlas, "198.51.100.7").location.country_name, Some("United States"));
    assert_eq!(locate(&atlas, "2001:db8::1").location.country_name, Some("France"));
}

#[test]
fn flat_and_nested_schemas_are_merged() {
    let nested = database_file("GeoLite2-City", [("198.51.100.0/24", san_francisco_record())]);
    let record = mmdb_map([
        ("country_code", "US".into()),
        ("state1", "California".into()),
        ("city", "San Francisco".into()),
        ("postcode", "94103".into()),
    ]);
    let flat = database_file("city ipv4", [("198.51.100.0/24", record), ("203.0.113.0/24", brisbane_flat_record())]);
    let australia = database_file("GeoLite2-Country", [("203.0.113.0/24", country_record("AU", "Oz"))]);
    let atlas = open_atlas(&[&flat, &nested, &australia]);
    let location = locate(&atlas, "198.51.100.7").location;
    assert_eq!((location.postal_code, location.latitude), (Some("94103"), Some(37.7749)));
    let location = locate(&atlas, "203.0.113.7").location;
    assert_eq!((location.city, location.country_name), (Some("South Brisbane"), Some("Oz")));
}
