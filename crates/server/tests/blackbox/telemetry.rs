//! What operators see of a node: metrics, logs, timings and `ipseity top`.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::{ClearKey, Scope};
use http::Method;
use serde_json::Value;
use testkit::node::Env;
use testkit::{Caller, House, HouseOptions, Node, curl, eventually};

use crate::shared::{fresh_key, house, patient};

const LOOKUP: &str = "/api/v1/ip";
/// More clients, keys and paths than any label should ever tell apart.
const STRANGERS: u8 = 200;

/// Every series of a node, by its name and labels.
async fn series(node: &Node) -> BTreeSet<String> {
    let text = node.metrics().await.expect("metrics");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_clients_keys_or_paths_adds_a_series() {
    let house = House::start(HouseOptions { env: patient(), ..HouseOptions::default() }).await.expect("a house");
    let node = &house.nodes[0];
    let before = series(node).await;
    assert!(before.len() > 50, "{before:?}");
    let mut caller = node.caller();
    for number in 0..STRANGERS {
        let client = format!("198.51.100.{number}");
        let unknown = ClearKey::mint(|| fastrand::u8(..));
        let bearer = format!("Bearer {}", unknown.expose());
        for (method, path) in [
            (Method::GET, LOOKUP.to_owned()),
            (Method::GET, format!("/{}", unknown.expose())),
            (Method::from_bytes(format!("M{number}").as_bytes()).expect("a method"), LOOKUP.to_owned()),
            (Method::GET, format!("/keys/{number}")),
            (Method::GET, format!("/api/v1/ip/demo?{number}")),
        ] {
            let headers = [("x-forwarded-for", client.as_str()), ("authorization", &bearer)];
            caller.send(method, &path, &headers).await.expect("an answer");
        }
    }
    for _ in 0..10 {
        let key = fresh_key(&house, Scope::Full).await;
        assert_eq!(caller.get(LOOKUP, &[("authorization", &key.bearer())]).await.expect("an answer").status, 200);
    }
    caller.get(&format!("/{}", "x".repeat(5_000)), &[]).await.expect("an answer");
    let added: Vec<_> = series(node).await.difference(&before).cloned().collect();
    assert!(added.is_empty(), "{added:?}");
}

/// The lines of the access log.
fn accesses(node: &Node) -> Vec<Value> {
    let log = node.log().expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "access").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_leaves_one_line_without_its_client_and_its_key() {
    let house = house().await;
    let on = Env::from([("IPSEITY__LOG__ACCESS".to_owned(), "true".to_owned())]);
    let node = house.start_node(&on).await.expect("a node");
    let key = fresh_key(house, Scope::Full).await;
    let mut caller = node.caller();
    let mut asked = Vec::new();
    for (method, path, operation, status) in [
        (Method::GET, LOOKUP.to_owned(), "lookup", 200),
        (Method::HEAD, format!("{LOOKUP}?key={}", key.key), "lookup", 200),
        (Method::GET, format!("/{}", key.key), "none", 404),
        (Method::from_bytes(key.id.as_bytes()).expect("a method"), LOOKUP.to_owned(), "lookup", 405),
        (Method::GET, "/docs".to_owned(), "page", 200),
    ] {
        let headers = [("x-forwarded-for", "203.0.113.77"), ("authorization", &key.bearer())];
        let reply = caller.send(method, &path, &headers).await.expect("an answer");
        assert_eq!(reply.status, status, "{path}");
        asked.push((reply.header("x-request-id").expect("an id").to_owned(), operation, status));
    }
    eventually("the lines are there", Duration::from_secs(10), async || accesses(&node).len() >= asked.len())
        .await
        .expect("lines");
    let lines = accesses(&node);
    assert_eq!(lines.len(), asked.len(), "{lines:?}");
    for ((id, operation, status), line) in asked.into_iter().zip(&lines) {
        let fields = &line["fields"];
        assert_eq!((&fields["id"], &fields["operation"]), (&Value::from(id), &Value::from(operation)));
        assert!(fields["status"] == status && fields["took_us"].is_number(), "{line}");
        assert!(["GET", "HEAD", "other"].contains(&fields["method"].as_str().expect("a method")), "{line}");
    }
    let log = node.log().expect("a log");
    for secret in ["203.0.113.77", &key.key, &key.id] {
        assert!(!log.contains(secret), "{secret} in the log");
    }
    assert!(accesses(&house.nodes[0]).is_empty(), "nobody asked for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_interface_say_how_long_they_took_and_pages_do_not() {
    let mut caller = house().await.nodes[0].caller();
    for path in [LOOKUP, "/api/v1/ip/demo", "/api/v1/meta", "/api/v1/openapi.json"] {
        let reply = caller.get(path, &[]).await.expect("an answer");
        let timing = reply.header("server-timing").expect("a timing");
        let took_ms: f64 = timing.strip_prefix("total;dur=").expect("a total").parse().expect("milliseconds");
        assert!(took_ms > 0.0 && took_ms < 20_000.0, "{path}: {timing}");
    }
    for path in ["/", "/signin", "/nowhere"] {
        assert_eq!(caller.get(path, &[]).await.expect("an answer").header("server-timing"), None, "{path}");
    }
}

async fn log_of(node: &Node) -> Value {
    Caller::new(node.ops()).get("/log", &[]).await.expect("an answer").json().expect("JSON")
}

async fn change(node: &Node, wishes: &[&str]) -> String {
    let address = format!("http://{}/log", node.ops());
    let data: Vec<_> = wishes.iter().flat_map(|wish| ["--data", wish]).collect();
    let arguments =
        [&["--silent", "--write-out", " %{http_code}", "--request", "PUT"], &data[..], &[&address]].concat();
    curl(&arguments).await.expect("an answer").text()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_logged_can_be_changed_for_a_while_and_no_longer() {
    let house = house().await;
    let node = house.start_node(&Env::new()).await.expect("a node");
    let usual = serde_json::json!({ "level": "info", "access": false, "for_s": null });
    assert_eq!(log_of(&node).await, usual);
    let changed = change(&node, &["level=debug", "access=true", "for_s=2"]).await;
    assert!(changed.ends_with(" 200") && changed.contains("\"debug\""), "{changed}");
    node.caller().get("/api/v1/meta", &[]).await.expect("an answer");
    eventually("the request is logged", Duration::from_secs(10), async || accesses(&node).len() == 1)
        .await
        .expect("a line");
    eventually("it goes back by itself", Duration::from_secs(20), async || log_of(&node).await == usual)
        .await
        .expect("the usual");
    node.caller().get("/api/v1/meta", &[]).await.expect("an answer");
    for (wish, says) in [
        ("level=loud", "use error, warn, info, debug or trace"),
        ("for_s=86400", "[log] change_s_max"),
        ("verbosity=9", "unknown field"),
    ] {
        let refused = change(&node, &[wish]).await;
        assert!(refused.contains(says) && !refused.ends_with(" 200"), "{wish}: {refused}");
    }
    assert_eq!((log_of(&node).await, accesses(&node).len()), (usual, 1));
    let reply = node.caller().send(Method::PUT, "/log", &[]).await.expect("an answer");
    assert_eq!(reply.status, 404, "not for the world");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_a_node_once_as_text() {
    let house = house().await;
    let node = house.nodes[0].ops().to_string();
    let key = fresh_key(house, Scope::Ip).await;
    let asking = async {
        let mut caller = house.nodes[0].caller();
        for _ in 0..50 {
            caller.get(LOOKUP, &[("authorization", &key.bearer())]).await.expect("an answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let arguments = ["top", "--once", "--interval-s", "1", "--node", &node];
    let (shown, ()) = tokio::join!(house.cli(&arguments), asking);
    let shown = shown.expect("a command").success().expect("a view").text();
    for words in ["success", "by the counter store", "GeoLite2-City", "localhost for", "files of", "0.0/s failed"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(shown.lines().next().expect("a head").contains(&node) && !shown.contains('\x1b'), "{shown}");
    let nobody = house.cli(&["top", "--once", "--node", "127.0.0.1:1"]).await.expect("a command");
    assert!(nobody.code == Some(1) && nobody.stderr.contains("no node answers"), "{}", nobody.stderr);
}
