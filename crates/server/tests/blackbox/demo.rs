//! GET /api/v1/ip/demo: a fixed set of fields without a key, with one quota for all clients.

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::fixtures::samples;
use ipseity_testkit::{TestClient, TestResponse};
use serde_json::{Value, json};

use crate::errors::{ExpectedError, fetch_linked_page};
use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::{ReceivedRateLimit, frozen_clock, rate_limit_headers};
use crate::lookup::{GEO_FIELDS, IP_FIELDS, field_names, lookup_with_key};

const DEMO_PATH: &str = "/api/v1/ip/demo";
const CONNECTION_FIELDS: [&str; 4] = ["http_protocol", "tls_version", "rtt", "colo"];

async fn demo_from(caller: &mut TestClient, client: &str) -> TestResponse {
    caller.get(DEMO_PATH, &[("x-forwarded-for", client)]).await.expect("response arrives")
}

fn success_body(reply: &TestResponse) -> Value {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    reply.json().expect("valid JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_returns_fixed_fields_with_lookup_values() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    let fields = IP_FIELDS.into_iter().chain(GEO_FIELDS).chain(CONNECTION_FIELDS).collect();
    for client in [samples::PARIS.address, samples::ZURICH.address, samples::HOSTING.address, samples::UNKNOWN_ADDRESS]
    {
        let demo = success_body(&demo_from(&mut caller, client).await);
        assert_eq!(field_names(&demo), fields, "{client}");
        let headers = [("authorization", key.bearer()), ("x-forwarded-for", client.to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let full = success_body(&caller.get("/api/v1/ip", &headers).await.expect("response arrives"));
        for (name, value) in demo.as_object().expect("value is an object") {
            assert_eq!(&full[name], value, "{name} of {client}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_reports_the_client_connection() {
    let deployment = shared_deployment().await;
    let url = format!("https://{}{DEMO_PATH}", deployment.nodes[0].https());
    let demo =
        deployment.curl(&["--http2", "--tlsv1.3", &url]).await.expect("response arrives").json().expect("valid JSON");
    assert_eq!((&demo["http_protocol"], &demo["tls_version"]), (&json!("HTTP/2"), &json!("TLSv1.3")));
    assert!(demo["rtt"].is_u64() && demo["colo"].is_null(), "{demo}");
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_ignores_parameters_and_keys() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    let plain = success_body(&demo_from(&mut caller, samples::PARIS.address).await);
    let key_query = format!("?key={}", key.key);
    for query in ["?scope=ip", "?scope=full", "?key=nonsense", "?ip=73.162.0.7", &key_query] {
        let headers = [("x-forwarded-for", samples::PARIS.address), ("authorization", "Bearer nonsense")];
        let reply = caller.get(&format!("{DEMO_PATH}{query}"), &headers).await.expect("response arrives");
        assert_eq!(success_body(&reply), plain, "{query}");
    }
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining,
        9_999,
        "the demo is not charged to a key"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_clients_share_one_quota_of_1000() {
    let fixture = frozen_clock().await;
    fixture.record_demo_usage(996).await;
    // A node caches an exhausted demo until midnight, so each test has a separate node.
    let node = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
    let expected = ReceivedRateLimit { limit: 1_000, remaining: 3, reset_s: fixture.midnight_s };
    for (client, remaining) in [("198.51.100.1", 3), ("2001:db8::2", 2), ("198.51.100.3", 1)] {
        let reply = demo_from(&mut node.client(), client).await;
        assert_eq!((reply.status, rate_limit_headers(&reply)), (200, ReceivedRateLimit { remaining, ..expected }));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"day\";q=1000;w=86400"));
        assert_eq!(reply.header("retry-after"), None);
    }
    let head = node.client().send(Method::HEAD, DEMO_PATH, &[]).await.expect("response arrives");
    assert_eq!((head.status, rate_limit_headers(&head).remaining), (200, 0));
    for client in ["198.51.100.1", "198.51.100.4", "2001:db8::5"] {
        let reply = demo_from(&mut node.client(), client).await;
        let body = ExpectedError::DEMO_QUOTA.assert_matches(&reply);
        assert_eq!(rate_limit_headers(&reply), ReceivedRateLimit { remaining: 0, ..expected });
        // The node continues with its local clock.
        let retry_after: u64 = reply.header("retry-after").and_then(|value| value.parse().ok()).expect("valid seconds");
        assert!((43_100..=43_200).contains(&retry_after), "{retry_after}");
        fetch_linked_page(&node, &body["signup"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_demo_resets_at_midnight() {
    let fixture = frozen_clock().await;
    fixture.record_demo_usage(999).await;
    let node = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
    fixture.set_after_midnight_ms(-500);
    let mut caller = node.client();
    let exhausted = ReceivedRateLimit { limit: 1_000, remaining: 0, reset_s: fixture.midnight_s };
    let last = demo_from(&mut caller, "198.51.100.1").await;
    assert_eq!((last.status, rate_limit_headers(&last)), (200, exhausted));
    let reply = demo_from(&mut caller, "198.51.100.1").await;
    ExpectedError::DEMO_QUOTA.assert_matches(&reply);
    assert_eq!((rate_limit_headers(&reply), reply.header("retry-after")), (exhausted, Some("1")));
    fixture.set_after_midnight_ms(0);
    let first = demo_from(&mut caller, "198.51.100.1").await;
    let expected =
        ReceivedRateLimit { limit: 1_000, remaining: 999, reset_s: fixture.midnight_s + ipseity_domain::DAY_S };
    assert_eq!((first.status, rate_limit_headers(&first)), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_has_no_burst_limit() {
    let fixture = frozen_clock().await;
    fixture.record_demo_usage(0).await;
    let node = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
    let mut caller = node.client();
    for used in 1..=350 {
        let reply = demo_from(&mut caller, "127.0.0.1").await;
        assert_eq!((reply.status, rate_limit_headers(&reply).remaining), (200, 1_000 - used));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn network_can_use_a_tenth_of_the_demo_quota() {
    let fixture = frozen_clock().await;
    fixture.record_demo_usage(0).await;
    let node = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
    let mut caller = node.client();
    // The node learns the day from the clock of Redis.
    assert_eq!(demo_from(&mut caller, "127.0.0.1").await.status, 200);
    let expected = ReceivedRateLimit { limit: 100, remaining: 0, reset_s: fixture.midnight_s };
    for [one, another] in [["198.51.100.1", "198.51.100.2"], ["2001:db8:1::1", "2001:db8:1:1::1"]] {
        for _ in 0..100 {
            assert_eq!(demo_from(&mut caller, one).await.status, 200);
        }
        let reply = demo_from(&mut caller, one).await;
        let body = ExpectedError::DEMO_QUOTA.assert_matches(&reply);
        assert!(body["message"].as_str().is_some_and(|message| message.starts_with("Your network")), "{body}");
        assert_eq!(rate_limit_headers(&reply), expected);
        let retry_after: u64 = reply.header("retry-after").and_then(|value| value.parse().ok()).expect("valid seconds");
        assert!((43_100..=43_200).contains(&retry_after), "{retry_after}");
        assert_eq!(demo_from(&mut caller, another).await.status, 200);
    }
    let last = demo_from(&mut caller, "198.51.100.3").await;
    assert_eq!(rate_limit_headers(&last).remaining, 1_000 - 204, "refused requests are not charged");
}
