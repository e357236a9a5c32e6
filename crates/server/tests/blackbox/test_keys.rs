//! Test keys: made-up callers and errors, without a store, a limit or a metric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use http::Method;
use ipseity_domain::{Field, FieldSet, Scope, test_key};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Node, TestClient, TestResponse};
use serde_json::Value;

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};

const CALLERS: [&str; 7] = ["home", "ipv6", "mobile", "datacenter", "vpn", "unknown", "no-address"];
const FAILURES: [(&str, ExpectedError); 9] = [
    ("burst", ExpectedError::BURST_LIMIT),
    ("paused", ExpectedError::PAUSED_KEY),
    ("day", ExpectedError::DAILY_QUOTA),
    ("inactive", ExpectedError::INACTIVE_KEY),
    ("expired", ExpectedError::EXPIRED_KEY),
    ("origin", ExpectedError::ORIGIN_NOT_ALLOWED),
    ("caller", ExpectedError::CALLER_LIMIT),
    ("ticket", ExpectedError::INVALID_TICKET),
    ("500", ExpectedError::INTERNAL),
];

async fn test_lookup(caller: &mut TestClient, scope: Scope, query: &str) -> TestResponse {
    let bearer = format!("Bearer {}", test_key(scope));
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "90.84.0.20")];
    let reply = caller.get(&format!("/api/v1/ip{query}"), &headers).await.expect("response arrives");
    assert_eq!(reply.header("ipseity-test"), Some("true"), "{query}");
    reply
}

fn is_for_documentation(address: &Value) -> bool {
    match address.as_str().map(|text| text.parse().expect("valid address")) {
        Some(IpAddr::V4(v4)) => v4.is_documentation(),
        Some(IpAddr::V6(v6)) => v6.segments()[..2] == [0x2001, 0xdb8],
        None => true,
    }
}

async fn node_with(deployment: &Deployment, setting: &str, value: &str) -> Node {
    let env = Env::from([(format!("IPSEITY__PUBLIC__{setting}"), value.to_owned())]);
    deployment.start_node(&env).await.expect("node starts")
}

/// Counters of requests, and the number of durations by operation.
async fn request_counts(node: &Node) -> BTreeMap<String, String> {
    let text = node.metrics().await.expect("metrics are readable");
    let is_count = |name: &str| {
        name.starts_with("ipseity_api_requests_total")
            || name.starts_with("ipseity_http_request_duration_seconds_count")
    };
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter(|(name, _)| is_count(name)).map(|(name, count)| (name.to_owned(), count.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_returns_made_up_callers_in_each_scope() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for scope in Scope::ALL {
        let mut bodies = BTreeSet::new();
        for name in CALLERS {
            for requested in Scope::ALL {
                let query = format!("?as={name}&scope={requested}");
                let reply = test_lookup(&mut caller, scope, &query).await;
                assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("9999")), "{query}");
                let body = reply.json().expect("valid JSON");
                let names = body.as_object().expect("JSON object").keys().map(String::as_str);
                assert!(names.eq(FieldSet::Scope(scope.min(requested)).fields().map(Field::name)), "{scope} {query}");
                assert!(is_for_documentation(&body["ip"]) && is_for_documentation(&body["ipv6"]), "{query}");
            }
            let widest = test_lookup(&mut caller, scope, &format!("?as={}", name.to_uppercase())).await;
            bodies.insert(widest.text());
        }
        assert_eq!(bodies.len(), CALLERS.len(), "callers of scope {scope} differ");
        assert!(bodies.contains(&test_lookup(&mut caller, scope, "").await.text()), "there is a default");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_returns_the_errors_of_real_keys() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    // More often than the limit of failed attempts, after which a connection waits.
    for _ in 0..4 {
        for scope in Scope::ALL {
            for (name, expected) in FAILURES {
                expected.assert_matches(&test_lookup(&mut caller, scope, &format!("?fail={name}")).await);
            }
        }
    }
    let limit = |reply: &TestResponse| {
        let headers = ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"];
        headers.map(|name| reply.header(name).expect("limit headers").to_owned())
    };
    assert_eq!(limit(&test_lookup(&mut caller, Scope::Ip, "?fail=burst").await), ["60", "300", "0"]);
    assert_eq!(limit(&test_lookup(&mut caller, Scope::Ip, "?fail=caller").await), ["12", "30", "0"]);
    let key = fresh_key(deployment, Scope::Ip).await;
    deployment.cli(&["key", "deactivate", &key.id]).await.expect("deactivate the key");
    let real = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
    assert_eq!(test_lookup(&mut caller, Scope::Ip, "?fail=inactive").await.text(), real.text());
    assert!(!real.headers.contains_key("ipseity-test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_values_are_errors_for_test_keys_and_ignored_for_real_ones() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    for (query, value) in
        [("?as=nowhere", "no-address"), ("?as=", "home"), ("?fail=x", "500"), ("?as=x&fail=day", "home")]
    {
        let reply = test_lookup(&mut caller, Scope::Ip, query).await;
        let body = ExpectedError::BAD_REQUEST.assert_matches(&reply);
        assert!(body["message"].as_str().is_some_and(|message| message.contains(value)), "{query}: {body}");
    }
    let key = fresh_key(deployment, Scope::Ip).await;
    for query in ["?as=ipv6", "?as=x", "?fail=500", "?fail=x"] {
        let bearer = key.bearer();
        let reply = caller.get(&format!("/api/v1/ip{query}"), &[("authorization", &bearer)]).await.expect("response");
        assert_eq!((reply.status, reply.json().expect("JSON")["ip"].as_str()), (200, Some("127.0.0.1")), "{query}");
        assert!(!reply.headers.contains_key("ipseity-test"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_is_sent_and_checked_like_a_key() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    let key = test_key(Scope::Ip);
    let query = format!("/api/v1/ip?key={key}");
    let head = caller.send(Method::HEAD, &query, &[]).await.expect("response arrives");
    assert_eq!((head.status, head.header("ipseity-test"), head.body.len()), (200, Some("true"), 0));
    let exposed = head.header("access-control-expose-headers").expect("exposed headers are set");
    assert!(exposed.contains("Ipseity-Test"), "{exposed}");
    let without_scheme = caller.get("/api/v1/ip", &[("authorization", key)]).await.expect("response arrives");
    let body = ExpectedError::MISSING_KEY.assert_matches(&without_scheme);
    assert!(body["message"].as_str().is_some_and(|message| message.contains("Bearer")), "{body}");
    for invalid in [&key[..52], &key.replacen("ipst_", "ips_", 1), &format!("{key}0"), &key.to_lowercase()] {
        let reply = caller.get("/api/v1/ip", &[("authorization", &format!("Bearer {invalid}"))]).await;
        ExpectedError::INVALID_KEY.assert_matches(&reply.expect("response arrives"));
    }
    let off = node_with(deployment, "TEST_KEYS", "false").await;
    let reply = off.client().get(&query, &[]).await.expect("response arrives");
    ExpectedError::INVALID_KEY.assert_matches(&reply);
    assert!(!reply.headers.contains_key("ipseity-test"));
    let https_only = node_with(deployment, "ALLOW_PLAIN_HTTP", "false").await;
    let reply = https_only.client().get(&query, &[]).await.expect("response arrives");
    ExpectedError::HTTPS_REQUIRED.assert_matches(&reply);
    assert_eq!(reply.header("ipseity-test"), Some("true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_needs_no_store_and_is_in_no_metric_of_lookups() {
    let mut deployment =
        Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
            .await
            .expect("deployment starts");
    deployment.redis.kill9();
    deployment.postgres.kill9();
    let node = &deployment.nodes[0];
    let mut caller = node.client();
    let before = request_counts(node).await;
    for scope in Scope::ALL {
        assert_eq!(test_lookup(&mut caller, scope, "?as=vpn").await.status, 200);
        for (name, expected) in FAILURES {
            expected.assert_matches(&test_lookup(&mut caller, scope, &format!("?fail={name}")).await);
        }
        ExpectedError::BAD_REQUEST.assert_matches(&test_lookup(&mut caller, scope, "?fail=x").await);
    }
    let changed: Vec<_> =
        request_counts(node).await.into_iter().filter(|(name, n)| before.get(name) != Some(n)).collect();
    let durations = "ipseity_http_request_duration_seconds_count{operation=\"test\"}".to_owned();
    assert_eq!(changed, [(durations, "33".to_owned())]);
}
