//! The flat schema of the ip-location-db family.

use mmdb_writer::Value;

use crate::database::{brisbane, country, file, locate, map, open, san_francisco};

#[test]
fn a_flat_record_gives_a_whole_place() {
    let city = file("city ipv4", [("198.51.100.0/24", brisbane())]);
    let atlas = open(&[&city]);
    let place = locate(&atlas, "198.51.100.7").place;
    assert_eq!((place.city, place.region), (Some("South Brisbane"), Some("Queensland")));
    assert_eq!((place.region_code, place.country), (Some("AU-QLD"), Some("AU")));
    assert_eq!((place.country_name, place.continent), (Some("Australia"), Some("OC")));
    assert_eq!((place.latitude, place.longitude), (Some(-27.4767), Some(153.017)), "no false digits");
    assert_eq!((place.timezone, place.timezone_offset), (Some("Australia/Brisbane"), Some(36_000)));
    assert_eq!((place.postal_code, place.currency, place.is_eu), (None, Some("AUD"), Some(false)));
}

#[test]
fn what_is_empty_is_unknown() {
    let fields = ["city", "state1", "state2", "postcode", "timezone", "country_code"];
    let record = Value::map(fields.map(|field| (field, Value::from(""))));
    let city = file("city ipv4", [("198.51.100.0/24", record), ("203.0.113.0/24", brisbane())]);
    let atlas = open(&[&city]);
    assert_eq!(locate(&atlas, "198.51.100.7"), domain::Facts::default());
}

#[test]
fn a_zone_that_is_told_is_not_asked_of_the_coordinates() {
    let record = map([
        ("country_code", "AU".into()),
        ("latitude", Value::Float(-27.4767)),
        ("longitude", Value::Float(153.017)),
        ("timezone", "Asia/Calcutta".into()),
    ]);
    let city = file("city ipv4", [("198.51.100.0/24", record)]);
    let atlas = open(&[&city]);
    assert_eq!(locate(&atlas, "198.51.100.7").place.timezone, Some("Asia/Kolkata"));
}

#[test]
fn each_family_may_have_a_file_of_its_own() {
    let four = file("country ipv4", [("198.51.100.0/24", map([("country_code", "US".into())]))]);
    let six = file("country ipv6", [("2001:db8::/32", map([("country_code", "FR".into())]))]);
    let atlas = open(&[&four, &six]);
    assert_eq!(locate(&atlas, "198.51.100.7").place.country_name, Some("United States"));
    assert_eq!(locate(&atlas, "2001:db8::1").place.country_name, Some("France"));
}

#[test]
fn both_schemas_are_merged() {
    let nested = file("GeoLite2-City", [("198.51.100.0/24", san_francisco())]);
    let record = map([
        ("country_code", "US".into()),
        ("state1", "California".into()),
        ("city", "San Francisco".into()),
        ("postcode", "94103".into()),
    ]);
    let flat = file("city ipv4", [("198.51.100.0/24", record), ("203.0.113.0/24", brisbane())]);
    let france = file("GeoLite2-Country", [("203.0.113.0/24", country("AU", "Oz"))]);
    let atlas = open(&[&flat, &nested, &france]);
    let place = locate(&atlas, "198.51.100.7").place;
    assert_eq!((place.postal_code, place.latitude), (Some("94103"), Some(37.7749)));
    let place = locate(&atlas, "203.0.113.7").place;
    assert_eq!((place.city, place.country_name), (Some("South Brisbane"), Some("Oz")));
}
