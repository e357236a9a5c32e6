//! What no database tells and is answered all the same.

use mmdb_writer::Value;

use crate::database::{file, locate, map, named, network, open};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

#[test]
fn a_database_knows_the_name_of_a_country_better_than_the_table() {
    let told = file("GeoLite2-Country", [(NETWORK, map([("country", named("TR", "Turkey"))]))]);
    let bare = file("GeoLite2-Country", [(NETWORK, map([("country", map([("iso_code", "TR".into())]))]))]);
    assert_eq!(locate(&open(&[&told]), ADDRESS).place.country_name, Some("Turkey"));
    assert_eq!(locate(&open(&[&bare]), ADDRESS).place.country_name, Some("Türkiye"));
}

#[test]
fn a_region_without_a_code_is_found_by_its_name() {
    let record = |country: &str, region: &str| {
        let region = map([("names", map([("en", region.into())]))]);
        map([("country", named(country, "x")), ("subdivisions", Value::array([region]))])
    };
    let city =
        file("DBIP-City-Lite", [(NETWORK, record("DE", "Bavaria")), ("203.0.113.0/24", record("DE", "Wonderland"))]);
    let atlas = open(&[&city]);
    assert_eq!(locate(&atlas, ADDRESS).place.region_code, Some("DE-BY"));
    assert_eq!(locate(&atlas, "203.0.113.7").place.region_code, None);
}

#[test]
fn coordinates_off_the_globe_are_unknown_and_at_sea_have_no_zone() {
    let at = |latitude: f64, longitude: f64| {
        let location = map([("latitude", latitude.into()), ("longitude", longitude.into())]);
        map([("country", named("PT", "Portugal")), ("location", location)])
    };
    let city = file("GeoLite2-City", [(NETWORK, at(f64::NAN, 0.0)), ("203.0.113.0/24", at(40.0, -40.0))]);
    let atlas = open(&[&city]);
    let nowhere = locate(&atlas, ADDRESS).place;
    assert_eq!((nowhere.latitude, nowhere.longitude, nowhere.timezone), (None, None, None));
    let atlantic = locate(&atlas, "203.0.113.7").place;
    assert_eq!((atlantic.latitude, atlantic.timezone, atlantic.timezone_offset), (Some(40.0), None, None));
}

#[test]
fn a_network_without_a_name_has_the_registered_one() {
    let unnamed = map([("autonomous_system_number", 3320_u32.into())]);
    let asn = file("GeoLite2-ASN", [(NETWORK, unnamed), ("203.0.113.0/24", network(3320, "As told"))]);
    let atlas = open(&[&asn]);
    assert_eq!(locate(&atlas, ADDRESS).network.org, Some("Deutsche Telekom AG"));
    assert_eq!(locate(&atlas, "203.0.113.7").network.org, Some("As told"));
}

#[test]
fn an_enterprise_record_tells_its_network_too() {
    let record = map([("country", named("DE", "Germany")), ("traits", network(24940, "Hetzner Online GmbH"))]);
    let enterprise = file("GeoIP2-Enterprise", [(NETWORK, record)]);
    let facts = locate(&open(&[&enterprise]), ADDRESS).network.hosting;
    assert_eq!(facts, Some(true));
}
