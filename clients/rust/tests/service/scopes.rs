//! What each scope is told.

use std::net::Ipv4Addr;
use std::time::{Duration, UNIX_EPOCH};

use domain::Scope;
use ipseity_client::{Client, Demo, Error, Full, Geo, Ip};
use testkit::samples::PARIS;

use crate::relay::Relay;
use crate::{base_url, house, issue};

const DAY: Duration = Duration::from_secs(86_400);

/// Comes from an address that has a country.
fn from_paris(text: String) -> String {
    text.replace("\r\naccept:", &format!("\r\nx-forwarded-for: {}\r\naccept:", PARIS.address))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_is_told_its_facts() {
    let house = house().await;
    let relay = Relay::start(vec![house.nodes[0].http()], from_paris).await;
    let key = issue(house, Scope::Full).await.key;
    let address: Ipv4Addr = PARIS.address.parse().expect("an address");

    let ip = Client::<Ip>::open(&relay.url(), &key).expect("a client").lookup().await.expect("an answer").facts;
    assert_eq!((ip.ip, ip.ipv6), (Some(address), None));
    let geo = Client::<Geo>::open(&relay.url(), &key).expect("a client").lookup().await.expect("an answer").facts;
    assert_eq!((geo.ip, geo.city.as_deref(), geo.latitude), (Some(address), Some("Paris"), Some(48.8534)));
    assert_eq!((geo.asn, geo.r#as.as_deref(), geo.is_eu), (Some(3215), Some("AS3215 Orange"), Some(true)));
    assert!(matches!(geo.timezone_offset, Some(3600 | 7200)));
    let full = Client::<Full>::open(&relay.url(), &key).expect("a client").lookup().await.expect("an answer").facts;
    assert_eq!((full.country, full.hosting, full.proxy), (geo.country, Some(false), Some(false)));
    let demo = Client::open_demo(&relay.url()).expect("a client").lookup().await.expect("an answer").facts;
    assert_eq!((demo.ip, demo.country.as_deref(), demo.tls_version), (Some(address), Some("FR"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_facts_are_the_clients_own() {
    let house = house().await;
    let authority = std::fs::read(&house.certificate.authority).expect("a certificate");
    let authority = reqwest::Certificate::from_pem(&authority).expect("a certificate");
    let http = reqwest::Client::builder().tls_certs_only([authority]).build().expect("a client");
    let key = issue(house, Scope::Full).await.key;
    let url = format!("https://{}/", house.nodes[0].https());
    let facts = Client::<Full>::open(&url, &key).expect("a client").http(http).lookup().await.expect("an answer").facts;
    assert_eq!((facts.ip, facts.tls_version.as_deref()), (Some(Ipv4Addr::LOCALHOST), Some("TLSv1.3")));
    assert!(facts.http_protocol.is_some() && facts.tls_cipher.is_some() && facts.rtt.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_count_down_and_begin_anew_at_midnight() {
    let house = house().await;
    let client = Client::<Ip>::open(&base_url(house), &issue(house, Scope::Ip).await.key).expect("a client");
    for remaining in [9_999, 9_998] {
        let answer = client.clone().lookup().await.expect("an answer");
        assert_eq!((answer.limits.limit, answer.limits.remaining), (10_000, remaining));
        let reset = answer.limits.reset.duration_since(UNIX_EPOCH).expect("after 1970");
        assert_eq!(reset.as_secs() % DAY.as_secs(), 0);
        assert!(answer.request_id.is_some_and(|id| id.len() == 16));
    }
    let demo = Client::<Demo>::open_demo(&base_url(house)).expect("a client").lookup().await.expect("an answer");
    assert_eq!(demo.limits.limit, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_narrower_than_the_client_is_told() {
    let house = house().await;
    let (url, ip, geo) = (base_url(house), issue(house, Scope::Ip).await.key, issue(house, Scope::Geo).await.key);
    let told = Client::<Geo>::open(&url, &ip).expect("a client").lookup().await.expect_err("no place");
    assert!(matches!(told, Error::NarrowKey("geo")), "{told}");
    for key in [ip, geo] {
        let told = Client::<Full>::open(&url, &key).expect("a client").lookup().await.expect_err("no connection");
        assert!(matches!(told, Error::NarrowKey("full")), "{told}");
    }
}
