//! Which networks are marked as hosting or proxy: the project's list, an operator's, an Anonymous-IP database.

use geo::{Atlas, GeoError, Sources};

use crate::database::{File, file, locate, map, network, open, sources};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn marks(atlas: &Atlas) -> (Option<bool>, Option<bool>) {
    let network = locate(atlas, ADDRESS).network;
    (network.hosting, network.proxy)
}

#[test]
fn an_operators_lists_add_to_the_projects_own() {
    let asn = file("GeoLite2-ASN", [(NETWORK, network(64496, "Ours")), ("203.0.113.0/24", network(16509, "Amazon"))]);
    let (hosting, proxy) = (File::new(b"AS64496 # ours\n"), File::new(b"ASN,Organization\n64496,Ours\n"));
    assert_eq!(marks(&open(&[&asn])), (Some(false), Some(false)));
    let hosting_lists = vec![hosting.path().to_owned()];
    let atlas = Atlas::open(&Sources { hosting_lists: hosting_lists.clone(), ..sources(&[&asn]) }).expect("an atlas");
    assert_eq!(marks(&atlas), (Some(true), Some(false)));
    assert_eq!(locate(&atlas, "203.0.113.7").network.hosting, Some(true), "the project's own still holds");
    let proxy_lists = vec![proxy.path().to_owned()];
    let atlas = Atlas::open(&Sources { hosting_lists, proxy_lists, ..sources(&[&asn]) }).expect("an atlas");
    assert_eq!(marks(&atlas), (Some(true), Some(true)));
}

#[test]
fn a_list_that_cannot_be_used_is_refused_with_its_reason() {
    let bad = File::new(b"64496\n64497\nhello\n");
    let open =
        |path: &std::path::Path| Atlas::open(&Sources { proxy_lists: vec![path.to_owned()], ..Sources::default() });
    let error = open(bad.path()).err().expect("a refusal");
    assert!(matches!(error, GeoError::BadLine { line: 3, .. }), "{error}");
    let error = open("no/such/list".as_ref()).err().expect("a refusal");
    assert!(error.to_string().starts_with("the file no/such/list cannot be read: "), "{error}");
}

#[test]
fn an_anonymous_ip_database_marks_single_addresses() {
    for (flag, expected) in [
        ("is_hosting_provider", (Some(true), Some(false))),
        ("is_anonymous_vpn", (Some(false), Some(true))),
        ("is_public_proxy", (Some(false), Some(true))),
        ("is_residential_proxy", (Some(false), Some(true))),
        ("is_tor_exit_node", (Some(false), Some(true))),
    ] {
        let asn = file("GeoLite2-ASN", [(NETWORK, network(7922, "Comcast"))]);
        let record = map([("is_anonymous", true.into()), (flag, true.into())]);
        let anonymous = file("GeoIP2-Anonymous-IP", [(NETWORK, record)]);
        for files in [[&asn, &anonymous], [&anonymous, &asn]] {
            assert_eq!(marks(&open(&files)), expected, "{flag}");
        }
        let alone = marks(&open(&[&anonymous]));
        assert_eq!(
            (alone.0.is_some(), alone.1.is_some()),
            (expected.0 == Some(true), expected.1 == Some(true)),
            "{flag}"
        );
    }
}
