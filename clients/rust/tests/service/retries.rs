//! Which lookups are retried, how often, and what ends a lookup early.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipseity_client::{ApiErrorKind, Client, Error, Ip};
use ipseity_domain::Scope;
use ipseity_testkit::CommandOutput;
use tokio::net::TcpListener;

use crate::counting_proxy::CountingProxy;
use crate::{deployment, exhausted_key, failing_deployment, issue_key};

/// Nothing listens on this port.
const CLOSED_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

async fn proxy_to(servers: Vec<SocketAddr>) -> CountingProxy {
    CountingProxy::start(servers, |text| text).await
}

fn client_of(proxy: &CountingProxy, key: &str) -> Client<Ip> {
    Client::open(&proxy.url(), key).expect("create a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_retries_500_and_broken_connections() {
    let healthy = deployment().await;
    let key = issue_key(healthy, Scope::Ip).await.key;
    for failing_addr in [failing_deployment().await.0.nodes[0].http(), CLOSED_PORT.into()] {
        let proxy = proxy_to(vec![failing_addr, healthy.nodes[0].http()]).await;
        client_of(&proxy, &key).lookup().await.expect("lookup succeeds");
        assert_eq!(proxy.request_count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_stops_after_three_attempts() {
    let (failing_node, key) = failing_deployment().await;
    let closed_proxy = proxy_to(vec![CLOSED_PORT.into()]).await;
    let error = client_of(&closed_proxy, &key.key).lookup().await.expect_err("connection fails");
    assert!(matches!(error, Error::Connection(_)), "{error}");
    let failing_proxy = proxy_to(vec![failing_node.nodes[0].http()]).await;
    // Each attempt waits for PostgreSQL and Redis, on a busy machine for seconds.
    let error =
        client_of(&failing_proxy, &key.key).timeout(Duration::from_secs(60)).lookup().await.expect_err("status 500");
    assert!(matches!(&error, Error::Api(api_error) if api_error.kind == ApiErrorKind::Internal), "{error}");
    assert_eq!((closed_proxy.request_count(), failing_proxy.request_count()), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_budget_is_shared_by_a_client_and_its_clones() {
    let proxy = proxy_to(vec![CLOSED_PORT.into()]).await;
    let client = client_of(&proxy, "ips_").retry_budget(3);
    for request_count in [3, 5, 6] {
        client.clone().lookup().await.expect_err("connection fails");
        assert_eq!(proxy.request_count(), request_count, "1 + 2 retries, 1 + 1, 1 + 0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_waits_for_retry_after_within_its_timeout() {
    let deployment = deployment().await;
    let (key, email) = exhausted_key(deployment).await;
    // Midnight may be far away, so Retry-After is shortened and a larger plan makes the retry succeed.
    let shorten_retry_after = |text: String| match text.split_once("\r\nretry-after: ") {
        Some((head, tail)) => {
            format!("{head}\r\nretry-after: 2{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text,
    };
    let proxy = CountingProxy::start(vec![deployment.nodes[0].http()], shorten_retry_after).await;
    let start = Instant::now();
    let short_timeout_client = client_of(&proxy, &key.key).timeout(Duration::from_millis(1_500));
    let error = short_timeout_client.lookup().await.expect_err("daily quota is exhausted");
    assert!(matches!(error, Error::Api(api_error) if api_error.retry_after == Some(Duration::from_secs(2))));
    assert_eq!(proxy.request_count(), 1);

    let default_timeout_client = client_of(&proxy, &key.key);
    let lookup = tokio::spawn(async move { default_timeout_client.lookup().await });
    ipseity_testkit::eventually("the first attempt", Duration::from_secs(10), async || proxy.request_count() == 2)
        .await
        .expect("the first attempt arrives");
    let plan = ["account", "plan", "--email", &email, "--plan", "free"];
    deployment.cli(&plan).await.and_then(CommandOutput::ensure_success).expect("change the plan");
    let response = lookup.await.expect("task does not panic").expect("lookup succeeds");
    assert_eq!((response.rate_limit.limit, proxy.request_count()), (10_000, 3));
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_timeout_ends_the_lookup_without_a_retry() {
    let unresponsive = TcpListener::bind("127.0.0.1:0").await.expect("bind a port");
    let proxy = proxy_to(vec![unresponsive.local_addr().expect("listener has an address")]).await;
    let error =
        client_of(&proxy, "ips_").timeout(Duration::from_millis(200)).lookup().await.expect_err("lookup times out");
    assert!(matches!(error, Error::Timeout(limit) if limit == Duration::from_millis(200)), "{error}");
    assert_eq!(proxy.request_count(), 1);
}

#[test]
fn client_constructor_rejects_invalid_url_or_key() {
    for (base_url, key) in [("no address", "ips_"), ("https://ip.example", "two\nlines")] {
        let error = Client::<Ip>::open(base_url, key).expect_err("arguments are invalid");
        assert!(matches!(error, Error::Setup(_)) && !error.to_string().contains(key), "{error}");
    }
}

#[test]
fn client_debug_output_omits_the_key() {
    let client = Client::<Ip>::open("https://ip.example", "ips_secret").expect("create a client");
    assert!(!format!("{client:?}").contains("ips_secret"));
}
