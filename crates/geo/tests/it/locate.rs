//! The facts of one City and one ASN database.

use ipseity_domain::{GeoFacts, Location, Network};
use mmdb_writer::Value;

use crate::fixture::{
    asn_record, country_record, database_file, locate, mmdb_map, named_value, open_atlas, san_francisco_record,
};

#[test]
fn complete_record_yields_every_field() {
    let city = database_file("GeoLite2-City", [("198.51.100.0/24", san_francisco_record())]);
    let asn = database_file("GeoLite2-ASN", [("198.51.100.0/24", asn_record(16509, "Amazon.com, Inc."))]);
    let atlas = open_atlas(&[&city, &asn]);
    let expected = GeoFacts {
        location: Location {
            city: Some("San Francisco"),
            region: Some("California"),
            region_code: Some("US-CA"),
            country: Some("US"),
            country_name: Some("United States"),
            continent: Some("NA"),
            latitude: Some(37.7749),
            longitude: Some(-122.4194),
            accuracy_km: Some(20),
            timezone: Some("America/Los_Angeles"),
            timezone_offset: Some(-25_200),
            postal_code: Some("94107"),
            is_eu: Some(false),
            currency: Some("USD"),
        },
        network: Network { asn: Some(16509), org: Some("Amazon.com, Inc."), proxy: Some(false), hosting: Some(true) },
    };
    assert_eq!(locate(&atlas, "198.51.100.7"), expected);
    assert_eq!(locate(&atlas, "::ffff:198.51.100.7"), expected);
    assert_eq!(locate(&atlas, "203.0.113.1"), GeoFacts::default());
    assert_eq!(locate(&atlas, "2001:db8::1"), GeoFacts::default());
}

#[test]
fn empty_atlas_returns_no_facts() {
    assert_eq!(locate(&open_atlas(&[]), "198.51.100.7"), GeoFacts::default());
}

#[test]
fn ipv6_address_is_located() {
    let atlas_file = database_file("DBIP-Country-Lite", [("2001:db8::/32", country_record("FR", "France"))]);
    let atlas = open_atlas(&[&atlas_file]);
    let location = locate(&atlas, "2001:db8::1").location;
    assert_eq!((location.country, location.is_eu, location.currency), (Some("FR"), Some(true), Some("EUR")));
}

#[test]
fn missing_country_falls_back_to_registered_country() {
    let record = mmdb_map([("registered_country", named_value("AU", "Australia"))]);
    let city = database_file("GeoLite2-City", [("1.1.1.0/24", record)]);
    let atlas = open_atlas(&[&city]);
    let location = locate(&atlas, "1.1.1.1").location;
    assert_eq!((location.country, location.country_name), (Some("AU"), Some("Australia")));
    assert_eq!((location.is_eu, location.currency, location.continent), (Some(false), Some("AUD"), Some("OC")));
}

#[test]
fn region_without_an_iso_3166_2_code_keeps_its_name() {
    let record = mmdb_map([
        ("country", named_value("HK", "Hong Kong")),
        ("subdivisions", Value::array([named_value("NST", "Sha Tin")])),
    ]);
    let city = database_file("GeoLite2-City", [("198.51.100.0/24", record)]);
    let atlas = open_atlas(&[&city]);
    let location = locate(&atlas, "198.51.100.7").location;
    assert_eq!((location.region, location.region_code), (Some("Sha Tin"), None));
}

#[test]
fn latitude_zero_is_known_and_an_empty_city_is_not() {
    let record = mmdb_map([
        ("city", mmdb_map([("names", mmdb_map([("en", "".into())]))])),
        ("country", named_value("GA", "Gabon")),
        ("location", mmdb_map([("latitude", 0.0.into()), ("longitude", 9.45.into())])),
        ("subdivisions", Value::Array(Vec::new())),
    ]);
    let city = database_file("GeoLite2-City", [("198.51.100.0/24", record)]);
    let atlas = open_atlas(&[&city]);
    let location = locate(&atlas, "198.51.100.7").location;
    assert_eq!((location.city, location.region, location.latitude), (None, None, Some(0.0)));
}

#[test]
fn proxy_and_hosting_are_false_if_unlisted_none_if_unknown() {
    let unnumbered = mmdb_map([("autonomous_system_organization", "Somebody".into())]);
    let records = [
        ("198.51.100.0/24", asn_record(7922, "Comcast Cable Communications, LLC")),
        ("203.0.113.0/24", asn_record(9009, "M247 Europe SRL")),
        ("192.0.2.0/24", unnumbered),
    ];
    let isp = database_file("GeoIP2-ISP", records);
    let atlas = open_atlas(&[&isp]);
    let proxy_and_hosting = |address| {
        let network = locate(&atlas, address).network;
        (network.proxy, network.hosting)
    };
    assert_eq!(proxy_and_hosting("198.51.100.7"), (Some(false), Some(false)));
    assert_eq!(proxy_and_hosting("203.0.113.7"), (Some(true), Some(true)));
    assert_eq!(proxy_and_hosting("192.0.2.7"), (None, None));
    assert_eq!(proxy_and_hosting("100.64.0.1"), (None, None));
}
