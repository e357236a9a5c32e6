//! Alerts and dashboard of `deploy/` with a real Prometheus and a real node: every query returns data, and alerts fire only for their cause.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, ReservedPort, TestClient, TestDir, eventually};
use serde_json::Value;

use crate::fixture::{city_database_aged, fresh_key, relaxed_timeouts};

const RULES_FILE: &str = "deploy/prometheus/alerts.yml";
const RULE_TESTS_FILE: &str = "deploy/prometheus/alerts_test.yml";
const ALERT_TIMEOUT: Duration = Duration::from_secs(60);
/// Prefixes of the metric names that rules and dashboard use.
const METRIC_PREFIXES: [&str; 3] = ["ipseity_", "process_", "up{"];

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_repository_file(path: &str) -> String {
    fs::read_to_string(repository_root().join(path)).expect("read file")
}

fn alert_names() -> Vec<String> {
    let rules = read_repository_file(RULES_FILE);
    rules.lines().filter_map(|line| Some(line.trim().strip_prefix("- alert: ")?.to_owned())).collect()
}

#[test]
fn every_alert_has_rule_tests_and_a_runbook_page() {
    for arguments in [["check", "rules", RULES_FILE], ["test", "rules", RULE_TESTS_FILE]] {
        let run = Command::new("promtool").args(arguments).current_dir(repository_root()).output();
        let output = run.expect("promtool runs; it is in the Debian package prometheus");
        let output_text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{output_text}");
    }
    let (rules, tests, pages) = (
        read_repository_file(RULES_FILE),
        read_repository_file(RULE_TESTS_FILE),
        read_repository_file("docs/operations/alerts.md"),
    );
    assert!(alert_names().len() >= 15);
    for alert in alert_names() {
        for test in ["fires", "is silent"] {
            assert!(tests.contains(&format!("- name: {alert} {test}\n")), "{alert} {test}: no test");
        }
        assert!(pages.contains(&format!("\n## {alert}\n")), "{alert} has no page");
        let link = format!("runbook_url: docs/operations/alerts.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not link to its page");
    }
}

/// A Prometheus that scrapes and evaluates every second; killed when dropped.
struct Prometheus {
    process: Child,
    port: ReservedPort,
    _dir: TestDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Prometheus {
    fn start(node: SocketAddr) -> Self {
        let (folder, port) =
            (TestDir::create().expect("create directory"), ReservedPort::reserve_free().expect("free port"));
        // Removes short waits. Latency alerts keep theirs, because a busy machine may really be slow.
        let rules = read_repository_file(RULES_FILE);
        let short_waits = ["for: 1m", "for: 2m", "for: 5m"];
        let rules: Vec<_> = rules.lines().filter(|line| !short_waits.contains(&line.trim())).collect();
        fs::write(folder.path().join("alerts.yml"), rules.join("\n")).expect("write file");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n\
             scrape_configs:\n- job_name: ipseity\n  static_configs:\n  - targets: ['{node}']\n"
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).expect("write file");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={}", port.address()))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn()
            .expect("start process");
        Self { process, port, _dir: folder }
    }

    async fn api_get(&self, path: &str) -> Option<Value> {
        let reply = TestClient::new(self.port.address()).get(path, &[]).await.ok()?.json().ok()?;
        assert_eq!(reply["status"], "success", "{path}: {reply}");
        Some(reply["data"].clone())
    }

    /// The samples of a query, without NaN.
    async fn instant_query(&self, query: &str) -> Vec<Value> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(data) = self.api_get(&format!("/api/v1/query?query={query}")).await else { return Vec::new() };
        let found = data["result"].as_array().expect("array").iter();
        found.filter(|sample| sample["value"][1] != "NaN").cloned().collect()
    }

    async fn wait_for_data(&self, query: &str) {
        eventually(&format!("data for {query}"), ALERT_TIMEOUT, async || !self.instant_query(query).await.is_empty())
            .await
            .expect("happens in time");
    }

    async fn firing_alerts(&self) -> BTreeSet<String> {
        let Some(data) = self.api_get("/api/v1/alerts").await else { return BTreeSet::new() };
        let all = data["alerts"].as_array().expect("array").iter();
        let firing = all.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().expect("string").to_owned()).collect()
    }

    async fn wait_for_alert(&self, alert: &str) {
        eventually(&format!("{alert} fires"), ALERT_TIMEOUT, async || self.firing_alerts().await.contains(alert))
            .await
            .expect("happens in time");
    }
}

/// The queries of every panel, for all nodes and a short window.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&read_repository_file("deploy/grafana/ipseity.json")).expect("valid JSON");
    let panels = dashboard["panels"].as_array().expect("array").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("array"));
    let queries = targets.map(|target| target["expr"].as_str().expect("string"));
    queries.map(|query| query.replace("$__rate_interval", "20s").replace("$instance", ".*")).collect()
}

/// The vector selectors of an expression: metric names with their labels.
fn vector_selectors(expression: &str) -> Vec<String> {
    let mut rest = expression;
    let mut found = Vec::new();
    while let Some(start) = METRIC_PREFIXES.iter().filter_map(|prefix| rest.find(prefix)).min() {
        let text = &rest[start..];
        let name = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let labels = if text[name..].starts_with('{') { text[name..].find('}').map_or(0, |end| end + 1) } else { 0 };
        found.push(text[..name + labels].to_owned());
        rest = &text[name + labels..];
    }
    found
}

/// Sends requests at a rate that pauses no key.
async fn send_traffic(node: SocketAddr, keys: Vec<IssuedKey>) {
    let mut caller = TestClient::new(node);
    for key in keys.iter().cycle() {
        // Requests may fail: the alerts are about failures.
        let _ = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
        for path in ["/api/v1/meta", "/docs", "/nowhere"] {
            let _ = caller.get(path, &[]).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_find_data_and_alerts_fire_only_for_their_cause() {
    let folder = TestDir::create().expect("create directory");
    let geo = folder.path().join("city.mmdb");
    fs::write(&geo, city_database_aged(0)).expect("write file");
    let interval_settings = ["IPSEITY__LEDGER__OUTBOX_POLL_INTERVAL_MS", "IPSEITY__LEDGER__USAGE_FLUSH_INTERVAL_MS"];
    let mut env: Env = relaxed_timeouts();
    env.extend(interval_settings.map(|name| (name.to_owned(), "200".to_owned())));
    let options = DeploymentOptions { env, geo_files: vec![geo.clone()], ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("start deployment");
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(fresh_key(&deployment, Scope::Full).await);
    }
    let traffic = tokio::spawn(send_traffic(deployment.nodes[0].http(), keys));
    let prometheus = Prometheus::start(deployment.nodes[0].ops());
    prometheus.wait_for_data("ipseity_build_info").await;
    for query in dashboard_queries() {
        prometheus.wait_for_data(&query).await;
    }
    let rules = prometheus.api_get("/api/v1/rules").await.expect("rules");
    let rules = rules["groups"][0]["rules"].as_array().expect("array").clone();
    assert_eq!(rules.len(), alert_names().len());
    for rule in &rules {
        let vectors = vector_selectors(rule["query"].as_str().expect("string"));
        assert!(!vectors.is_empty(), "{rule}");
        for vector in vectors {
            prometheus.wait_for_data(&vector).await;
        }
    }
    assert_eq!(prometheus.firing_alerts().await, BTreeSet::new(), "no alert fires without a cause");

    deployment.redis.kill9();
    prometheus.wait_for_alert("IpseityDegraded").await;
    deployment.redis.restart().await.expect("restart");
    eventually("the alert is silent again", ALERT_TIMEOUT, async || {
        !prometheus.firing_alerts().await.contains("IpseityDegraded")
    })
    .await
    .expect("happens in time");
    fs::write(&deployment.certificate.chain_file, "damaged").expect("write file");
    fs::write(&geo, "damaged").expect("write file");
    for alert in ["IpseityCertificateRejected", "IpseityGeoReloadRejected"] {
        prometheus.wait_for_alert(alert).await;
    }
    deployment.postgres.stop().await.expect("stop");
    for alert in ["IpseityOutboxFailing", "IpseityUsageFlushFailing"] {
        prometheus.wait_for_alert(alert).await;
    }
    let expected_alerts = ["CertificateRejected", "GeoReloadRejected", "OutboxFailing", "UsageFlushFailing"];
    // Charges that were in flight when Redis was killed cannot be verified.
    let expected_alerts: BTreeSet<_> =
        expected_alerts.into_iter().chain(["UnverifiableCharges"]).map(|name| format!("Ipseity{name}")).collect();
    let others: Vec<_> = prometheus.firing_alerts().await.difference(&expected_alerts).cloned().collect();
    assert!(others.is_empty(), "{others:?}");
    traffic.abort();
    deployment.nodes[0].kill9();
    prometheus.wait_for_alert("IpseityDown").await;
}
