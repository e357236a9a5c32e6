//! Errors: one body for all, the codes, the links, and the 500.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use domain::{ClearKey, Scope};
use http::Method;
use serde_json::Value;
use testkit::node::Env;
use testkit::{Caller, House, HouseOptions, Node, Reply, eventually};

use crate::limits::{clockwork, told};
use crate::lookup::ask;
use crate::shared::{fresh_key, house, patient};

const HEAL_MAX: Duration = Duration::from_secs(10);

/// An error as the contract or a decision describes it.
#[derive(Clone, Copy)]
pub(crate) struct Refused {
    status: u16,
    code: &'static str,
    anchor: &'static str,
    /// The one field beside `error`, `message` and `docs`.
    link: Option<&'static str>,
}

impl Refused {
    pub(crate) const MISSING: Self = Self::plain(401, "missing_api_key", "missing_api_key");
    pub(crate) const INVALID: Self = Self::plain(401, "invalid_api_key", "invalid_api_key");
    pub(crate) const INACTIVE: Self = Self::plain(403, "inactive_api_key", "inactive-keys");
    pub(crate) const PAUSED: Self = Self::plain(403, "inactive_api_key", "paused-keys");
    pub(crate) const BURST: Self = Self::plain(429, "rate_limit_exceeded", "burst-limit");
    pub(crate) const DAY: Self =
        Self { link: Some("enterprise"), ..Self::plain(429, "rate_limit_exceeded", "daily-quota") };
    pub(crate) const DEMO: Self =
        Self { link: Some("signup"), ..Self::plain(429, "rate_limit_exceeded", "demo-quota") };
    pub(crate) const INTERNAL: Self = Self::plain(500, "internal_error", "internal_error");
    pub(crate) const NOT_FOUND: Self = Self::plain(404, "not_found", "not_found");
    pub(crate) const METHOD: Self = Self::plain(405, "method_not_allowed", "method_not_allowed");
    pub(crate) const LONG: Self = Self::plain(414, "uri_too_long", "bad_request");

    const fn plain(status: u16, code: &'static str, anchor: &'static str) -> Self {
        Self { status, code, anchor, link: None }
    }

    /// Holds an answer to all that is said of this error: body, links and headers. Gives the body.
    #[track_caller]
    pub(crate) fn holds(self, reply: &Reply) -> Value {
        assert_eq!(reply.status, self.status, "{}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let challenge = (self.status == 401).then_some("Bearer");
        assert_eq!(reply.header("www-authenticate"), challenge, "{}", self.code);
        if self.status == 429 {
            told(reply);
            reply.header("retry-after").expect("Retry-After").parse::<u64>().expect("whole seconds");
        } else {
            let limits =
                ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];
            let sent = limits.into_iter().find(|name| reply.headers.contains_key(*name));
            assert_eq!(sent, None, "{}", self.code);
        }
        let body = reply.json().expect("an error's body");
        let fields: BTreeSet<_> = body.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["error", "message", "docs"].into_iter().chain(self.link).collect(), "{}", self.code);
        assert_eq!(body["error"], self.code);
        assert!(body["message"].as_str().is_some_and(|message| message.ends_with('.')), "{body}");
        let docs = body["docs"].as_str().expect("a link");
        assert!(docs.starts_with("http") && docs.ends_with(&format!("#{}", self.anchor)), "{docs}");
        body
    }
}

/// All of them.
const ALL: [Refused; 11] = [
    Refused::MISSING,
    Refused::INVALID,
    Refused::INACTIVE,
    Refused::PAUSED,
    Refused::BURST,
    Refused::DAY,
    Refused::DEMO,
    Refused::INTERNAL,
    Refused::NOT_FOUND,
    Refused::METHOD,
    Refused::LONG,
];

/// Where callers reach a node, as its answers say.
pub(crate) fn base_url(node: &Node) -> &str {
    &node.env()["IPSEITY__PUBLIC__BASE_URL"]
}

/// Follows a link of an answer to the node that it leads to, and gives the page.
pub(crate) async fn follow(node: &Node, link: &Value) -> String {
    let own = base_url(node);
    let path = link.as_str().and_then(|link| link.strip_prefix(own)).expect("a link to this very service");
    let page = node.caller().get(path.split('#').next().expect("a path"), &[]).await.expect("a page");
    assert_eq!(page.status, 200, "{link}");
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{link}");
    page.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_not_there_is_not_found() {
    let mut caller = house().await.nodes[0].caller();
    for path in [
        "/api",
        "/api/v1",
        "/api/v1/ip/",
        "/api/v1/IP",
        "/api/v1//ip",
        "/api/v1/ip/demo/",
        "/api/v1/ip/198.51.100.1",
        "/api/v1/events",
        "/api/v1/keys",
        "/docs/",
    ] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            Refused::NOT_FOUND.holds(&caller.send(method, path, &[]).await.expect("an answer"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_part_of_the_path() {
    let node = &house().await.nodes[0];
    for path in ["/api/ip", "/ip", "/v1/ip", "/api/v0/ip", "/api/v2/ip", "/api/v1.1/ip", "/api/v2/ip/demo"] {
        Refused::NOT_FOUND.holds(&node.caller().get(path, &[]).await.expect("an answer"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_the_interface_says_its_version() {
    let node = &house().await.nodes[0];
    let page = node.caller().get("/docs", &[]).await.expect("a page");
    assert!(page.text().contains("version 1.1.0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_method_is_not_allowed_and_told_which_are() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let mut caller = house.nodes[0].caller();
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE] {
            let reply = caller.send(method, path, &[("authorization", &key.bearer())]).await.expect("an answer");
            Refused::METHOD.holds(&reply);
            let allow: BTreeSet<_> = reply.header("allow").expect("Allow").split(',').map(str::trim).collect();
            assert_eq!(allow, BTreeSet::from(["GET", "HEAD", "OPTIONS"]));
        }
    }
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, 9_999, "refused methods are not charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_too_long_is_refused() {
    let mut caller = house().await.nodes[0].caller();
    for path in ["/api/v1/ip?x=", "/api/v1/ip/demo?x=", "/"] {
        Refused::LONG.holds(&caller.get(&format!("{path}{}", "x".repeat(5_000)), &[]).await.expect("an answer"));
    }
    let long = format!("/api/v1/ip?x={}", "x".repeat(4_000));
    Refused::MISSING.holds(&caller.get(&long, &[]).await.expect("an answer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_docs_link_leads_to_a_section_that_exists() {
    let house = house().await;
    let (node, mut caller) = (&house.nodes[0], house.nodes[0].caller());
    let page =
        follow(node, &Refused::MISSING.holds(&caller.get("/api/v1/ip", &[]).await.expect("an answer"))["docs"]).await;
    for refused in ALL {
        let heading = format!(
            "<h3 id=\"{0}\"><a href=\"#{0}\"><span class=\"status\">{1}</span> {2}",
            refused.anchor, refused.status, refused.code
        );
        assert_eq!(page.matches(&heading).count(), 1, "{heading}");
    }
    // Links from before the errors had a page of their own lead to their table.
    let start = caller.get("/docs", &[]).await.expect("a page").text();
    for refused in ALL {
        assert_eq!(start.matches(&format!("id=\"{}\"", refused.anchor)).count(), 1, "/docs#{}", refused.anchor);
    }
    for path in ["/api/v1/ip?key=x", "/nowhere", &format!("/?{}", "x".repeat(5_000))] {
        let body = caller.get(path, &[]).await.expect("an answer").json().expect("an error");
        assert_eq!(follow(node, &body["docs"]).await, page, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_where_the_operator_says() {
    let stage = clockwork().await;
    let links = ["DOCS", "SIGNUP", "ENTERPRISE"].map(|page| {
        (format!("IPSEITY__PUBLIC__{page}_URL"), format!("https://pages.example.com/{}", page.to_lowercase()))
    });
    let node = stage.house.start_node(&Env::from(links)).await.expect("a node");
    let mut caller = node.caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    stage.use_day(&key, 10_000).await;
    let body = Refused::DAY.holds(&ask(&mut caller, &key).await);
    assert_eq!(body["enterprise"], "https://pages.example.com/enterprise");
    assert_eq!(body["docs"], "https://pages.example.com/docs#daily-quota");
    stage.use_demo(1_000).await;
    let body = Refused::DEMO.holds(&caller.get("/api/v1/ip/demo", &[]).await.expect("an answer"));
    assert_eq!(body["signup"], "https://pages.example.com/signup");
    assert_eq!(body["docs"], "https://pages.example.com/docs#demo-quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_neither_store_can_tell_the_service_answers_500_at_once_and_heals_by_itself() {
    let mut env = patient();
    for store in ["LEDGER", "STORE"] {
        env.insert(format!("IPSEITY__{store}__TIMEOUT_MS"), "500".to_owned());
    }
    let mut house = House::start(HouseOptions { env, ..HouseOptions::default() }).await.expect("a house");
    let key = fresh_key(&house, Scope::Full).await;
    let mut caller = house.nodes[0].caller();
    let pid = house.nodes[0].pid();

    house.redis.kill9();
    house.postgres.kill9();
    let stranger = format!("/api/v1/ip?key={}", ClearKey::mint(|| fastrand::u8(..)).expose());
    for path in [format!("/api/v1/ip?key={}", key.key), stranger, "/api/v1/ip/demo".to_owned()] {
        for method in [Method::GET, Method::HEAD] {
            let (start, is_head) = (Instant::now(), method == Method::HEAD);
            let reply = caller.send(method, &path, &[]).await.expect("an answer");
            assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
            if is_head {
                assert_eq!((reply.status, reply.body.len()), (500, 0));
            } else {
                let message = Refused::INTERNAL.holds(&reply)["message"].to_string();
                assert!(message.contains("may be sent again") && !message.contains("Redis"), "{message}");
            }
        }
    }
    Refused::MISSING.holds(&caller.get("/api/v1/ip", &[]).await.expect("an answer"));
    assert_eq!(caller.send(Method::OPTIONS, "/api/v1/ip", &[]).await.expect("an answer").status, 204);

    house.postgres.restart().await.expect("PostgreSQL again");
    house.redis.restart().await.expect("Redis again");
    for path in [format!("/api/v1/ip?key={}", key.key), "/api/v1/ip/demo".to_owned()] {
        let mut caller = Caller::new(house.nodes[0].http());
        let heals = async || caller.get(&path, &[]).await.is_ok_and(|reply| reply.status == 200);
        eventually("the service answers again", HEAL_MAX, heals).await.expect("healed");
    }
    assert_eq!(house.nodes[0].pid(), pid);
}
