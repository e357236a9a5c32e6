//! What one City and one ASN database tell.

use domain::{Facts, Network, Place};
use mmdb_writer::Value;

use crate::database::{country, file, locate, map, named, network, open, san_francisco};

#[test]
fn a_whole_record_gives_every_field() {
    let city = file("GeoLite2-City", [("198.51.100.0/24", san_francisco())]);
    let asn = file("GeoLite2-ASN", [("198.51.100.0/24", network(16509, "Amazon.com, Inc."))]);
    let atlas = open(&[&city, &asn]);
    let expected = Facts {
        place: Place {
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
    assert_eq!(locate(&atlas, "203.0.113.1"), Facts::default());
    assert_eq!(locate(&atlas, "2001:db8::1"), Facts::default());
}

#[test]
fn without_files_everything_is_unknown() {
    assert_eq!(locate(&open(&[]), "198.51.100.7"), Facts::default());
}

#[test]
fn ipv6_is_located() {
    let atlas_file = file("DBIP-Country-Lite", [("2001:db8::/32", country("FR", "France"))]);
    let atlas = open(&[&atlas_file]);
    let place = locate(&atlas, "2001:db8::1").place;
    assert_eq!((place.country, place.is_eu, place.currency), (Some("FR"), Some(true), Some("EUR")));
}

#[test]
fn the_registered_country_stands_in_for_an_absent_one() {
    let record = map([("registered_country", named("AU", "Australia"))]);
    let city = file("GeoLite2-City", [("1.1.1.0/24", record)]);
    let atlas = open(&[&city]);
    let place = locate(&atlas, "1.1.1.1").place;
    assert_eq!((place.country, place.country_name), (Some("AU"), Some("Australia")));
    assert_eq!((place.is_eu, place.currency, place.continent), (Some(false), Some("AUD"), Some("OC")));
}

#[test]
fn a_region_keeps_its_name_when_its_code_is_not_of_iso_3166_2() {
    let record =
        map([("country", named("HK", "Hong Kong")), ("subdivisions", Value::array([named("NST", "Sha Tin")]))]);
    let city = file("GeoLite2-City", [("198.51.100.0/24", record)]);
    let atlas = open(&[&city]);
    let place = locate(&atlas, "198.51.100.7").place;
    assert_eq!((place.region, place.region_code), (Some("Sha Tin"), None));
}

#[test]
fn latitude_zero_is_known_and_an_empty_name_is_not() {
    let record = map([
        ("city", map([("names", map([("en", "".into())]))])),
        ("country", named("GA", "Gabon")),
        ("location", map([("latitude", 0.0.into()), ("longitude", 9.45.into())])),
        ("subdivisions", Value::Array(Vec::new())),
    ]);
    let city = file("GeoLite2-City", [("198.51.100.0/24", record)]);
    let atlas = open(&[&city]);
    let place = locate(&atlas, "198.51.100.7").place;
    assert_eq!((place.city, place.region, place.latitude), (None, None, Some(0.0)));
}

#[test]
fn marks_are_false_for_an_unlisted_network_and_null_for_an_unknown_one() {
    let unnumbered = map([("autonomous_system_organization", "Somebody".into())]);
    let records = [
        ("198.51.100.0/24", network(7922, "Comcast Cable Communications, LLC")),
        ("203.0.113.0/24", network(9009, "M247 Europe SRL")),
        ("192.0.2.0/24", unnumbered),
    ];
    let isp = file("GeoIP2-ISP", records);
    let atlas = open(&[&isp]);
    let marks = |address| {
        let network = locate(&atlas, address).network;
        (network.proxy, network.hosting)
    };
    assert_eq!(marks("198.51.100.7"), (Some(false), Some(false)));
    assert_eq!(marks("203.0.113.7"), (Some(true), Some(true)));
    assert_eq!(marks("192.0.2.7"), (None, None));
    assert_eq!(marks("100.64.0.1"), (None, None));
}
