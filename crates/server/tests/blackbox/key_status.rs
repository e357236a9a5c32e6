//! The status of a key: state and usage without a charge.

use std::time::Duration;

use http::Method;
use ipseity_domain::{KeyId, PlaintextKey, Scope, test_key};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, TestClient, TestResponse, eventually};
use serde_json::{Value, json};

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};
use crate::lookup::lookup_with_key;
use crate::restrictions::restrict;

const PATH: &str = "/api/v1/key";
/// Longer than a status is cached.
const CACHED_MAX: Duration = Duration::from_secs(10);

async fn status_with(caller: &mut TestClient, authorization: &str, headers: &[(&str, &str)]) -> TestResponse {
    let headers = [headers, &[("authorization", authorization)]].concat();
    caller.get(PATH, &headers).await.expect("response arrives")
}

async fn status_of(caller: &mut TestClient, key: &IssuedKey) -> Value {
    let reply = status_with(caller, &key.bearer(), &[]).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().expect("valid JSON")
}

/// Waits until the cached status has expired and the new one is this.
async fn expect_status(node: &Node, key: &IssuedKey, state: &str, usage: Value) {
    let key_status = if state == "inactive" { "deactivated" } else { state };
    let expected = json!({
        "status": "success", "scope": "geo", "state": state, "key_status": key_status, "limits": { "day": 10_000, "burst": 300 }, "usage": usage,
        "expires_at": null, "restrictions": { "origins": [], "networks": [], "caller_limit": null, "tickets_only": false },
    });
    let mut caller = node.client();
    let mut last = Value::Null;
    let is_expected = async || {
        last = status_of(&mut caller, key).await;
        last == expected
    };
    let changed = eventually("the status changes", CACHED_MAX, is_expected).await;
    assert!(changed.is_ok(), "the status is {last} instead of {expected}");
}

async fn node_with(deployment: &Deployment, setting: &str, value: &str) -> Node {
    let env = Env::from([(format!("IPSEITY__LEDGER__KEY_STATUS_{setting}"), value.to_owned())]);
    deployment.start_node(&env).await.expect("node starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_state_and_usage_and_is_not_charged() {
    let deployment = shared_deployment().await;
    let node = node_with(deployment, "REQUESTS_PER_KEY_PER_MIN_MAX", "10000").await;
    let (mut caller, key) = (node.client(), fresh_key(deployment, Scope::Geo).await);
    expect_status(&node, &key, "active", json!({ "day": 0, "burst": 0 })).await;
    for _ in 0..3 {
        assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    }
    expect_status(&node, &key, "active", json!({ "day": 3, "burst": 3 })).await;
    let in_query = caller.send(Method::HEAD, &format!("{PATH}?key={}", key.key), &[]).await.expect("response arrives");
    assert_eq!((in_query.status, in_query.header("cache-control")), (200, Some("no-store")));
    assert_eq!(lookup_with_key(&mut caller, &key).await.header("x-ratelimit-remaining"), Some("9996"));
    deployment.cli(&["key", "deactivate", &key.id]).await.expect("deactivate the key");
    expect_status(&node, &key, "inactive", json!({ "day": 4, "burst": 4 })).await;
    deployment.cli(&["key", "reactivate", &key.id]).await.expect("reactivate the key");
    while lookup_with_key(&mut caller, &key).await.status == 200 {}
    expect_status(&node, &key, "paused", json!({ "day": 300, "burst": 300 })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_for_a_page_has_neither_limits_nor_usage() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    assert!(status_of(&mut caller, &key).await["usage"].is_object());
    for origin in ["https://shop.example", "null", ""] {
        let reply = status_with(&mut caller, &key.bearer(), &[("origin", origin)]).await;
        assert_eq!(reply.json().expect("JSON"), json!({ "status": "success", "scope": "ip", "state": "active" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_restrictions_except_of_a_key_in_a_page() {
    let deployment = shared_deployment().await;
    let node = node_with(deployment, "REQUESTS_PER_KEY_PER_MIN_MAX", "10000").await;
    let (mut caller, key) = (node.client(), fresh_key(deployment, Scope::Ip).await);
    let server = ["--network", "198.51.100.0/24", "--expires", "2100-01-31T00:00:00Z", "--caller-limit", "30"];
    restrict(deployment, &key, &[&server[..], &["--daily-limit", "70"]].concat()).await;
    // A caller outside the networks learns nothing about them.
    let outside = json!({ "status": "success", "scope": "ip", "state": "active" });
    assert_eq!(status_of(&mut caller, &key).await, outside);
    let inside = [("x-forwarded-for", "198.51.100.9")];
    let status = status_with(&mut caller, &key.bearer(), &inside).await.json().expect("valid JSON");
    let networks = ["198.51.100.0/24"];
    let restrictions = json!({ "origins": [], "networks": networks, "caller_limit": 30, "tickets_only": false });
    assert_eq!(status["restrictions"], restrictions, "{status}");
    assert_eq!((&status["expires_at"], &status["limits"]["day"]), (&json!("2100-01-31T00:00:00Z"), &json!(70)));
    for (options, state) in [
        (["--origin", "https://shop.example", "--caller-limit", "30"], "active"),
        (["--origin", "https://shop.example", "--expires", "2020-01-31T00:00:00Z"], "expired"),
    ] {
        restrict(deployment, &key, &options).await;
        let expected = json!({ "status": "success", "scope": "ip", "state": state });
        let is_expected = async || status_of(&mut caller, &key).await == expected;
        eventually(&format!("the status is {expected}"), CACHED_MAX, is_expected).await.expect("happens in time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_needs_the_secret_of_the_key() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let id = KeyId::parse(&key.id).expect("valid id");
    let wrong_secret = || format!("Bearer {}", PlaintextKey::rotate(id, || fastrand::u8(..)).expose());
    let unknown = format!("Bearer {}", PlaintextKey::generate(|| fastrand::u8(..)).expose());
    // Before and after Redis has the key.
    let unfilled = status_with(&mut caller, &wrong_secret(), &[]).await;
    ExpectedError::INVALID_KEY.assert_matches(&unfilled);
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    for authorization in [wrong_secret().as_str(), &unknown, &unknown, "Bearer x"] {
        let reply = status_with(&mut caller, authorization, &[]).await;
        ExpectedError::INVALID_KEY.assert_matches(&reply);
        assert_eq!(reply.text(), unfilled.text());
    }
    ExpectedError::MISSING_KEY.assert_matches(&caller.get(PATH, &[]).await.expect("response arrives"));
    ExpectedError::MISSING_KEY.assert_matches(&status_with(&mut caller, &key.key, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_of_a_rotated_key_get_its_status() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    let rotated = deployment.cli(&["key", "rotate", &key.id, "--overlap-s", "3600"]).await.expect("rotate the key");
    let text = rotated.text();
    let secret = text.split_whitespace().find(|word| word.starts_with("ips_") && word.len() == 52).expect("a new key");
    let new_key = IssuedKey { id: key.id.clone(), key: secret.to_owned() };
    for key in [&key, &new_key] {
        assert_eq!(status_of(&mut caller, key).await["usage"]["day"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_requests_are_limited_per_key_and_network() {
    let deployment = shared_deployment().await;
    let per_key = node_with(deployment, "REQUESTS_PER_KEY_PER_MIN_MAX", "2").await;
    let (mut caller, key) = (per_key.client(), fresh_key(deployment, Scope::Ip).await);
    let id = KeyId::parse(&key.id).expect("valid id");
    for _ in 0..5 {
        let wrong_secret = format!("Bearer {}", PlaintextKey::rotate(id, || fastrand::u8(..)).expose());
        ExpectedError::INVALID_KEY.assert_matches(&status_with(&mut caller, &wrong_secret, &[]).await);
    }
    for _ in 0..2 {
        status_of(&mut caller, &key).await;
    }
    let limited = status_with(&mut caller, &key.bearer(), &[]).await;
    ExpectedError::STATUS_LIMIT.assert_matches(&limited);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200, "lookups are not limited");

    let per_network = node_with(deployment, "REQUESTS_PER_SUBNET_PER_MIN_MAX", "2").await;
    let mut caller = per_network.client();
    let from = |address| [("x-forwarded-for", address)];
    for expected in [200, 200, 429] {
        let key = fresh_key(deployment, Scope::Ip).await;
        assert_eq!(status_with(&mut caller, &key.bearer(), &from("198.51.100.1")).await.status, expected);
    }
    assert_eq!(status_with(&mut caller, &key.bearer(), &from("198.51.100.2")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_null_without_redis_and_a_test_key_needs_no_store() {
    let mut env = relaxed_timeouts();
    env.insert("IPSEITY__LEDGER__KEY_STATUS_REQUESTS_PER_KEY_PER_MIN_MAX".to_owned(), "10000".to_owned());
    for store in ["LEDGER", "STORE"] {
        env.insert(format!("IPSEITY__{store}__TIMEOUT_MS"), "500".to_owned());
    }
    let mut deployment =
        Deployment::start(DeploymentOptions { env, ..DeploymentOptions::default() }).await.expect("deployment starts");
    let key = fresh_key(&deployment, Scope::Geo).await;
    deployment.redis.kill9();
    expect_status(&deployment.nodes[0], &key, "active", json!({ "day": null, "burst": null })).await;
    deployment.postgres.kill9();
    let mut caller = deployment.nodes[0].client();
    let is_internal = async || status_with(&mut caller, &key.bearer(), &[]).await.status == 500;
    eventually("the cached status has expired", CACHED_MAX, is_internal).await.expect("happens in time");
    let test_status = status_with(&mut caller, &format!("Bearer {}", test_key(Scope::Full)), &[]).await;
    assert_eq!((test_status.status, test_status.header("ipseity-test")), (200, Some("true")));
    assert_eq!(test_status.json().expect("JSON")["usage"], json!({ "day": 1, "burst": 1 }));
}
