//! The fields of each scope.

use std::net::Ipv4Addr;
use std::time::{Duration, UNIX_EPOCH};

use ipseity_client::{Client, Demo, Error, Full, Geo, Ip};
use ipseity_domain::{Field, Scope};
use ipseity_testkit::fixtures::samples::PARIS;

use crate::counting_proxy::CountingProxy;
use crate::{base_url, deployment, issue_key};

const DAY: Duration = Duration::from_secs(86_400);

/// Makes the request come from an address with a known country.
fn add_paris_forwarded_for(text: String) -> String {
    text.replace("\r\naccept:", &format!("\r\nx-forwarded-for: {}\r\naccept:", PARIS.address))
}

#[tokio::test(flavor = "multi_thread")]
async fn client_returns_the_fields_of_each_scope() {
    let deployment = deployment().await;
    let proxy = CountingProxy::start(vec![deployment.nodes[0].http()], add_paris_forwarded_for).await;
    let key = issue_key(deployment, Scope::Full).await.key;
    let address: Ipv4Addr = PARIS.address.parse().expect("address is valid");

    let ip =
        Client::<Ip>::open(&proxy.url(), &key).expect("create a client").lookup().await.expect("lookup succeeds").facts;
    assert_eq!((ip.ip, ip.ipv6), (Some(address), None));
    let geo = Client::<Geo>::open(&proxy.url(), &key)
        .expect("create a client")
        .lookup()
        .await
        .expect("lookup succeeds")
        .facts;
    assert_eq!((geo.ip, geo.city.as_deref(), geo.latitude), (Some(address), Some("Paris"), Some(48.8534)));
    assert_eq!((geo.asn, geo.r#as.as_deref(), geo.is_eu), (Some(3215), Some("AS3215 Orange"), Some(true)));
    assert!(matches!(geo.timezone_offset, Some(3600 | 7200)));
    let full = Client::<Full>::open(&proxy.url(), &key)
        .expect("create a client")
        .lookup()
        .await
        .expect("lookup succeeds")
        .facts;
    let debug_text = format!("{full:?}");
    for name in Field::ALL.map(Field::name).into_iter().filter(|name| *name != "status") {
        assert!(debug_text.contains(&format!(" {name}: ")), "the client has no field {name}");
    }
    assert_eq!((full.country, full.hosting, full.proxy), (geo.country, Some(false), Some(false)));
    let demo = Client::open_demo(&proxy.url()).expect("create a client").lookup().await.expect("lookup succeeds").facts;
    assert_eq!((demo.ip, demo.country.as_deref(), demo.tls_version), (Some(address), Some("FR"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_returns_its_own_connection_fields() {
    let deployment = deployment().await;
    let authority = std::fs::read(&deployment.certificate.ca_file).expect("certificate is readable");
    let authority = reqwest::Certificate::from_pem(&authority).expect("certificate is readable");
    let http = reqwest::Client::builder().tls_certs_only([authority]).build().expect("create a client");
    let key = issue_key(deployment, Scope::Full).await.key;
    let url = format!("https://{}/", deployment.nodes[0].https());
    let facts = Client::<Full>::open(&url, &key)
        .expect("create a client")
        .http_client(http)
        .lookup()
        .await
        .expect("lookup succeeds")
        .facts;
    assert_eq!((facts.ip, facts.tls_version.as_deref()), (Some(Ipv4Addr::LOCALHOST), Some("TLSv1.3")));
    assert!(facts.http_protocol.is_some() && facts.tls_cipher.is_some() && facts.rtt.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_rate_limit_counts_down_and_resets_at_midnight() {
    let deployment = deployment().await;
    let client = Client::<Ip>::open(&base_url(deployment), &issue_key(deployment, Scope::Ip).await.key)
        .expect("create a client");
    for remaining in [9_999, 9_998] {
        let response = client.clone().lookup().await.expect("lookup succeeds");
        assert_eq!((response.rate_limit.limit, response.rate_limit.remaining), (10_000, remaining));
        let reset = response.rate_limit.reset.duration_since(UNIX_EPOCH).expect("reset is after 1970");
        assert_eq!(reset.as_secs() % DAY.as_secs(), 0);
        assert!(response.request_id.is_some_and(|id| id.len() == 16));
    }
    let demo = Client::<Demo>::open_demo(&base_url(deployment))
        .expect("create a client")
        .lookup()
        .await
        .expect("lookup succeeds");
    assert_eq!(demo.rate_limit.limit, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_with_narrower_scope_is_insufficient_scope() {
    let deployment = deployment().await;
    let (url, ip, geo) =
        (base_url(deployment), issue_key(deployment, Scope::Ip).await.key, issue_key(deployment, Scope::Geo).await.key);
    let error =
        Client::<Geo>::open(&url, &ip).expect("create a client").lookup().await.expect_err("key lacks geo fields");
    assert!(matches!(error, Error::InsufficientScope("geo")), "{error}");
    for key in [ip, geo] {
        let error = Client::<Full>::open(&url, &key)
            .expect("create a client")
            .lookup()
            .await
            .expect_err("key lacks connection fields");
        assert!(matches!(error, Error::InsufficientScope("full")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gets_the_status_of_a_key_without_a_charge() {
    let deployment = deployment().await;
    let key = issue_key(deployment, Scope::Geo).await.key;
    let client = Client::<Ip>::open(&base_url(deployment), &key).expect("create a client");
    let status = client.key().await.expect("the service answers");
    assert_eq!((status.scope.as_str(), status.state.as_str()), ("geo", "active"));
    assert_eq!(status.limits.map(|limits| (limits.day, limits.burst)), Some((10_000, 300)));
    assert_eq!(status.usage.and_then(|usage| usage.day), Some(0));
    assert_eq!(client.lookup().await.expect("lookup succeeds").rate_limit.remaining, 9_999);
}
