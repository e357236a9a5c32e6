//! Lookups with both addresses of the caller.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ipseity_client::{Client, Ip};
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, ReservedPort};

use crate::{base_url, deployment, issue_key};

/// Longer than the client waits for tokens, for a busy machine.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);

/// Starts a node that listens on both loopback addresses. Its URLs are these, where `PORT` is its port.
async fn start_node(ipv4_url: &str, ipv6_url: &str) -> (Node, ReservedPort, String) {
    let port = ReservedPort::reserve_free().expect("free port");
    let number = port.number().to_string();
    let settings = [
        ("EDGE__HTTP", "127.0.0.1:PORT,[::1]:PORT"),
        ("PUBLIC__BASE_URL", "http://localhost:PORT"),
        ("PUBLIC__IPV4_URL", ipv4_url),
        ("PUBLIC__IPV6_URL", ipv6_url),
    ];
    let env: Env = settings.map(|(name, value)| (format!("IPSEITY__{name}"), value.replace("PORT", &number))).into();
    let node = deployment().await.start_node(&env).await.expect("node starts");
    (node, port, format!("http://localhost:{number}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_returns_both_addresses_for_one_charge() {
    let (_node, _port, url) = start_node("http://127.0.0.1:PORT", "http://[::1]:PORT").await;
    let key = issue_key(deployment().await, Scope::Ip).await.key;
    let client = Client::<Ip>::open(&url, &key).expect("create a client");
    let one = client.lookup().await.expect("lookup succeeds").facts;
    assert!(one.ip.is_some() != one.ipv6.is_some(), "{one:?}");
    let client = client.both(true);
    for remaining in [9_998, 9_997] {
        let response = client.lookup().await.expect("lookup succeeds");
        let addresses = (response.facts.ip.map(|ip| ip.to_string()), response.facts.ipv6.map(|ip| ip.to_string()));
        assert_eq!(addresses, (Some("127.0.0.1".to_owned()), Some("::1".to_owned())));
        assert_eq!(response.rate_limit.remaining, remaining);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_is_never_an_error_and_never_waits_long() {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("[::1]:0").expect("bind socket");
    let silent_url = format!("http://{}", silent.local_addr().expect("local address"));
    let (_node, _port, url) = start_node("http://127.0.0.1:1", &silent_url).await;
    let key = issue_key(deployment().await, Scope::Ip).await.key;
    for url in [url, base_url(deployment().await)] {
        let client = Client::<Ip>::open(&url, &key).expect("create a client").both(true);
        let start = Instant::now();
        let facts = client.lookup().await.expect("lookup succeeds").facts;
        assert!(facts.ip.is_some() != facts.ipv6.is_some(), "{facts:?}");
        assert!(start.elapsed() < LOOKUP_TIME_MAX, "{:?}", start.elapsed());
    }
}
