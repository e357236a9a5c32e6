//! What every answer carries: CORS, caching and the like.

use std::collections::BTreeSet;

use domain::Scope;
use http::Method;
use testkit::{House, Reply};

use crate::limits::told;
use crate::lookup::ask;
use crate::shared::{fresh_key, house};

const ORIGIN: (&str, &str) = ("origin", "https://shop.example.com");

/// One answer of each kind that needs no house of its own. Those of the limits and the 500 are held to the same where they are tested.
async fn answers(house: &House) -> Vec<(u16, Reply)> {
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    let inactive = fresh_key(house, Scope::Ip).await;
    house.cli(&["key", "deactivate", &inactive.id]).await.expect("deactivated");
    let (good, bad) = (format!("/api/v1/ip?key={}", key.key), format!("/api/v1/ip?key={}", inactive.key));
    let long = format!("/?{}", "x".repeat(5_000));
    let mut answers = Vec::new();
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
        (Method::OPTIONS, "/nowhere", 404),
        (Method::POST, "/api/v1/ip", 405),
        (Method::DELETE, "/docs", 405),
        (Method::GET, &long, 414),
    ] {
        let reply = caller.send(method, path, &[ORIGIN]).await.expect("an answer");
        answers.push((status, reply));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_may_be_read_from_any_origin_and_without_credentials() {
    for (status, reply) in answers(house().await).await {
        assert_eq!(reply.status, status);
        let origins: Vec<_> = reply.headers.get_all("access-control-allow-origin").iter().collect();
        assert_eq!(origins, ["*"], "{status}");
        assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_lets_browsers_read_the_limits_and_its_own_name() {
    let mut ids = BTreeSet::new();
    for (status, reply) in answers(house().await).await {
        let exposed = reply.header("access-control-expose-headers").expect("exposed headers").to_ascii_lowercase();
        let exposed: BTreeSet<_> = exposed.split(", ").collect();
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy"]
        {
            assert!(exposed.contains(name), "{name} of a {status}");
        }
        assert!(exposed.contains("retry-after") && exposed.contains("x-request-id"), "{status}");
        let id = reply.header("x-request-id").expect("a name").to_owned();
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert!(ids.insert(id), "a name was given twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_cached_sniffed_or_referred() {
    for (status, reply) in answers(house().await).await {
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{status}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{status}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_api_is_json() {
    for (status, reply) in answers(house().await).await {
        match reply.header("content-type") {
            Some("application/json") if reply.body.is_empty() => {}
            Some("application/json") => assert!(reply.json().expect("JSON").is_object(), "{status}"),
            // The pages for people, beside the API.
            Some(kind) => {
                assert!(kind.starts_with("text/html") && reply.text().starts_with("<!doctype html>"), "{kind}")
            }
            None => assert!([204, 303].contains(&status) && reply.body.is_empty(), "{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_204_without_a_body_a_key_or_a_charge() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let before = told(&ask(&mut caller, &key).await).remaining;
    let asked = [
        ORIGIN,
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "authorization, content-type"),
    ];
    for path in ["/api/v1/ip", "/api/v1/ip/demo", &format!("/api/v1/ip?key={}", key.key)] {
        for headers in [&[][..], &asked] {
            let reply = caller.send(Method::OPTIONS, path, headers).await.expect("an answer");
            assert_eq!((reply.status, reply.body.len()), (204, 0), "{path}");
            assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
            assert_eq!(reply.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
            assert_eq!(reply.header("access-control-allow-headers"), Some("Authorization, Content-Type"));
            assert_eq!(reply.header("access-control-max-age"), Some("86400"));
            for absent in ["content-type", "content-length", "x-ratelimit-limit", "www-authenticate"] {
                assert!(!reply.headers.contains_key(absent), "{absent}");
            }
        }
    }
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, before - 1);
}
