//! Every route over every protocol, with every method, and with keys in every state and every place.

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::{Http3TestClient, Node, StreamTestClient, TestClient, TestResponse};

use super::fixture::{PROXY_PROTOCOL_NODE, PrivacyFixture};
use crate::fixture::fresh_key;
use crate::portal::routes::ROUTE_CASES;
use crate::restrictions::restrict;
use crate::tickets::TICKETS_PATH;

pub(crate) const LOOKUP_PATH: &str = "/api/v1/ip";
const API_PATHS: [&str; 8] = [
    LOOKUP_PATH,
    "/api/v1/ip/demo",
    "/api/v1/meta",
    "/api/v1/openapi.json",
    "/",
    "/nowhere",
    "/api/v1/ip/",
    "/assets/x/y.css",
];
const TICKETS: usize = 20;
/// Longer than the maximum length of a URI.
const URI_BYTES: usize = 5_000;
const BURST: usize = 300;
/// More rejections than a node needs to cache one.
const REFUSALS: usize = 150;

/// Number of ways to send a key.
const KEY_PLACEMENTS: usize = 7;

/// Puts a key into a path or a header.
fn place_key(path: &str, lines: &mut Vec<(String, String)>, key: &str, placement: usize) -> String {
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    match placement % KEY_PLACEMENTS {
        0 => line("authorization", format!("Bearer {key}")),
        1 => line("authorization", format!("bEARER  {key}")),
        2 => line("authorization", format!("Basic {key}")),
        3 => line("x-api-key", key.to_owned()),
        4 => line("cookie", format!("key={key}; __Host-ipseity={key}")),
        5 => {
            line("authorization", "Bearer".to_owned());
            return format!("{path}?scope=geo&key={key}&key={key}");
        }
        _ => return format!("{path}?key={key}"),
    }
    path.to_owned()
}

/// A client of one protocol.
enum ProtocolClient {
    Http1(TestClient),
    Stream(StreamTestClient),
    Quic(Http3TestClient),
}

impl ProtocolClient {
    /// One client of each protocol that a node supports.
    async fn connect_all(fixture: &PrivacyFixture, node: &Node) -> Vec<Self> {
        let authority = &fixture.deployment().certificate.ca_file;
        let stream = |server, protocol, authority| {
            Self::Stream(StreamTestClient::new(server, protocol, authority).expect("client connects"))
        };
        let options = Http3TestOptions {
            server: node.https(),
            name: "localhost",
            ca_file: authority,
            cipher_suite: None,
            source_ip: None,
        };
        vec![
            // First, because only this one connects here, and a first request has a deadline.
            Self::Quic(Http3TestClient::connect(options).await.expect("connection opens")),
            Self::Http1(node.client()),
            stream(node.http(), StreamProtocol::Http2, None),
            stream(node.https(), StreamProtocol::Http11, Some(authority.as_path())),
            stream(node.https(), StreamProtocol::Http2, Some(authority.as_path())),
        ]
    }

    async fn get(&mut self, path: &str, lines: &[(&str, &str)]) -> TestResponse {
        let reply = match self {
            Self::Http1(caller) => caller.get(path, lines).await,
            Self::Stream(caller) => caller.get(path, lines).await,
            Self::Quic(caller) => caller.get(path, lines).await,
        };
        reply.expect("response arrives")
    }
}

pub(crate) fn as_str_pairs(lines: &[(String, String)]) -> Vec<(&str, &str)> {
    lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(crate) async fn request_everything(fixture: &PrivacyFixture, round: u32) {
    for node in fixture.deployment().nodes.iter().take(PROXY_PROTOCOL_NODE) {
        for mut client in ProtocolClient::connect_all(fixture, node).await {
            lookup_all_keys(fixture, &mut client).await;
            send_pair_tokens(fixture, &mut client).await;
            visit_pages(fixture, &mut client).await;
        }
    }
    try_methods(fixture).await;
    use_tickets(fixture).await;
    exhaust_daily_quota(fixture, round).await;
    pause_key(fixture).await;
}

/// Every key in every state and every place.
async fn lookup_all_keys(fixture: &PrivacyFixture, client: &mut ProtocolClient) {
    for key in &fixture.keys {
        for placement in 0..KEY_PLACEMENTS {
            let mut lines = fixture.canaries.client_headers();
            let path = place_key(LOOKUP_PATH, &mut lines, key, placement);
            fixture.record_status(client.get(&path, &as_str_pairs(&lines)).await.status);
        }
    }
}

/// Tokens of pairing, each with a lookup.
async fn send_pair_tokens(fixture: &PrivacyFixture, client: &mut ProtocolClient) {
    for key in &fixture.keys {
        let reply = client.get("/api/v1/pair", &as_str_pairs(&fixture.canaries.client_headers())).await;
        fixture.record_status(reply.status);
        let token =
            reply.json().expect("valid JSON")["token"].as_str().unwrap_or("no-token-for-this-client").to_owned();
        let mut lines = fixture.canaries.client_headers();
        let path = place_key(LOOKUP_PATH, &mut lines, key, 0);
        lines.push(("ipseity-pair".to_owned(), fixture.canaries.register_secret(&token)));
        fixture.record_status(client.get(&path, &as_str_pairs(&lines)).await.status);
    }
}

/// Every page without a session, with keys and addresses as IDs, links and parameters.
async fn visit_pages(fixture: &PrivacyFixture, client: &mut ProtocolClient) {
    let paths = API_PATHS.into_iter().chain(ROUTE_CASES.iter().filter(|row| !row.is_form()).map(|row| row.path));
    for (index, path) in paths.enumerate() {
        let (mut lines, key) = (fixture.canaries.client_headers(), &fixture.keys[index % fixture.keys.len()]);
        let path = path.replace("{id}", key).replace("{token}", key);
        let path = match index % 2 {
            0 => place_key(&path, &mut lines, key, index),
            _ => format!("{path}?key={key}&ip={}", fixture.canaries.next_address()),
        };
        fixture.record_status(client.get(&path, &as_str_pairs(&lines)).await.status);
    }
    let too_long = format!("{LOOKUP_PATH}?key={}&{}", fixture.keys[0], "x".repeat(URI_BYTES));
    fixture.record_status(client.get(&too_long, &as_str_pairs(&fixture.canaries.client_headers())).await.status);
}

/// Sends every method to every path.
async fn try_methods(fixture: &PrivacyFixture) {
    let mut caller = fixture.deployment().nodes[0].client();
    let paths = API_PATHS.into_iter().chain(ROUTE_CASES.iter().map(|row| row.path));
    for (index, path) in paths.enumerate() {
        for method in [Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let (mut lines, key) = (fixture.canaries.client_headers(), &fixture.keys[index % fixture.keys.len()]);
            let path = place_key(&path.replace("{id}", key).replace("{token}", key), &mut lines, key, index);
            fixture.record_status(
                caller.send(method, &path, &as_str_pairs(&lines)).await.expect("response arrives").status,
            );
        }
    }
}

/// Exhausts a small daily quota.
async fn exhaust_daily_quota(fixture: &PrivacyFixture, round: u32) {
    let (deployment, email) = (fixture.deployment(), format!("tiny-{round}@example.com"));
    if round == 1 {
        deployment
            .cli(&["plan", "add", "tiny", "--daily-limit", "2"])
            .await
            .expect("command runs")
            .ensure_success()
            .expect("create a plan");
    }
    let create = ["account", "create", "--email", &email, "--plan", "tiny"];
    deployment.cli(&create).await.expect("command runs").ensure_success().expect("create an account");
    let key = fixture.canaries.register_key(&deployment.issue_key(&email, Scope::Full).await.expect("issue a key").key);
    let mut caller = deployment.nodes[0].client();
    for expected in [200, 200, 429, 429] {
        let mut lines = fixture.canaries.client_headers();
        let path = place_key(LOOKUP_PATH, &mut lines, &key, 6);
        let reply = caller.get(&path, &as_str_pairs(&lines)).await.expect("response arrives");
        assert_eq!(reply.status, expected, "{}", reply.text());
    }
}

/// Tickets of a key with a limit per caller, each used until it is used up.
async fn use_tickets(fixture: &PrivacyFixture) {
    let (deployment, mut caller) = (fixture.deployment(), fixture.deployment().nodes[0].client());
    let key = fresh_key(deployment, Scope::Full).await;
    fixture.canaries.register_key(&key.key);
    restrict(deployment, &key, &["--tickets-only", "--caller-limit", "2"]).await;
    for _ in 0..TICKETS {
        let mut lines = fixture.canaries.client_headers();
        lines.push(("authorization".to_owned(), key.bearer()));
        let reply = caller.post(TICKETS_PATH, &as_str_pairs(&lines), "{\"uses\": 2}").await.expect("response arrives");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let ticket = reply.json().expect("valid JSON")["ticket"].as_str().expect("text").to_owned();
        let ticket = fixture.canaries.register_secret(&ticket);
        for placement in 0..KEY_PLACEMENTS {
            let mut lines = fixture.canaries.client_headers();
            let path = place_key(LOOKUP_PATH, &mut lines, &ticket, placement);
            fixture.record_status(caller.get(&path, &as_str_pairs(&lines)).await.expect("response arrives").status);
        }
    }
}

/// Pauses a key with its 301st request, and continues until nodes cache the rejection.
async fn pause_key(fixture: &PrivacyFixture) {
    let key = fixture.canaries.register_key(&fresh_key(fixture.deployment(), Scope::Full).await.key);
    let mut caller = fixture.deployment().nodes[0].client();
    for _ in 0..BURST + REFUSALS {
        let mut lines = fixture.canaries.client_headers();
        let path = place_key(LOOKUP_PATH, &mut lines, &key, 0);
        fixture.record_status(caller.get(&path, &as_str_pairs(&lines)).await.expect("response arrives").status);
    }
}
