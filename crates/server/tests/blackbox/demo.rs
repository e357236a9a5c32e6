//! GET /api/v1/ip/demo: a fixed set of fields, no key, one quota for all.

use domain::Scope;
use http::Method;
use serde_json::{Value, json};
use testkit::node::Env;
use testkit::{Caller, Reply, samples};

use crate::errors::{Refused, follow};
use crate::limits::{Told, clockwork, told};
use crate::lookup::{GEO, IP, ask, names};
use crate::shared::{fresh_key, house};

const PATH: &str = "/api/v1/ip/demo";
const BEYOND_GEO: [&str; 4] = ["http_protocol", "tls_version", "rtt", "colo"];

async fn demo_as(caller: &mut Caller, client: &str) -> Reply {
    caller.get(PATH, &[("x-forwarded-for", client)]).await.expect("an answer")
}

fn body(reply: &Reply) -> Value {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    reply.json().expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_its_fixed_fields_with_the_values_of_a_lookup() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    let fields = IP.into_iter().chain(GEO).chain(BEYOND_GEO).collect();
    for client in [samples::PARIS.address, samples::ZURICH.address, samples::HOSTING.address, samples::UNKNOWN] {
        let demo = body(&demo_as(&mut caller, client).await);
        assert_eq!(names(&demo), fields, "{client}");
        let headers = [("authorization", key.bearer()), ("x-forwarded-for", client.to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let full = body(&caller.get("/api/v1/ip", &headers).await.expect("an answer"));
        for (name, value) in demo.as_object().expect("an object") {
            assert_eq!(&full[name], value, "{name} of {client}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_tells_of_the_callers_own_connection() {
    let house = house().await;
    let url = format!("https://{}{PATH}", house.nodes[0].https());
    let demo = house.curl(&["--http2", "--tlsv1.3", &url]).await.expect("an answer").json().expect("JSON");
    assert_eq!((&demo["http_protocol"], &demo["tls_version"]), (&json!("HTTP/2"), &json!("TLSv1.3")));
    assert!(demo["rtt"].is_u64() && demo["colo"].is_null(), "{demo}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_heeds_no_parameter_and_no_key() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    let plain = body(&demo_as(&mut caller, samples::PARIS.address).await);
    let own = format!("?key={}", key.key);
    for query in ["?scope=ip", "?scope=full", "?key=nonsense", "?ip=73.162.0.7", &own] {
        let headers = [("x-forwarded-for", samples::PARIS.address), ("authorization", "Bearer nonsense")];
        let reply = caller.get(&format!("{PATH}{query}"), &headers).await.expect("an answer");
        assert_eq!(body(&reply), plain, "{query}");
    }
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, 9_999, "the demo is not charged to a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_of_the_demo_share_one_quota_of_1000() {
    let stage = clockwork().await;
    stage.use_demo(996).await;
    // A node remembers a spent demo until midnight, so each test has its own.
    let node = stage.house.start_node(&Env::new()).await.expect("a node");
    let expected = Told { limit: 1_000, remaining: 3, reset_s: stage.midnight_s };
    for (client, remaining) in [("198.51.100.1", 3), ("2001:db8::2", 2), ("198.51.100.3", 1)] {
        let reply = demo_as(&mut node.caller(), client).await;
        assert_eq!((reply.status, told(&reply)), (200, Told { remaining, ..expected }));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"day\";q=1000;w=86400"));
        assert_eq!(reply.header("retry-after"), None);
    }
    let head = node.caller().send(Method::HEAD, PATH, &[]).await.expect("an answer");
    assert_eq!((head.status, told(&head).remaining), (200, 0));
    for client in ["198.51.100.1", "198.51.100.4", "2001:db8::5"] {
        let reply = demo_as(&mut node.caller(), client).await;
        let body = Refused::DEMO.holds(&reply);
        assert_eq!(told(&reply), Told { remaining: 0, ..expected });
        // The node counts on by its own clock.
        let retry_after: u64 = reply.header("retry-after").and_then(|value| value.parse().ok()).expect("seconds");
        assert!((43_100..=43_200).contains(&retry_after), "{retry_after}");
        follow(&node, &body["signup"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_demo_opens_again_at_midnight() {
    let stage = clockwork().await;
    stage.use_demo(999).await;
    let node = stage.house.start_node(&Env::new()).await.expect("a node");
    stage.set_ms(-500);
    let mut caller = node.caller();
    let spent = Told { limit: 1_000, remaining: 0, reset_s: stage.midnight_s };
    let last = demo_as(&mut caller, "198.51.100.1").await;
    assert_eq!((last.status, told(&last)), (200, spent));
    let reply = demo_as(&mut caller, "198.51.100.1").await;
    Refused::DEMO.holds(&reply);
    assert_eq!((told(&reply), reply.header("retry-after")), (spent, Some("1")));
    stage.set_ms(0);
    let first = demo_as(&mut caller, "198.51.100.1").await;
    let expected = Told { limit: 1_000, remaining: 999, reset_s: stage.midnight_s + domain::DAY_S };
    assert_eq!((first.status, told(&first)), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_has_no_burst_limit() {
    let stage = clockwork().await;
    stage.use_demo(0).await;
    let node = stage.house.start_node(&Env::new()).await.expect("a node");
    let mut caller = node.caller();
    for used in 1..=350 {
        let reply = demo_as(&mut caller, "198.51.100.1").await;
        assert_eq!((reply.status, told(&reply).remaining), (200, 1_000 - used));
    }
}
