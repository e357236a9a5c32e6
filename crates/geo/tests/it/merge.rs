//! Several databases, merged into one.

use mmdb_writer::Value;

use crate::fixture::{
    TempFile, asn_record, country_record, database_file, locate, mmdb_map, named_value, open_atlas,
    san_francisco_record,
};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn city_file(name: &str, region: &str, postal: Option<&str>) -> TempFile {
    let mut record = vec![
        ("city", mmdb_map([("names", mmdb_map([("en", name.into())]))])),
        ("country", named_value("US", "United States")),
        ("subdivisions", Value::array([mmdb_map([("names", mmdb_map([("en", region.into())]))])])),
    ];
    record.extend(postal.map(|code| ("postal", mmdb_map([("code", code.into())]))));
    database_file("DBIP-City-Lite", [(NETWORK, Value::map(record))])
}

#[test]
fn later_city_refines_an_earlier_country() {
    let (first, later) = (
        database_file("GeoLite2-Country", [(NETWORK, country_record("US", "USA"))]),
        database_file("GeoLite2-City", [(NETWORK, san_francisco_record())]),
    );
    let atlas = open_atlas(&[&first, &later]);
    assert_eq!(locate(&atlas, ADDRESS).location.city, Some("San Francisco"));
}

#[test]
fn city_in_another_country_is_ignored() {
    let (first, later) = (
        database_file("GeoLite2-Country", [(NETWORK, country_record("FR", "France"))]),
        database_file("GeoLite2-City", [(NETWORK, san_francisco_record())]),
    );
    let atlas = open_atlas(&[&first, &later]);
    let location = locate(&atlas, ADDRESS).location;
    assert_eq!((location.country, location.city, location.latitude), (Some("FR"), None, None));
}

#[test]
fn fields_of_two_cities_are_never_mixed() {
    let (first, later) =
        (city_file("Portland", "Oregon", None), database_file("GeoLite2-City", [(NETWORK, san_francisco_record())]));
    let atlas = open_atlas(&[&first, &later]);
    let location = locate(&atlas, ADDRESS).location;
    assert_eq!((location.city, location.postal_code, location.latitude), (Some("Portland"), None, None));
}

#[test]
fn record_of_the_same_city_fills_gaps() {
    let (first, later) = (
        city_file("San Francisco", "California", Some("94103")),
        database_file("GeoLite2-City", [(NETWORK, san_francisco_record())]),
    );
    let atlas = open_atlas(&[&first, &later]);
    let location = locate(&atlas, ADDRESS).location;
    assert_eq!((location.postal_code, location.region_code), (Some("94103"), Some("US-CA")));
    assert_eq!((location.latitude, location.timezone), (Some(37.7749), Some("America/Los_Angeles")));
}

#[test]
fn later_file_is_used_if_an_earlier_has_no_record() {
    let (first, later) = (
        database_file("GeoLite2-Country", [("203.0.113.0/24", country_record("FR", "France"))]),
        database_file("GeoLite2-Country", [(NETWORK, country_record("DE", "Germany"))]),
    );
    let atlas = open_atlas(&[&first, &later]);
    assert_eq!(locate(&atlas, ADDRESS).location.country, Some("DE"));
}

#[test]
fn org_is_merged_only_for_the_same_asn() {
    let unnamed = || mmdb_map([("autonomous_system_number", 64496_u32.into())]);
    let first = database_file("GeoLite2-ASN", [(NETWORK, unnamed()), ("203.0.113.0/24", unnamed())]);
    let later = database_file(
        "GeoLite2-ASN",
        [(NETWORK, asn_record(64496, "Lumen")), ("203.0.113.0/24", asn_record(7922, "Comcast"))],
    );
    let atlas = open_atlas(&[&first, &later]);
    let (same, other) = (locate(&atlas, ADDRESS).network, locate(&atlas, "203.0.113.7").network);
    assert_eq!((same.asn, same.org), (Some(64496), Some("Lumen")));
    assert_eq!((other.asn, other.org), (Some(64496), None));
}
