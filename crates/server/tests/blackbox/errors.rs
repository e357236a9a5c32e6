//! Error responses: one body format, the codes, the links, and the 500.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Node, TestClient, TestResponse, eventually};
use serde_json::Value;

use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};
use crate::limits::{frozen_clock, rate_limit_headers};
use crate::lookup::lookup_with_key;

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// An error as documented.
#[derive(Clone, Copy)]
pub(crate) struct ExpectedError {
    status: u16,
    code: &'static str,
    docs_anchor: &'static str,
    /// The additional field besides `error`, `message` and `docs`.
    link_field: Option<&'static str>,
}

impl ExpectedError {
    pub(crate) const MISSING_KEY: Self = Self::new(401, "missing_api_key", "missing_api_key");
    pub(crate) const INVALID_KEY: Self = Self::new(401, "invalid_api_key", "invalid_api_key");
    pub(crate) const HTTPS_REQUIRED: Self = Self::new(400, "https_required", "https_required");
    pub(crate) const INACTIVE_KEY: Self = Self::new(403, "inactive_api_key", "inactive-keys");
    pub(crate) const PAUSED_KEY: Self = Self::new(403, "inactive_api_key", "paused-keys");
    pub(crate) const EXPIRED_KEY: Self = Self::new(403, "inactive_api_key", "expired-keys");
    pub(crate) const ORIGIN_NOT_ALLOWED: Self = Self::new(403, "origin_not_allowed", "origin_not_allowed");
    pub(crate) const NETWORK_NOT_ALLOWED: Self = Self::new(403, "network_not_allowed", "network_not_allowed");
    pub(crate) const TICKET_REQUIRED: Self = Self::new(403, "ticket_required", "ticket_required");
    pub(crate) const INVALID_TICKET: Self = Self::new(401, "invalid_api_key", "tickets");
    pub(crate) const TICKET_CREATION: Self = Self::new(403, "origin_not_allowed", "ticket-creation");
    pub(crate) const TICKET_LIMIT: Self = Self::new(429, "rate_limit_exceeded", "ticket-limit");
    pub(crate) const CALLER_LIMIT: Self = Self::new(429, "rate_limit_exceeded", "caller-limit");
    pub(crate) const STATUS_LIMIT: Self = Self::new(429, "rate_limit_exceeded", "key-status-limit");
    pub(crate) const BURST_LIMIT: Self = Self::new(429, "rate_limit_exceeded", "burst-limit");
    pub(crate) const DAILY_QUOTA: Self =
        Self { link_field: Some("enterprise"), ..Self::new(429, "rate_limit_exceeded", "daily-quota") };
    pub(crate) const DEMO_QUOTA: Self =
        Self { link_field: Some("signup"), ..Self::new(429, "rate_limit_exceeded", "demo-quota") };
    pub(crate) const PAIR_LIMIT: Self = Self::new(429, "rate_limit_exceeded", "pair-limit");
    pub(crate) const NETWORK_BLOCKED: Self = Self::new(403, "network_blocked", "network_blocked");
    pub(crate) const MISDIRECTED: Self = Self::new(421, "misdirected_request", "misdirected_request");
    pub(crate) const INTERNAL: Self = Self::new(500, "internal_error", "internal_error");
    pub(crate) const NOT_FOUND: Self = Self::new(404, "not_found", "not_found");
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self::new(405, "method_not_allowed", "method_not_allowed");
    pub(crate) const BAD_REQUEST: Self = Self::new(400, "bad_request", "bad_request");
    pub(crate) const URI_TOO_LONG: Self = Self::new(414, "uri_too_long", "bad_request");

    const fn new(status: u16, code: &'static str, docs_anchor: &'static str) -> Self {
        Self { status, code, docs_anchor, link_field: None }
    }

    /// Checks body, links and headers of a response, and returns the body.
    #[track_caller]
    pub(crate) fn assert_matches(self, reply: &TestResponse) -> Value {
        assert_eq!(reply.status, self.status, "{}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let challenge = (self.status == 401).then_some("Bearer");
        assert_eq!(reply.header("www-authenticate"), challenge, "{}", self.code);
        if self.status == 429 {
            rate_limit_headers(reply);
            reply.header("retry-after").expect("Retry-After is set").parse::<u64>().expect("whole seconds");
        } else {
            let limit_headers =
                ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];
            let sent = limit_headers.into_iter().find(|name| reply.headers.contains_key(*name));
            assert_eq!(sent, None, "{}", self.code);
        }
        let body = reply.json().expect("error has a body");
        let fields: BTreeSet<_> = body.as_object().expect("value is an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["error", "message", "docs"].into_iter().chain(self.link_field).collect(), "{}", self.code);
        assert_eq!(body["error"], self.code);
        assert!(body["message"].as_str().is_some_and(|message| message.ends_with('.')), "{body}");
        let docs = body["docs"].as_str().expect("link exists");
        assert!(docs.starts_with("http") && docs.ends_with(&format!("#{}", self.docs_anchor)), "{docs}");
        body
    }
}

const ALL_ERRORS: [ExpectedError; 24] = [
    ExpectedError::MISSING_KEY,
    ExpectedError::INVALID_KEY,
    ExpectedError::HTTPS_REQUIRED,
    ExpectedError::INACTIVE_KEY,
    ExpectedError::PAUSED_KEY,
    ExpectedError::EXPIRED_KEY,
    ExpectedError::ORIGIN_NOT_ALLOWED,
    ExpectedError::NETWORK_NOT_ALLOWED,
    ExpectedError::TICKET_REQUIRED,
    ExpectedError::INVALID_TICKET,
    ExpectedError::TICKET_CREATION,
    ExpectedError::TICKET_LIMIT,
    ExpectedError::CALLER_LIMIT,
    ExpectedError::STATUS_LIMIT,
    ExpectedError::BURST_LIMIT,
    ExpectedError::DAILY_QUOTA,
    ExpectedError::DEMO_QUOTA,
    ExpectedError::PAIR_LIMIT,
    ExpectedError::NETWORK_BLOCKED,
    ExpectedError::MISDIRECTED,
    ExpectedError::INTERNAL,
    ExpectedError::NOT_FOUND,
    ExpectedError::METHOD_NOT_ALLOWED,
    ExpectedError::URI_TOO_LONG,
];

/// Base URL of a node in its responses.
pub(crate) fn base_url(node: &Node) -> &str {
    &node.env()["IPSEITY__PUBLIC__BASE_URL"]
}

/// Fetches a page that a response links to.
pub(crate) async fn fetch_linked_page(node: &Node, link: &Value) -> String {
    let service_url = base_url(node);
    let path = link.as_str().and_then(|link| link.strip_prefix(service_url)).expect("link leads to this service");
    let page = node.client().get(path.split('#').next().expect("valid path"), &[]).await.expect("page loads");
    assert_eq!(page.status, 200, "{link}");
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{link}");
    page.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_path_is_not_found() {
    let mut caller = shared_deployment().await.nodes[0].client();
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
        "/api%2Fv1/ip",
        "/api/v1/%2569p",
        "/api/v1/ip%2F",
        "/docs/",
    ] {
        for method in [Method::GET, Method::POST] {
            ExpectedError::NOT_FOUND.assert_matches(&caller.send(method, path, &[]).await.expect("response arrives"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_letters_in_a_path_equal_plain_ones() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    for path in ["/api/v1/%69p", "/%61pi/v1/i%70", "/api/v1/%69%70?scope=geo"] {
        let reply = caller.get(path, &[("authorization", &key.bearer())]).await.expect("response arrives");
        assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, Some("10000")), "{path}");
        ExpectedError::MISSING_KEY.assert_matches(&caller.get(path, &[]).await.expect("response arrives"));
    }
    assert_eq!(caller.get("/%64ocs/errors", &[]).await.expect("response arrives").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_version_is_part_of_the_path() {
    let node = &shared_deployment().await.nodes[0];
    for path in ["/api/ip", "/ip", "/v1/ip", "/api/v0/ip", "/api/v2/ip", "/api/v1.1/ip", "/api/v2/ip/demo"] {
        ExpectedError::NOT_FOUND.assert_matches(&node.client().get(path, &[]).await.expect("response arrives"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_page_shows_the_api_version() {
    let node = &shared_deployment().await.nodes[0];
    let page = node.client().get("/docs", &[]).await.expect("page loads");
    assert!(page.text().contains("version 1.1.0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_get_405_with_an_allow_header() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let mut caller = deployment.nodes[0].client();
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::TRACE] {
            let reply = caller.send(method, path, &[("authorization", &key.bearer())]).await.expect("response arrives");
            ExpectedError::METHOD_NOT_ALLOWED.assert_matches(&reply);
            let allow: BTreeSet<_> = reply.header("allow").expect("Allow is set").split(',').map(str::trim).collect();
            assert_eq!(allow, BTreeSet::from(["GET", "HEAD", "OPTIONS"]));
        }
    }
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining,
        9_999,
        "rejected methods are not charged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_uri_is_rejected() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for path in ["/api/v1/ip?x=", "/api/v1/ip/demo?x=", "/"] {
        ExpectedError::URI_TOO_LONG
            .assert_matches(&caller.get(&format!("{path}{}", "x".repeat(5_000)), &[]).await.expect("response arrives"));
    }
    let long = format!("/api/v1/ip?x={}", "x".repeat(4_000));
    ExpectedError::MISSING_KEY.assert_matches(&caller.get(&long, &[]).await.expect("response arrives"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_docs_link_leads_to_an_existing_section() {
    let deployment = shared_deployment().await;
    let (node, mut caller) = (&deployment.nodes[0], deployment.nodes[0].client());
    let page =
        fetch_linked_page(
            node,
            &ExpectedError::MISSING_KEY.assert_matches(&caller.get("/api/v1/ip", &[]).await.expect("response arrives"))
                ["docs"],
        )
        .await;
    for error in ALL_ERRORS {
        let heading = format!(
            "<h3 id=\"{0}\"><a href=\"#{0}\"><span class=\"status\">{1}</span> {2}",
            error.docs_anchor, error.status, error.code
        );
        assert_eq!(page.matches(&heading).count(), 1, "{heading}");
    }
    // Links from before the errors had a page lead to their table.
    let start = caller.get("/docs", &[]).await.expect("page loads").text();
    for error in ALL_ERRORS {
        assert_eq!(start.matches(&format!("id=\"{}\"", error.docs_anchor)).count(), 1, "/docs#{}", error.docs_anchor);
    }
    for path in ["/api/v1/ip?key=x", "/nowhere", &format!("/?{}", "x".repeat(5_000))] {
        let body = caller.get(path, &[]).await.expect("response arrives").json().expect("error is JSON");
        assert_eq!(fetch_linked_page(node, &body["docs"]).await, page, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_use_the_configured_urls() {
    let fixture = frozen_clock().await;
    let links = ["DOCS", "SIGNUP", "ENTERPRISE"].map(|page| {
        (format!("IPSEITY__PUBLIC__{page}_URL"), format!("https://pages.example.com/{}", page.to_lowercase()))
    });
    let node = fixture.deployment.start_node(&Env::from(links)).await.expect("node starts");
    let mut caller = node.client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    fixture.record_usage(&key, 10_000).await;
    let body = ExpectedError::DAILY_QUOTA.assert_matches(&lookup_with_key(&mut caller, &key).await);
    assert_eq!(body["enterprise"], "https://pages.example.com/enterprise");
    assert_eq!(body["docs"], "https://pages.example.com/docs#daily-quota");
    fixture.record_demo_usage(1_000).await;
    let body =
        ExpectedError::DEMO_QUOTA.assert_matches(&caller.get("/api/v1/ip/demo", &[]).await.expect("response arrives"));
    assert_eq!(body["signup"], "https://pages.example.com/signup");
    assert_eq!(body["docs"], "https://pages.example.com/docs#demo-quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_of_both_stores_gives_500_and_recovers() {
    let mut env = relaxed_timeouts();
    for store in ["LEDGER", "STORE"] {
        env.insert(format!("IPSEITY__{store}__TIMEOUT_MS"), "500".to_owned());
    }
    let mut deployment =
        Deployment::start(DeploymentOptions { env, ..DeploymentOptions::default() }).await.expect("deployment starts");
    let key = fresh_key(&deployment, Scope::Full).await;
    let mut caller = deployment.nodes[0].client();
    let pid = deployment.nodes[0].pid();

    deployment.redis.kill9();
    deployment.postgres.kill9();
    let unknown_key_path = format!("/api/v1/ip?key={}", PlaintextKey::generate(|| fastrand::u8(..)).expose());
    for path in [format!("/api/v1/ip?key={}", key.key), unknown_key_path, "/api/v1/ip/demo".to_owned()] {
        for method in [Method::GET, Method::HEAD] {
            let (start, is_head) = (Instant::now(), method == Method::HEAD);
            let reply = caller.send(method, &path, &[]).await.expect("response arrives");
            assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
            if is_head {
                assert_eq!((reply.status, reply.body.len()), (500, 0));
            } else {
                let message = ExpectedError::INTERNAL.assert_matches(&reply)["message"].to_string();
                assert!(message.contains("Please retry") && !message.contains("Redis"), "{message}");
            }
        }
    }
    ExpectedError::MISSING_KEY.assert_matches(&caller.get("/api/v1/ip", &[]).await.expect("response arrives"));
    assert_eq!(caller.send(Method::OPTIONS, "/api/v1/ip", &[]).await.expect("response arrives").status, 204);

    deployment.postgres.restart().await.expect("PostgreSQL restarts");
    deployment.redis.restart().await.expect("Redis restarts");
    for path in [format!("/api/v1/ip?key={}", key.key), "/api/v1/ip/demo".to_owned()] {
        let mut caller = TestClient::new(deployment.nodes[0].http());
        let is_answered = async || caller.get(&path, &[]).await.is_ok_and(|reply| reply.status == 200);
        eventually("the service responds again", RECOVERY_TIMEOUT, is_answered).await.expect("node recovers");
    }
    assert_eq!(deployment.nodes[0].pid(), pid);
}
