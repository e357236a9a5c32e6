//! Headers of every response: CORS, caching and others.

use std::collections::BTreeSet;

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, TestResponse};

use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::rate_limit_headers;
use crate::lookup::lookup_with_key;

const ORIGIN: (&str, &str) = ("origin", "https://shop.example.com");

/// One response of each kind on the shared deployment. Limits and the 500 are checked in their tests.
async fn one_response_of_each_kind(deployment: &Deployment) -> Vec<(u16, TestResponse)> {
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    let inactive = fresh_key(deployment, Scope::Ip).await;
    deployment.cli(&["key", "deactivate", &inactive.id]).await.expect("deactivate the key");
    let (good, bad) = (format!("/api/v1/ip?key={}", key.key), format!("/api/v1/ip?key={}", inactive.key));
    let long = format!("/?{}", "x".repeat(5_000));
    let mut responses = Vec::new();
    for (method, path, status) in [
        (Method::GET, good.as_str(), 200),
        (Method::HEAD, &good, 200),
        (Method::GET, "/api/v1/ip/demo", 200),
        (Method::GET, "/", 200),
        (Method::GET, "/docs", 200),
        (Method::GET, "/docs/errors", 200),
        (Method::GET, "/reference", 200),
        (Method::GET, "/keys", 303),
        (Method::GET, "/signup", 200),
        (Method::GET, "/enterprise", 200),
        (Method::OPTIONS, "/api/v1/ip", 204),
        (Method::OPTIONS, "/api/v1/ip/demo", 204),
        (Method::GET, "/api/v1/ip", 401),
        (Method::GET, "/api/v1/ip?key=x", 401),
        (Method::GET, &bad, 403),
        (Method::GET, "/nowhere", 404),
        (Method::OPTIONS, "/nowhere", 204),
        (Method::OPTIONS, "/signin", 204),
        (Method::POST, "/api/v1/ip", 405),
        (Method::DELETE, "/docs", 405),
        (Method::GET, &long, 414),
    ] {
        let reply = caller.send(method, path, &[ORIGIN]).await.expect("response arrives");
        responses.push((status, reply));
    }
    responses
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_allows_any_origin_without_credentials() {
    for (status, reply) in one_response_of_each_kind(shared_deployment().await).await {
        assert_eq!(reply.status, status);
        let origins: Vec<_> = reply.headers.get_all("access-control-allow-origin").iter().collect();
        assert_eq!(origins, ["*"], "{status}");
        assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_exposes_limits_and_request_id() {
    let mut ids = BTreeSet::new();
    for (status, reply) in one_response_of_each_kind(shared_deployment().await).await {
        let exposed =
            reply.header("access-control-expose-headers").expect("exposed headers are set").to_ascii_lowercase();
        let exposed: BTreeSet<_> = exposed.split(", ").collect();
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy"]
        {
            assert!(exposed.contains(name), "{name} of a {status}");
        }
        assert!(exposed.contains("retry-after") && exposed.contains("x-request-id"), "{status}");
        let id = reply.header("x-request-id").expect("request ID is set").to_owned();
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert!(ids.insert(id), "a header name occurs twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_is_cached_sniffed_or_sends_a_referrer() {
    for (status, reply) in one_response_of_each_kind(shared_deployment().await).await {
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{status}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{status}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_responses_and_their_timing_are_readable_from_any_origin() {
    for (status, reply) in one_response_of_each_kind(shared_deployment().await).await {
        let is_page = reply.headers.contains_key("content-security-policy");
        let (policy, timing) = if is_page { ("same-origin", None) } else { ("cross-origin", Some("*")) };
        assert_eq!(reply.header("cross-origin-resource-policy"), Some(policy), "{status}");
        assert_eq!(reply.header("timing-allow-origin"), timing, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_json_body_ends_with_one_newline() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    let files = ["/api/v1/meta", "/api/v1/openapi.json", "/docs/search.json", "/.well-known/api-catalog"];
    let mut replies = one_response_of_each_kind(deployment).await;
    for path in files {
        replies.push((200, caller.get(path, &[]).await.expect("response arrives")));
    }
    for (status, reply) in replies {
        if reply.body.is_empty() || !reply.header("content-type").is_some_and(|kind| kind.contains("json")) {
            continue;
        }
        let text = reply.text();
        assert!(text.ends_with("}\n") || text.ends_with("]\n"), "{status}: {text}");
        assert_eq!(reply.header("content-length"), Some(&*text.len().to_string()), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_response_is_json() {
    for (status, reply) in one_response_of_each_kind(shared_deployment().await).await {
        match reply.header("content-type") {
            Some("application/json") if reply.body.is_empty() => {}
            Some("application/json") => assert!(reply.json().expect("valid JSON").is_object(), "{status}"),
            // The portal's pages.
            Some(kind) => {
                assert!(kind.starts_with("text/html") && reply.text().starts_with("<!doctype html>"), "{kind}")
            }
            None => assert!([204, 303].contains(&status) && reply.body.is_empty(), "{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preflight_on_any_path_is_204_without_body_key_or_charge() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let before = rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining;
    let preflight_headers = [
        ORIGIN,
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "authorization,sentry-trace,traceparent"),
    ];
    let with_key = format!("/api/v1/ip?key={}", key.key);
    let api_paths = ["/api/v1/ip", "/api/v1/ip/demo", "/api/v1/meta", &with_key];
    let other_paths = ["/", "/keys", "/signin", "/signout", "/robots.txt", "/nowhere", "/api/v1/ip/"];
    for path in api_paths.into_iter().chain(other_paths) {
        for (headers, allowed) in [
            (&[][..], "Authorization, Content-Type"),
            (&preflight_headers, "Authorization, Content-Type, sentry-trace, traceparent"),
        ] {
            let reply = caller.send(Method::OPTIONS, path, headers).await.expect("response arrives");
            assert_eq!((reply.status, reply.body.len()), (204, 0), "{path}");
            assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
            assert_eq!(reply.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
            assert_eq!(reply.header("access-control-allow-headers"), Some(allowed));
            assert_eq!(reply.header("access-control-max-age"), Some("86400"));
            for absent in [
                "content-type",
                "content-length",
                "x-ratelimit-limit",
                "www-authenticate",
                "set-cookie",
                "access-control-allow-credentials",
            ] {
                assert!(!reply.headers.contains_key(absent), "{absent}");
            }
        }
    }
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining, before - 1);
}
