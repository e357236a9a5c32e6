//! Tickets: what a page sends in place of a key.

use std::fs;
use std::path::Path;

use futures_util::future::join_all;
use http::Method;
use ipseity_domain::{PlaintextKey, Scope, test_key};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, IssuedKey, Node, TestClient, TestDir, TestResponse,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::errors::ExpectedError;
use crate::fixture::{env_number, fresh_key, relaxed_timeouts, shared_deployment};
use crate::limits::frozen_clock;
use crate::restrictions::restrict;

pub(crate) const TICKETS_PATH: &str = "/api/v1/tickets";
const LOOKUP_PATH: &str = "/api/v1/ip";
const STATUS_PATH: &str = "/api/v1/key";
const SHOP: &str = "https://shop.example";

/// Settings with a key file, which must exist as long as a node uses it.
pub(crate) fn ticket_env(dir: &Path, base_url: &str) -> Env {
    let file = dir.join("sealing-keys");
    fs::write(&file, format!("seal {}\n", "1".repeat(64))).expect("write file");
    let settings = [("SEALING_KEY_FILE", file.display().to_string()), ("BASE_URL", base_url.to_owned())];
    settings.into_iter().map(|(name, value)| (format!("IPSEITY__PUBLIC__{name}"), value)).collect()
}

/// A node of a deployment that all tests share.
struct TicketNode {
    node: Node,
    _dir: TestDir,
}

impl TicketNode {
    async fn start(deployment: &Deployment) -> Self {
        let dir = TestDir::create().expect("directory");
        let env = ticket_env(dir.path(), "http://localhost");
        Self { node: deployment.start_node(&env).await.expect("node starts"), _dir: dir }
    }
}

async fn request_ticket(node: &Node, key: &IssuedKey, options: &Value) -> TestResponse {
    let mut client = node.client();
    client.post(TICKETS_PATH, &[("authorization", &key.bearer())], options.to_string()).await.expect("response arrives")
}

/// A ticket with these options.
pub(crate) async fn create_ticket(node: &Node, key: &IssuedKey, options: &Value) -> String {
    let reply = request_ticket(node, key, options).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().expect("valid JSON")["ticket"].as_str().expect("text").to_owned()
}

/// Makes a lookup with a ticket.
pub(crate) async fn use_ticket(node: &Node, ticket: &str, headers: &[(&str, &str)]) -> TestResponse {
    use_ticket_on(&mut node.client(), ticket, headers).await
}

async fn use_ticket_on(client: &mut TestClient, ticket: &str, headers: &[(&str, &str)]) -> TestResponse {
    let bearer = format!("Bearer {ticket}");
    let headers = [&[("authorization", bearer.as_str())], headers].concat();
    client.get(LOOKUP_PATH, &headers).await.expect("response arrives")
}

async fn run_cli(deployment: &Deployment, arguments: &[&str]) {
    deployment.cli(arguments).await.and_then(CommandOutput::ensure_success).expect("command succeeds");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_uses_a_ticket_in_place_of_the_key() {
    let deployment = shared_deployment().await;
    let (server, key) = (TicketNode::start(deployment).await, fresh_key(deployment, Scope::Geo).await);
    let node = &server.node;
    let reply = node.client().post(TICKETS_PATH, &[("authorization", &key.bearer())], "").await.expect("reply");
    let body = reply.json().expect("valid JSON");
    assert_eq!((reply.status, reply.header("cache-control")), (200, Some("no-store")), "{body}");
    assert_eq!((&body["scope"], &body["origin"], &body["uses"]), (&json!("geo"), &json!(null), &json!(5)), "{body}");
    assert_eq!(body["expires_in_s"], 300);
    let ticket = body["ticket"].as_str().expect("text");
    assert!(ticket.starts_with("ipt_") && !ticket.contains(&key.id), "{ticket}");
    let by_header = use_ticket(node, ticket, &[("origin", SHOP)]).await;
    let by_query = node.client().get(&format!("{LOOKUP_PATH}?key={ticket}"), &[]).await.expect("response arrives");
    for reply in [&by_header, &by_query] {
        let body = reply.json().expect("valid JSON");
        assert!(reply.status == 200 && body.get("country").is_some() && body.get("http").is_none(), "{body}");
        // How many requests are left until the key is paused is not for visitors.
        assert!(!reply.header("ratelimit").expect("header is set").contains("burst"), "{:?}", reply.headers);
        assert!(reply.header("ratelimit-policy").expect("header is set").contains("\"burst\";q=300;w=60"));
    }
    for (options, parameter, has_country) in
        [(json!({ "scope": "ip" }), "?scope=geo", false), (json!({ "scope": "full" }), "?scope=full", true)]
    {
        let bearer = format!("Bearer {}", create_ticket(node, &key, &options).await);
        let path = format!("{LOOKUP_PATH}{parameter}");
        let reply = node.client().get(&path, &[("authorization", &bearer)]).await.expect("response arrives");
        let body = reply.json().expect("valid JSON");
        assert!(body.get("country").is_some() == has_country && body.get("http").is_none(), "{options} {body}");
    }
    // Lookups are charged, tickets are not.
    let status = async |bearer: String| {
        let reply = node.client().get(STATUS_PATH, &[("authorization", &bearer)]).await.expect("response arrives");
        reply.json().expect("valid JSON")
    };
    assert_eq!(status(key.bearer()).await["usage"], json!({ "day": 4, "burst": 4 }));
    let of_ticket = status(format!("Bearer {}", create_ticket(node, &key, &json!({ "scope": "ip" })).await)).await;
    assert_eq!(of_ticket, json!({ "status": "success", "scope": "ip", "state": "active" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_server_with_a_usable_key_creates_tickets() {
    let deployment = shared_deployment().await;
    let (server, key) = (TicketNode::start(deployment).await, fresh_key(deployment, Scope::Geo).await);
    let (node, bearer) = (&server.node, key.bearer());
    let post = async |path: &str, headers: &[(&str, &str)], body: &'static str| {
        node.client().post(path, headers, body).await.expect("response arrives")
    };
    for header in [("origin", SHOP), ("origin", "null"), ("sec-fetch-site", "none"), ("sec-fetch-dest", "empty")] {
        let reply = post(TICKETS_PATH, &[("authorization", &bearer), header], "").await;
        ExpectedError::TICKET_CREATION.assert_matches(&reply);
    }
    // As the `fetch` of Node.js sends it.
    assert_eq!(post(TICKETS_PATH, &[("authorization", &bearer), ("sec-fetch-mode", "cors")], "").await.status, 200);
    let in_url = post(&format!("{TICKETS_PATH}?key={}", key.key), &[], "").await;
    ExpectedError::MISSING_KEY.assert_matches(&in_url);
    ExpectedError::MISSING_KEY.assert_matches(&post(TICKETS_PATH, &[("authorization", &key.key)], "").await);
    let ticket = format!("Bearer {}", create_ticket(node, &key, &json!({})).await);
    let unknown = format!("Bearer {}", PlaintextKey::generate(|| fastrand::u8(..)).expose());
    ExpectedError::INVALID_KEY.assert_matches(&post(TICKETS_PATH, &[("authorization", &unknown)], "").await);
    ExpectedError::TICKET_CREATION.assert_matches(&post(TICKETS_PATH, &[("authorization", &ticket)], "").await);
    for body in [r#"{"lifetime_s": 901}"#, r#"{"uses": 0}"#, r#"{"origin": "https://*.shop.example"}"#, "{", "[1]"] {
        let reply = post(TICKETS_PATH, &[("authorization", &bearer)], body).await;
        ExpectedError::BAD_REQUEST.assert_matches(&reply);
    }
    let large = format!("{{\"origin\": \"{}\"}}", "x".repeat(5_000));
    let reply = node.client().post(TICKETS_PATH, &[("authorization", &bearer)], large).await;
    ExpectedError::BAD_REQUEST.assert_matches(&reply.expect("response arrives"));
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let reply = node.client().send(method, TICKETS_PATH, &[("authorization", &bearer)]).await.expect("reply");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST,OPTIONS")));
    }
    for (options, expected) in [
        (&["--origin", SHOP][..], ExpectedError::TICKET_CREATION),
        (&["--network", "192.0.2.0/24", "--tickets-only"], ExpectedError::NETWORK_NOT_ALLOWED),
        (&["--expires", "2020-01-01T00:00:00Z"], ExpectedError::EXPIRED_KEY),
    ] {
        restrict(deployment, &key, options).await;
        expected.assert_matches(&request_ticket(node, &key, &json!({})).await);
    }
    restrict(deployment, &key, &["--network", "127.0.0.0/8"]).await;
    let ticket = create_ticket(node, &key, &json!({})).await;
    let visitor = use_ticket(node, &ticket, &[("x-forwarded-for", "203.0.113.9")]).await;
    assert_eq!(visitor.status, 200, "networks are for the server: {}", visitor.text());
    run_cli(deployment, &["key", "deactivate", &key.id]).await;
    ExpectedError::INACTIVE_KEY.assert_matches(&request_ticket(node, &key, &json!({})).await);
    // A node without a key file has no tickets.
    let plain = &deployment.nodes[0];
    ExpectedError::NOT_FOUND.assert_matches(&request_ticket(plain, &key, &json!({})).await);
    ExpectedError::INVALID_TICKET.assert_matches(&use_ticket(plain, &ticket, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn ticket_is_for_pages_of_its_origin_and_for_its_key_as_it_is_now() {
    let deployment = shared_deployment().await;
    let (server, key) = (TicketNode::start(deployment).await, fresh_key(deployment, Scope::Ip).await);
    let node = &server.node;
    let ticket = create_ticket(node, &key, &json!({ "origin": SHOP, "uses": 100 })).await;
    assert_eq!(use_ticket(node, &ticket, &[("origin", SHOP)]).await.status, 200);
    for foreign in [&[][..], &[("origin", "https://shop.example.")], &[("origin", SHOP), ("origin", SHOP)]] {
        ExpectedError::ORIGIN_NOT_ALLOWED.assert_matches(&use_ticket(node, &ticket, foreign).await);
    }
    restrict(deployment, &key, &["--tickets-only", "--caller-limit", "2"]).await;
    let with_key = node.client().get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("reply");
    ExpectedError::TICKET_REQUIRED.assert_matches(&with_key);
    let statuses = [(); 3].map(async |()| use_ticket(node, &ticket, &[("origin", SHOP)]).await);
    let statuses: Vec<_> = join_all(statuses).await.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    // An invalidation ends all tickets that exist, and no others.
    restrict(deployment, &key, &["--tickets-only"]).await;
    assert_eq!(use_ticket(node, &ticket, &[("origin", SHOP)]).await.status, 200);
    run_cli(deployment, &["key", "invalidate-tickets", &key.id]).await;
    ExpectedError::INVALID_TICKET.assert_matches(&use_ticket(node, &ticket, &[("origin", SHOP)]).await);
    let later = create_ticket(node, &key, &json!({})).await;
    assert_eq!(use_ticket(node, &later, &[]).await.status, 200);
    run_cli(deployment, &["key", "rotate", &key.id, "--overlap-s", "0"]).await;
    ExpectedError::INVALID_TICKET.assert_matches(&use_ticket(node, &later, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn ticket_that_is_used_thousands_of_times_does_not_pause_the_key() {
    let deployment = shared_deployment().await;
    let (server, key) = (TicketNode::start(deployment).await, fresh_key(deployment, Scope::Ip).await);
    let node = &server.node;
    let requests = env_number("IPSEITY_RESTRICTION_FLOOD", 1_000) / 10;
    let ticket = create_ticket(node, &key, &json!({})).await;
    let strangers = (0..10).map(async |_| {
        let (mut client, mut admitted) = (node.client(), 0);
        for _ in 0..requests {
            let reply = use_ticket_on(&mut client, &ticket, &[]).await;
            assert!([200, 401].contains(&reply.status), "{}", reply.text());
            admitted += u32::from(reply.status == 200);
        }
        admitted
    });
    assert_eq!(join_all(strangers).await.into_iter().sum::<u32>(), 5);
    let other = create_ticket(node, &key, &json!({ "uses": 1 })).await;
    assert_eq!(use_ticket(node, &other, &[]).await.status, 200);
    ExpectedError::INVALID_TICKET.assert_matches(&use_ticket(node, &other, &[]).await);
}

/// Such requests count toward the burst limit, so they must be uses.
#[tokio::test(flavor = "multi_thread")]
async fn ticket_and_caller_cannot_pause_a_key_whose_quota_is_used_up() {
    let deployment = shared_deployment().await;
    let server = TicketNode::start(deployment).await;
    let node = &server.node;
    let key = fresh_key(deployment, Scope::Ip).await;
    restrict(deployment, &key, &["--daily-limit", "5", "--caller-limit", "30"]).await;
    let used_up = create_ticket(node, &key, &json!({})).await;
    for _ in 0..5 {
        assert_eq!(use_ticket(node, &used_up, &[("x-forwarded-for", "203.0.113.9")]).await.status, 200);
    }
    let ticket = create_ticket(node, &key, &json!({})).await;
    let mut client = node.client();
    for _ in 0..320 {
        let reply = use_ticket_on(&mut client, &ticket, &[("x-forwarded-for", "203.0.113.10")]).await;
        assert!([401, 429].contains(&reply.status), "{}", reply.text());
    }
    for _ in 0..320 {
        let headers = [("authorization", &*key.bearer()), ("x-forwarded-for", "203.0.113.11")];
        assert_eq!(client.get(LOOKUP_PATH, &headers).await.expect("response arrives").status, 429);
    }
    let status = client.get(STATUS_PATH, &[("authorization", &key.bearer())]).await.expect("response arrives");
    let status = status.json().expect("valid JSON");
    assert_eq!((&status["state"], &status["usage"]["burst"]), (&json!("active"), &json!(5 + 5 + 30)), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_creates_a_ticket_that_works_like_it() {
    let deployment = shared_deployment().await;
    let server = TicketNode::start(deployment).await;
    let mut client = server.node.client();
    let bearer = format!("Bearer {}", test_key(Scope::Geo));
    let options = json!({ "scope": "ip", "uses": 7 }).to_string();
    let reply = client.post(TICKETS_PATH, &[("authorization", &bearer)], options).await.expect("response arrives");
    let body = reply.json().expect("valid JSON");
    assert_eq!((reply.status, reply.header("ipseity-test")), (200, Some("true")), "{body}");
    assert_eq!((&body["scope"], &body["uses"]), (&json!("ip"), &json!(7)));
    let ticket = body["ticket"].as_str().expect("text");
    let reply = use_ticket_on(&mut client, ticket, &[]).await;
    assert!(reply.status == 200 && !reply.text().contains("country"), "{}", reply.text());
    let failed = client.get(&format!("{LOOKUP_PATH}?key={ticket}&fail=ticket"), &[]).await.expect("response arrives");
    ExpectedError::INVALID_TICKET.assert_matches(&failed);
    let headers = [("authorization", &*bearer), ("origin", SHOP)];
    let from_page = client.post(TICKETS_PATH, &headers, "").await.expect("response arrives");
    ExpectedError::TICKET_CREATION.assert_matches(&from_page);
}

/// A body that does not arrive is an error of the client, and needs a valid key.
#[tokio::test(flavor = "multi_thread")]
async fn body_that_does_not_arrive_is_an_error_of_the_client() {
    let deployment = shared_deployment().await;
    let (server, key) = (TicketNode::start(deployment).await, fresh_key(deployment, Scope::Ip).await);
    let mut stream = TcpStream::connect(server.node.http()).await.expect("connection opens");
    let head = format!(
        "POST {TICKETS_PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Length: 20\r\n\r\n{{",
        key.bearer()
    );
    stream.write_all(head.as_bytes()).await.expect("request is sent");
    let mut response = vec![0; 4096];
    let length = stream.read(&mut response).await.expect("response arrives");
    let response = String::from_utf8_lossy(&response[..length]);
    assert!(response.starts_with("HTTP/1.1 400") && response.contains("Invalid body"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ticket_expires_by_the_clock_of_redis() {
    let fixture = frozen_clock().await;
    let (server, key) = (TicketNode::start(&fixture.deployment).await, fresh_key(&fixture.deployment, Scope::Ip).await);
    let node = &server.node;
    fixture.set_after_midnight_ms(0);
    let lookup = async || use_ticket(node, "ipt_x", &[]).await.status;
    assert_eq!(lookup().await, 401);
    // The node reads the clock with each charge.
    let charge = async || {
        let reply = node.client().get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    charge().await;
    let ticket = create_ticket(node, &key, &json!({ "lifetime_s": 30, "uses": 100 })).await;
    for (at_ms, status) in [(0, 200), (30_000, 200), (31_900, 200), (34_000, 401), (900_000, 401), (7_200_000, 401)] {
        fixture.set_after_midnight_ms(at_ms);
        charge().await;
        assert_eq!(use_ticket(node, &ticket, &[]).await.status, status, "after {at_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_per_key_are_limited() {
    let deployment = shared_deployment().await;
    let dir = TestDir::create().expect("directory");
    let mut env = ticket_env(dir.path(), "http://localhost");
    env.insert("IPSEITY__PUBLIC__TICKETS_PER_KEY_PER_MIN_MAX".to_owned(), "3".to_owned());
    let node = deployment.start_node(&env).await.expect("node starts");
    let [key, other] = [fresh_key(deployment, Scope::Ip).await, fresh_key(deployment, Scope::Ip).await];
    for _ in 0..3 {
        create_ticket(&node, &key, &json!({})).await;
    }
    ExpectedError::TICKET_LIMIT.assert_matches(&request_ticket(&node, &key, &json!({})).await);
    create_ticket(&node, &other, &json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_work_without_redis_and_existing_ones_without_both_stores() {
    let dir = TestDir::create().expect("directory");
    let mut env = relaxed_timeouts();
    env.extend(ticket_env(dir.path(), "http://localhost"));
    env.insert("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "300".to_owned());
    env.insert("IPSEITY__STORE__TIMEOUT_MS".to_owned(), "1000".to_owned());
    let options = DeploymentOptions { nodes: 1, env, ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("deployment starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    restrict(&deployment, &key, &["--tickets-only"]).await;
    let before = create_ticket(&deployment.nodes[0], &key, &json!({ "uses": 10 })).await;
    assert_eq!(use_ticket(&deployment.nodes[0], &before, &[]).await.status, 200);
    deployment.redis.kill9();
    let node = &deployment.nodes[0];
    let with_key = async || {
        let reply = node.client().get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("reply");
        ExpectedError::TICKET_REQUIRED.assert_matches(&reply);
    };
    let meanwhile = create_ticket(node, &key, &json!({ "uses": 10 })).await;
    for ticket in [&before, &meanwhile] {
        let reply = use_ticket(node, ticket, &[]).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    with_key().await;
    deployment.postgres.kill9();
    let node = &deployment.nodes[0];
    assert_eq!(use_ticket(node, &meanwhile, &[]).await.status, 200);
    ExpectedError::INTERNAL.assert_matches(&request_ticket(node, &key, &json!({})).await);
    let reply = node.client().get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("reply");
    ExpectedError::TICKET_REQUIRED.assert_matches(&reply);
}
