//! Which networks count as hosting or proxy: by the built-in list, an operator's list, or an Anonymous-IP database.

use ipseity_geo::{Atlas, AtlasSources, GeoError};

use crate::fixture::{TempFile, asn_record, atlas_sources, database_file, locate, mmdb_map, open_atlas};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn hosting_and_proxy(atlas: &Atlas) -> (Option<bool>, Option<bool>) {
    let network = locate(atlas, ADDRESS).network;
    (network.hosting, network.proxy)
}

#[test]
fn operator_asn_lists_extend_the_builtin_list() {
    let asn = database_file(
        "GeoLite2-ASN",
        [(NETWORK, asn_record(64496, "Ours")), ("203.0.113.0/24", asn_record(16509, "Amazon"))],
    );
    let (hosting, proxy) = (TempFile::new(b"AS64496 # ours\n"), TempFile::new(b"ASN,Organization\n64496,Ours\n"));
    assert_eq!(hosting_and_proxy(&open_atlas(&[&asn])), (Some(false), Some(false)));
    let hosting_lists = vec![hosting.path().to_owned()];
    let atlas = Atlas::open(&AtlasSources { hosting_lists: hosting_lists.clone(), ..atlas_sources(&[&asn]) })
        .expect("databases open");
    assert_eq!(hosting_and_proxy(&atlas), (Some(true), Some(false)));
    assert_eq!(locate(&atlas, "203.0.113.7").network.hosting, Some(true), "the built-in list still applies");
    let proxy_lists = vec![proxy.path().to_owned()];
    let atlas =
        Atlas::open(&AtlasSources { hosting_lists, proxy_lists, ..atlas_sources(&[&asn]) }).expect("databases open");
    assert_eq!(hosting_and_proxy(&atlas), (Some(true), Some(true)));
}

#[test]
fn invalid_asn_list_is_rejected_with_its_reason() {
    let bad = TempFile::new(b"64496\n64497\nhello\n");
    let open_list = |path: &std::path::Path| {
        Atlas::open(&AtlasSources { proxy_lists: vec![path.to_owned()], ..AtlasSources::default() })
    };
    let error = open_list(bad.path()).err().expect("error is returned");
    assert!(matches!(error, GeoError::InvalidAsnLine { line: 3, .. }), "{error}");
    let error = open_list("no/such/list".as_ref()).err().expect("error is returned");
    assert!(error.to_string().starts_with("failed to read no/such/list: "), "{error}");
}

#[test]
fn anonymous_ip_database_flags_single_addresses() {
    for (flag, expected) in [
        ("is_hosting_provider", (Some(true), Some(false))),
        ("is_anonymous_vpn", (Some(false), Some(true))),
        ("is_public_proxy", (Some(false), Some(true))),
        ("is_residential_proxy", (Some(false), Some(true))),
        ("is_tor_exit_node", (Some(false), Some(true))),
    ] {
        let asn = database_file("GeoLite2-ASN", [(NETWORK, asn_record(7922, "Comcast"))]);
        let record = mmdb_map([("is_anonymous", true.into()), (flag, true.into())]);
        let anonymous = database_file("GeoIP2-Anonymous-IP", [(NETWORK, record)]);
        for files in [[&asn, &anonymous], [&anonymous, &asn]] {
            assert_eq!(hosting_and_proxy(&open_atlas(&files)), expected, "{flag}");
        }
        let alone = hosting_and_proxy(&open_atlas(&[&anonymous]));
        assert_eq!(
            (alone.0.is_some(), alone.1.is_some()),
            (expected.0 == Some(true), expected.1 == Some(true)),
            "{flag}"
        );
    }
}
