//! Several databases as one.

use mmdb_writer::Value;

use crate::database::{File, country, file, locate, map, named, network, open, san_francisco};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn city(name: &str, region: &str, postal: Option<&str>) -> File {
    let mut record = vec![
        ("city", map([("names", map([("en", name.into())]))])),
        ("country", named("US", "United States")),
        ("subdivisions", Value::array([map([("names", map([("en", region.into())]))])])),
    ];
    record.extend(postal.map(|code| ("postal", map([("code", code.into())]))));
    file("DBIP-City-Lite", [(NETWORK, Value::map(record))])
}

#[test]
fn a_city_refines_the_country_that_stands_first() {
    let (first, later) = (
        file("GeoLite2-Country", [(NETWORK, country("US", "USA"))]),
        file("GeoLite2-City", [(NETWORK, san_francisco())]),
    );
    let atlas = open(&[&first, &later]);
    assert_eq!(locate(&atlas, ADDRESS).place.city, Some("San Francisco"));
}

#[test]
fn a_city_in_another_country_is_not_believed() {
    let (first, later) = (
        file("GeoLite2-Country", [(NETWORK, country("FR", "France"))]),
        file("GeoLite2-City", [(NETWORK, san_francisco())]),
    );
    let atlas = open(&[&first, &later]);
    let place = locate(&atlas, ADDRESS).place;
    assert_eq!((place.country, place.city, place.latitude), (Some("FR"), None, None));
}

#[test]
fn two_cities_are_never_mixed() {
    let (first, later) = (city("Portland", "Oregon", None), file("GeoLite2-City", [(NETWORK, san_francisco())]));
    let atlas = open(&[&first, &later]);
    let place = locate(&atlas, ADDRESS).place;
    assert_eq!((place.city, place.postal_code, place.latitude), (Some("Portland"), None, None));
}

#[test]
fn the_same_city_fills_the_gaps() {
    let (first, later) =
        (city("San Francisco", "California", Some("94103")), file("GeoLite2-City", [(NETWORK, san_francisco())]));
    let atlas = open(&[&first, &later]);
    let place = locate(&atlas, ADDRESS).place;
    assert_eq!((place.postal_code, place.region_code), (Some("94103"), Some("US-CA")));
    assert_eq!((place.latitude, place.timezone), (Some(37.7749), Some("America/Los_Angeles")));
}

#[test]
fn a_later_file_answers_where_an_earlier_is_silent() {
    let (first, later) = (
        file("GeoLite2-Country", [("203.0.113.0/24", country("FR", "France"))]),
        file("GeoLite2-Country", [(NETWORK, country("DE", "Germany"))]),
    );
    let atlas = open(&[&first, &later]);
    assert_eq!(locate(&atlas, ADDRESS).place.country, Some("DE"));
}

#[test]
fn a_name_is_taken_only_for_the_same_number() {
    let unnamed = || map([("autonomous_system_number", 64496_u32.into())]);
    let first = file("GeoLite2-ASN", [(NETWORK, unnamed()), ("203.0.113.0/24", unnamed())]);
    let later =
        file("GeoLite2-ASN", [(NETWORK, network(64496, "Lumen")), ("203.0.113.0/24", network(7922, "Comcast"))]);
    let atlas = open(&[&first, &later]);
    let (same, other) = (locate(&atlas, ADDRESS).network, locate(&atlas, "203.0.113.7").network);
    assert_eq!((same.asn, same.org), (Some(64496), Some("Lumen")));
    assert_eq!((other.asn, other.org), (Some(64496), None));
}
