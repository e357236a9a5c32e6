//! Metrics, logs, timings and `ipseity top`.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Node, TestClient, curl, eventually};
use serde_json::Value;

use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};

const LOOKUP_PATH: &str = "/api/v1/ip";
/// More clients, keys and paths than any label distinguishes.
const CLIENTS: u8 = 200;

/// Names and labels of all series of a node.
async fn metric_series(node: &Node) -> BTreeSet<String> {
    let text = node.metrics().await.expect("read metrics");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("value").0.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metric_series_do_not_grow_with_clients_keys_or_paths() {
    let deployment = Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
        .await
        .expect("start deployment");
    let node = &deployment.nodes[0];
    let before = metric_series(node).await;
    assert!(before.len() > 50, "{before:?}");
    let mut caller = node.client();
    for number in 0..CLIENTS {
        let client = format!("198.51.100.{number}");
        let unknown = PlaintextKey::generate(|| fastrand::u8(..));
        let bearer = format!("Bearer {}", unknown.expose());
        for (method, path) in [
            (Method::GET, LOOKUP_PATH.to_owned()),
            (Method::GET, format!("/{}", unknown.expose())),
            (Method::from_bytes(format!("M{number}").as_bytes()).expect("valid method"), LOOKUP_PATH.to_owned()),
            (Method::GET, format!("/keys/{number}")),
            (Method::GET, format!("/api/v1/ip/demo?{number}")),
        ] {
            let headers = [("x-forwarded-for", client.as_str()), ("authorization", &bearer)];
            caller.send(method, &path, &headers).await.expect("response");
        }
    }
    for _ in 0..10 {
        let key = fresh_key(&deployment, Scope::Full).await;
        assert_eq!(caller.get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("response").status, 200);
    }
    caller.get(&format!("/{}", "x".repeat(5_000)), &[]).await.expect("response");
    let added: Vec<_> = metric_series(node).await.difference(&before).cloned().collect();
    assert!(added.is_empty(), "{added:?}");
}

fn access_log_lines(node: &Node) -> Vec<Value> {
    let log = node.log().expect("read log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "access").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn access_log_has_one_line_per_request_without_client_data() {
    let deployment = shared_deployment().await;
    let on = Env::from([("IPSEITY__LOG__ACCESS".to_owned(), "true".to_owned())]);
    let node = deployment.start_node(&on).await.expect("start node");
    let key = fresh_key(deployment, Scope::Full).await;
    let mut caller = node.client();
    let mut expected = Vec::new();
    for (method, path, operation, status) in [
        (Method::GET, LOOKUP_PATH.to_owned(), "lookup", 200),
        (Method::HEAD, format!("{LOOKUP_PATH}?key={}", key.key), "lookup", 200),
        (Method::GET, format!("/{}", key.key), "unmatched", 404),
        (Method::from_bytes(key.id.as_bytes()).expect("valid method"), LOOKUP_PATH.to_owned(), "lookup", 405),
        (Method::GET, "/docs".to_owned(), "page", 200),
    ] {
        let headers = [("x-forwarded-for", "203.0.113.77"), ("authorization", &key.bearer())];
        let reply = caller.send(method, &path, &headers).await.expect("response");
        assert_eq!(reply.status, status, "{path}");
        expected.push((reply.header("x-request-id").expect("header").to_owned(), operation, status));
    }
    eventually("the requests are logged", Duration::from_secs(10), async || {
        access_log_lines(&node).len() >= expected.len()
    })
    .await
    .expect("happens in time");
    let lines = access_log_lines(&node);
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for ((id, operation, status), line) in expected.into_iter().zip(&lines) {
        assert_eq!((&line["request_id"], &line["operation"]), (&Value::from(id), &Value::from(operation)));
        assert!(line["status"] == status && line["duration_us"].is_number(), "{line}");
        assert!(["GET", "HEAD", "other"].contains(&line["method"].as_str().expect("string")), "{line}");
    }
    let log = node.log().expect("read log");
    for secret in ["203.0.113.77", &key.key, &key.id] {
        assert!(!log.contains(secret), "{secret} in the log");
    }
    assert!(access_log_lines(&deployment.nodes[0]).is_empty(), "the access log is off by default");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_responses_have_server_timing_and_pages_do_not() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for path in [LOOKUP_PATH, "/api/v1/ip/demo", "/api/v1/meta", "/api/v1/openapi.json"] {
        let reply = caller.get(path, &[]).await.expect("response");
        let timing = reply.header("server-timing").expect("header");
        let took_ms: f64 = timing.strip_prefix("total;dur=").expect("prefix").parse().expect("milliseconds");
        assert!(took_ms > 0.0 && took_ms < 20_000.0, "{path}: {timing}");
    }
    for path in ["/", "/signin", "/nowhere"] {
        assert_eq!(caller.get(path, &[]).await.expect("response").header("server-timing"), None, "{path}");
    }
}

async fn log_settings(node: &Node) -> Value {
    TestClient::new(node.ops()).get("/log", &[]).await.expect("response").json().expect("valid JSON")
}

async fn put_log_settings(node: &Node, form_fields: &[&str]) -> String {
    let address = format!("http://{}/log", node.ops());
    let data: Vec<_> = form_fields.iter().flat_map(|field| ["--data", field]).collect();
    let arguments =
        [&["--silent", "--write-out", " %{http_code}", "--request", "PUT"], &data[..], &[&address]].concat();
    curl(&arguments).await.expect("run curl").text()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_settings_override_expires() {
    let deployment = shared_deployment().await;
    let node = deployment.start_node(&Env::new()).await.expect("start node");
    let defaults = serde_json::json!({ "level": "info", "access": false, "remaining_s": null });
    assert_eq!(log_settings(&node).await, defaults);
    let changed = put_log_settings(&node, &["level=debug", "access=true", "duration_s=2"]).await;
    assert!(changed.ends_with(" 200") && changed.contains("\"debug\""), "{changed}");
    node.client().get("/api/v1/meta", &[]).await.expect("response");
    eventually("the request is logged", Duration::from_secs(10), async || access_log_lines(&node).len() == 1)
        .await
        .expect("happens in time");
    eventually("the override expires", Duration::from_secs(20), async || log_settings(&node).await == defaults)
        .await
        .expect("happens in time");
    node.client().get("/api/v1/meta", &[]).await.expect("response");
    for (field, reason) in [
        ("level=loud", "use error, warn, info, debug or trace"),
        ("duration_s=86400", "[log] override_max_s"),
        ("verbosity=9", "unknown field"),
    ] {
        let rejected = put_log_settings(&node, &[field]).await;
        assert!(rejected.contains(reason) && !rejected.ends_with(" 200"), "{field}: {rejected}");
    }
    assert_eq!((log_settings(&node).await, access_log_lines(&node).len()), (defaults, 1));
    let reply = node.client().send(Method::PUT, "/log", &[]).await.expect("response");
    assert_eq!(reply.status, 404, "/log is not public");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_once_prints_one_node_as_text() {
    let deployment = shared_deployment().await;
    let node = deployment.nodes[0].ops().to_string();
    let key = fresh_key(deployment, Scope::Ip).await;
    let traffic = async {
        let mut caller = deployment.nodes[0].client();
        for _ in 0..50 {
            caller.get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await.expect("response");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let arguments = ["top", "--once", "--interval-s", "1", "--node", &node];
    let (shown, ()) = tokio::join!(deployment.cli(&arguments), traffic);
    let shown = shown.expect("run command").ensure_success().expect("command succeeds").text();
    for words in
        ["success", "charged in Redis", "GeoLite2-City", "localhost expires in", "file descriptors", "0.0/s failed"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(shown.lines().next().expect("first line").contains(&node) && !shown.contains('\x1b'), "{shown}");
    let unreachable = deployment.cli(&["top", "--once", "--node", "127.0.0.1:1"]).await.expect("run command");
    assert!(
        unreachable.code == Some(1) && unreachable.stderr.contains("failed to reach a node"),
        "{}",
        unreachable.stderr
    );
}
