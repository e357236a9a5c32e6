//! Every route over every protocol, with every method, and with keys in every state by every way of giving one.

use domain::Scope;
use http::Method;
use testkit::quic::QuicOptions;
use testkit::stream::Protocol;
use testkit::{Caller, Node, QuicCaller, Reply, StreamCaller};

use super::stage::{PROXIED, Stage};
use crate::portal::table::ROWS;
use crate::shared::fresh_key;

pub(crate) const LOOKUP: &str = "/api/v1/ip";
const OWN: [&str; 8] = [
    LOOKUP,
    "/api/v1/ip/demo",
    "/api/v1/meta",
    "/api/v1/openapi.json",
    "/",
    "/nowhere",
    "/api/v1/ip/",
    "/assets/x/y.css",
];
/// More than the address of a request may have.
const URI_BYTES: usize = 5_000;
const BURST: usize = 300;
/// More than a node remembers a refusal for.
const REFUSALS: usize = 150;

/// How a key is given, or tried to.
const WAYS: usize = 7;

/// A path and header lines with a key in them.
fn with_key(path: &str, lines: &mut Vec<(String, String)>, key: &str, way: usize) -> String {
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    match way % WAYS {
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

/// A caller of one protocol.
enum Wire {
    Clear(Caller),
    Stream(StreamCaller),
    Quic(QuicCaller),
}

impl Wire {
    /// One of each protocol that a node speaks.
    async fn all(stage: &Stage, node: &Node) -> Vec<Self> {
        let authority = &stage.house().certificate.authority;
        let stream = |server, protocol, authority| {
            Self::Stream(StreamCaller::new(server, protocol, authority).expect("a caller"))
        };
        let options = QuicOptions { server: node.https(), name: "localhost", authority, suite: None, source: None };
        vec![
            Self::Clear(node.caller()),
            stream(node.http(), Protocol::Http2, None),
            stream(node.https(), Protocol::Http11, Some(authority.as_path())),
            stream(node.https(), Protocol::Http2, Some(authority.as_path())),
            Self::Quic(QuicCaller::open(options).await.expect("a connection")),
        ]
    }

    async fn get(&mut self, path: &str, lines: &[(&str, &str)]) -> Reply {
        let reply = match self {
            Self::Clear(caller) => caller.get(path, lines).await,
            Self::Stream(caller) => caller.get(path, lines).await,
            Self::Quic(caller) => caller.get(path, lines).await,
        };
        reply.expect("an answer")
    }
}

pub(crate) fn borrowed(lines: &[(String, String)]) -> Vec<(&str, &str)> {
    lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(crate) async fn ask_everything(stage: &Stage, round: u32) {
    for node in stage.house().nodes.iter().take(PROXIED) {
        for mut wire in Wire::all(stage, node).await {
            lookups(stage, &mut wire).await;
            pages(stage, &mut wire).await;
        }
    }
    methods(stage).await;
    spend_a_day(stage, round).await;
    pause(stage).await;
}

/// Every key in every state by every way.
async fn lookups(stage: &Stage, wire: &mut Wire) {
    for key in &stage.keys {
        for way in 0..WAYS {
            let mut lines = stage.canaries.lines();
            let path = with_key(LOOKUP, &mut lines, key, way);
            stage.note(wire.get(&path, &borrowed(&lines)).await.status);
        }
    }
}

/// Every page, as a stranger who mistakes keys and addresses for ids, links and questions.
async fn pages(stage: &Stage, wire: &mut Wire) {
    let paths = OWN.into_iter().chain(ROWS.iter().filter(|row| !row.is_form()).map(|row| row.path));
    for (at, path) in paths.enumerate() {
        let (mut lines, key) = (stage.canaries.lines(), &stage.keys[at % stage.keys.len()]);
        let path = path.replace("{id}", key).replace("{token}", key);
        let path = match at % 2 {
            0 => with_key(&path, &mut lines, key, at),
            _ => format!("{path}?key={key}&ip={}", stage.canaries.address()),
        };
        stage.note(wire.get(&path, &borrowed(&lines)).await.status);
    }
    let too_long = format!("{LOOKUP}?key={}&{}", stage.keys[0], "x".repeat(URI_BYTES));
    stage.note(wire.get(&too_long, &borrowed(&stage.canaries.lines())).await.status);
}

/// Every method on every path.
async fn methods(stage: &Stage) {
    let mut caller = stage.house().nodes[0].caller();
    let paths = OWN.into_iter().chain(ROWS.iter().map(|row| row.path));
    for (at, path) in paths.enumerate() {
        for method in [Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let (mut lines, key) = (stage.canaries.lines(), &stage.keys[at % stage.keys.len()]);
            let path = with_key(&path.replace("{id}", key).replace("{token}", key), &mut lines, key, at);
            stage.note(caller.send(method, &path, &borrowed(&lines)).await.expect("an answer").status);
        }
    }
}

/// Uses a small day up.
async fn spend_a_day(stage: &Stage, round: u32) {
    let (house, email) = (stage.house(), format!("tiny-{round}@example.com"));
    if round == 1 {
        house.cli(&["plan", "add", "tiny", "--daily-limit", "2"]).await.expect("a command").success().expect("a plan");
    }
    let create = ["account", "create", "--email", &email, "--plan", "tiny"];
    house.cli(&create).await.expect("a command").success().expect("an account");
    let key = stage.canaries.key(&house.issue(&email, Scope::Full).await.expect("a key").key);
    let mut caller = house.nodes[0].caller();
    for expected in [200, 200, 429, 429] {
        let mut lines = stage.canaries.lines();
        let path = with_key(LOOKUP, &mut lines, &key, 6);
        let reply = caller.get(&path, &borrowed(&lines)).await.expect("an answer");
        assert_eq!(reply.status, expected, "{}", reply.text());
    }
}

/// Pauses a key by its 301st request, and goes on until nodes remember the refusal.
async fn pause(stage: &Stage) {
    let key = stage.canaries.key(&fresh_key(stage.house(), Scope::Full).await.key);
    let mut caller = stage.house().nodes[0].caller();
    for _ in 0..BURST + REFUSALS {
        let mut lines = stage.canaries.lines();
        let path = with_key(LOOKUP, &mut lines, &key, 0);
        stage.note(caller.get(&path, &borrowed(&lines)).await.expect("an answer").status);
    }
}
