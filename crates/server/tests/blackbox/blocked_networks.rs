//! `[edge] blocked_networks_file`: clients in the listed networks get 403 everywhere, and the list can be replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, TestDir, TestResponse, eventually};
use rustix::process::Signal;

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, shared_deployment};

const LIST: &str = "# blocked\n198.51.100.0/24\n203.0.113.7 # one address\n2001:db8:bad::/48\n";
const BLOCKED: [&str; 4] = ["198.51.100.250", "203.0.113.7", "::ffff:203.0.113.7", "2001:db8:bad:1::9"];
const ALLOWED: [&str; 3] = ["198.51.101.1", "203.0.113.8", "2001:db8:bae::9"];
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A node with a list, and all logs.
async fn start_node(dir: &TestDir, list: &str, settings: &[(&str, &str)]) -> (Node, PathBuf) {
    let file = dir.path().join("blocked.txt");
    fs::write(&file, list).expect("write the file");
    let path = file.display().to_string();
    let settings = [("EDGE__BLOCKED_NETWORKS_FILE", &*path), ("LOG__LEVEL", "trace"), ("LOG__ACCESS", "true")]
        .into_iter()
        .chain(settings.iter().copied());
    let env: Env = settings.map(|(name, value)| (format!("IPSEITY__{name}"), value.to_owned())).collect();
    (shared_deployment().await.start_node(&env).await.expect("node starts"), file)
}

/// A request through a trusted proxy.
async fn get_from(node: &Node, client: &str, path: &str, authorization: &str) -> TestResponse {
    let headers = [("x-forwarded-for", client), ("authorization", authorization)];
    node.client().get(path, &headers).await.expect("response arrives")
}

async fn metric(node: &Node, name: &str) -> u64 {
    let metrics = node.metrics().await.expect("read the metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect("metric exists");
    value.parse().expect("valid count")
}

fn assert_no_address_in_log(node: &Node) {
    let log = node.log().expect("read the log");
    for address in ["198.51.100", "203.0.113", "2001:db8:bad"] {
        assert!(!log.contains(address), "{address} is in the log");
    }
}

fn replace_file(file: &Path, list: &str) {
    let temp_file = file.with_extension("next");
    fs::write(&temp_file, list).expect("write the file");
    fs::rename(temp_file, file).expect("replace the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_client_gets_403_everywhere_and_is_not_charged() {
    let dir = TestDir::create().expect("create a directory");
    let (node, _) = start_node(&dir, LIST, &[]).await;
    let key = fresh_key(shared_deployment().await, Scope::Full).await;
    let paths = [
        "/api/v1/ip",
        "/api/v1/ip/demo",
        "/api/v1/key",
        "/api/v1/tickets",
        "/api/v1/meta",
        "/api/v1/openapi.json",
        "/",
        "/docs",
        "/signin",
        "/nowhere",
    ];
    for path in paths {
        for client in BLOCKED {
            ExpectedError::NETWORK_BLOCKED.assert_matches(&get_from(&node, client, path, &key.bearer()).await);
        }
    }
    let blocked = (paths.len() * BLOCKED.len()) as u64;
    assert_eq!(metric(&node, "ipseity_blocked_requests_total").await, blocked);
    assert_eq!(metric(&node, "ipseity_blocked_networks").await, 3);
    ExpectedError::NETWORK_BLOCKED.assert_matches(&get_from(&node, BLOCKED[0], "/api/v1/ip", "Bearer no-key").await);
    let preflight = [("x-forwarded-for", BLOCKED[0]), ("access-control-request-method", "GET")];
    let preflight = node.client().send(Method::OPTIONS, "/api/v1/ip", &preflight).await.expect("response arrives");
    assert_eq!(preflight.status, 204, "a page can read the error of its request");
    for (client, remaining) in ALLOWED.into_iter().zip([9_999, 9_998, 9_997]) {
        let reply = get_from(&node, client, "/api/v1/ip", &key.bearer()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(&*remaining.to_string()), "nothing else was charged");
    }
    assert_no_address_in_log(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_proxy_can_name_a_client_that_is_not_blocked() {
    let dir = TestDir::create().expect("create a directory");
    let (node, _) = start_node(&dir, "127.0.0.0/8\n::1\n", &[("EDGE__TRUSTED_PROXIES", "")]).await;
    for client in ALLOWED {
        ExpectedError::NETWORK_BLOCKED.assert_matches(&get_from(&node, client, "/api/v1/meta", "").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_list_is_loaded_and_an_invalid_one_keeps_the_old() {
    let dir = TestDir::create().expect("create a directory");
    let (mut node, file) = start_node(&dir, LIST, &[("EDGE__BLOCKED_NETWORKS_LINES_MAX", "5")]).await;
    let status = async |node: &Node, client: &str| get_from(node, client, "/api/v1/meta", "").await.status;
    assert_eq!([status(&node, BLOCKED[0]).await, status(&node, ALLOWED[0]).await], [403, 200]);
    replace_file(&file, "198.51.101.0/24\n");
    eventually("the list is loaded", RELOAD_TIMEOUT, async || status(&node, ALLOWED[0]).await == 403)
        .await
        .expect("the list is loaded");
    assert_eq!(status(&node, BLOCKED[0]).await, 200);

    let line = "line 2 of ";
    for (list, reason) in [
        ("192.0.2.0/24\n198.51.100.7/24\n", line),
        ("192.0.2.0/24\nnonsense\n", line),
        ("1.1.1.1\n1.1.1.2\n1.1.1.3\n1.1.1.4\n1.1.1.5\n1.1.1.6\n", "more lines than the 5 of [edge]"),
    ] {
        let rejected = "ipseity_blocked_networks_reloads_total{outcome=\"rejected\"}";
        let before = metric(&node, rejected).await;
        replace_file(&file, list);
        eventually("the list is rejected", RELOAD_TIMEOUT, async || metric(&node, rejected).await == before + 1)
            .await
            .expect("the list is rejected");
        let log = node.log().expect("read the log");
        assert!(log.contains(reason) && log.contains("blocked.txt"), "{reason}");
        assert_eq!([status(&node, ALLOWED[0]).await, status(&node, "192.0.2.1").await], [403, 200]);
    }
    // To read a pipe would wait for its writer, and with it every later reload and the end of the node.
    fs::remove_file(&file).expect("remove the file");
    assert!(Command::new("mkfifo").arg(&file).status().expect("run mkfifo").success());
    let is_rejected = async || node.log().expect("read the log").contains("is not a regular file");
    eventually("the pipe is rejected", RELOAD_TIMEOUT, is_rejected).await.expect("the pipe is rejected");
    assert_eq!(status(&node, ALLOWED[0]).await, 403);
    fs::remove_file(&file).expect("remove the pipe");
    replace_file(&file, "");
    node.send_signal(Signal::HUP.as_raw());
    eventually("the list is empty", RELOAD_TIMEOUT, async || status(&node, ALLOWED[0]).await == 200)
        .await
        .expect("the list is empty");
    assert_eq!(metric(&node, "ipseity_blocked_networks").await, 0);
    assert_no_address_in_log(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_does_not_start_with_an_invalid_list() {
    let (deployment, dir) = (shared_deployment().await, TestDir::create().expect("create a directory"));
    let file = dir.path().join("blocked.txt").display().to_string();
    for (list, reason) in [(None, "failed to read "), (Some("192.0.2.1\n\n1.2.3\n"), "line 3 of ")] {
        if let Some(list) = list {
            fs::write(&file, list).expect("write the file");
        }
        for command in ["check", "serve"] {
            let settings = [("IPSEITY__EDGE__BLOCKED_NETWORKS_FILE", &*file)];
            let output = deployment.cli_with_env(&settings, &[command]).await.expect("run the command");
            assert_eq!(output.code, Some(1), "{}", output.stderr);
            assert!(output.stderr.contains(reason) && output.stderr.contains(&file), "{}", output.stderr);
            assert!(!output.stderr.contains("1.2.3") && !output.stderr.contains("192.0.2"), "{}", output.stderr);
        }
    }
}
