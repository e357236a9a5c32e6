//! Alerts and dashboard (`deploy/`), held against a real Prometheus that scrapes a real node: every query finds data, each alert fires when
//! its cause is there and is silent when it is not.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use domain::Scope;
use serde_json::Value;
use testkit::node::Env;
use testkit::{Caller, Folder, House, HouseOptions, Issued, Port, eventually};

use crate::shared::{city, fresh_key, patient};

const RULES: &str = "deploy/prometheus/alerts.yml";
const TESTS: &str = "deploy/prometheus/alerts_test.yml";
const WAIT: Duration = Duration::from_secs(60);
/// Names of metrics begin so.
const OWN: &str = "ipseity_";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file of the project")
}

/// The names of all alerts.
fn alerts() -> Vec<String> {
    let rules = read(RULES);
    rules.lines().filter_map(|line| Some(line.trim().strip_prefix("- alert: ")?.to_owned())).collect()
}

#[test]
fn each_alert_fires_and_is_silent_in_its_tests_and_has_its_page() {
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let run = Command::new("promtool").args(arguments).current_dir(root()).output();
        let output = run.expect("promtool, of Debian's package prometheus");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let (rules, tests, pages) = (read(RULES), read(TESTS), read("docs/operations/alerts.md"));
    assert!(alerts().len() >= 15);
    for alert in alerts() {
        for test in ["fires", "is silent"] {
            assert!(tests.contains(&format!("- name: {alert} {test}\n")), "{alert} {test}: no test");
        }
        assert!(pages.contains(&format!("\n## {alert}\n")), "{alert} has no page");
        let link = format!("runbook_url: docs/operations/alerts.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not lead to its page");
    }
}

/// A Prometheus that scrapes and judges every second; killed when dropped.
struct Prometheus {
    process: Child,
    port: Port,
    _folder: Folder,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself; the folder goes with it either way.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Prometheus {
    fn start(node: SocketAddr) -> Self {
        let (folder, port) = (Folder::open().expect("a folder"), Port::open().expect("a port"));
        // Alerts that wait for some minutes fire at once here; those about latency, which a busy machine may well have, wait as ever.
        let rules = read(RULES);
        let soon = ["for: 1m", "for: 2m", "for: 5m"];
        let rules: Vec<_> = rules.lines().filter(|line| !soon.contains(&line.trim())).collect();
        fs::write(folder.path().join("alerts.yml"), rules.join("\n")).expect("rules");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n\
             scrape_configs:\n- job_name: ipseity\n  static_configs:\n  - targets: ['{node}']\n"
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).expect("a configuration");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={}", port.address()))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn()
            .expect("prometheus, of Debian's package of that name");
        Self { process, port, _folder: folder }
    }

    async fn ask(&self, path: &str) -> Option<Value> {
        let reply = Caller::new(self.port.address()).get(path, &[]).await.ok()?.json().ok()?;
        assert_eq!(reply["status"], "success", "{path}: {reply}");
        Some(reply["data"].clone())
    }

    /// What a query finds, numbers only.
    async fn query(&self, query: &str) -> Vec<Value> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(data) = self.ask(&format!("/api/v1/query?query={query}")).await else { return Vec::new() };
        let found = data["result"].as_array().expect("a vector").iter();
        found.filter(|sample| sample["value"][1] != "NaN").cloned().collect()
    }

    async fn finds(&self, query: &str) {
        eventually(&format!("data for {query}"), WAIT, async || !self.query(query).await.is_empty())
            .await
            .expect("data");
    }

    async fn firing(&self) -> BTreeSet<String> {
        let Some(data) = self.ask("/api/v1/alerts").await else { return BTreeSet::new() };
        let all = data["alerts"].as_array().expect("alerts").iter();
        let firing = all.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().expect("a name").to_owned()).collect()
    }

    async fn fires(&self, alert: &str) {
        eventually(&format!("{alert} fires"), WAIT, async || self.firing().await.contains(alert))
            .await
            .expect("an alert");
    }
}

/// The queries of every panel, as they are with all nodes and a short window.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/ipseity.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a query"));
    queries.map(|query| query.replace("$__rate_interval", "20s").replace("$instance", ".*")).collect()
}

/// The vectors that an expression is built of: names of metrics, each with its labels.
fn vectors(expression: &str) -> Vec<String> {
    let mut rest = expression;
    let mut found = Vec::new();
    while let Some(start) = rest.find(OWN).or_else(|| rest.find("up{")) {
        let text = &rest[start..];
        let name = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let labels = if text[name..].starts_with('{') { text[name..].find('}').map_or(0, |end| end + 1) } else { 0 };
        found.push(text[..name + labels].to_owned());
        rest = &text[name + labels..];
    }
    found
}

/// Asks as callers do, too seldom to be paused.
async fn traffic(node: SocketAddr, keys: Vec<Issued>) {
    let mut caller = Caller::new(node);
    for key in keys.iter().cycle() {
        // Failures are what the alerts are about.
        let _ = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
        for path in ["/api/v1/meta", "/docs", "/nowhere"] {
            let _ = caller.get(path, &[]).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_finds_data_and_alerts_fire_by_their_causes_alone() {
    let folder = Folder::open().expect("a folder");
    let geo = folder.path().join("city.mmdb");
    fs::write(&geo, city(0)).expect("a geo file");
    let often = ["IPSEITY__LEDGER__RELAY_INTERVAL_MS", "IPSEITY__LEDGER__ROLLUP_INTERVAL_MS"];
    let mut env: Env = patient();
    env.extend(often.map(|name| (name.to_owned(), "200".to_owned())));
    let options = HouseOptions { env, geo_files: vec![geo.clone()], ..HouseOptions::default() };
    let mut house = House::start(options).await.expect("a house");
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(fresh_key(&house, Scope::Full).await);
    }
    let traffic = tokio::spawn(traffic(house.nodes[0].http(), keys));
    let prometheus = Prometheus::start(house.nodes[0].ops());
    prometheus.finds("ipseity_build_info").await;
    for query in dashboard() {
        prometheus.finds(&query).await;
    }
    let rules = prometheus.ask("/api/v1/rules").await.expect("rules");
    let rules = rules["groups"][0]["rules"].as_array().expect("rules").clone();
    assert_eq!(rules.len(), alerts().len());
    for rule in &rules {
        let vectors = vectors(rule["query"].as_str().expect("a query"));
        assert!(!vectors.is_empty(), "{rule}");
        for vector in vectors {
            prometheus.finds(&vector).await;
        }
    }
    assert_eq!(prometheus.firing().await, BTreeSet::new(), "nothing is wrong");

    house.redis.kill9();
    prometheus.fires("IpseityCounterStoreAway").await;
    house.redis.restart().await.expect("a Redis");
    eventually("it is silent again", WAIT, async || !prometheus.firing().await.contains("IpseityCounterStoreAway"))
        .await
        .expect("silence");
    fs::write(&house.certificate.chain, "torn").expect("a torn certificate");
    fs::write(&geo, "torn").expect("a torn geo file");
    for alert in ["IpseityCertificateRefused", "IpseityGeoRefused"] {
        prometheus.fires(alert).await;
    }
    house.postgres.stop().await.expect("a stop");
    for alert in ["IpseityRelaysFail", "IpseityRollUpsFail"] {
        prometheus.fires(alert).await;
    }
    let caused = ["CertificateRefused", "GeoRefused", "RelaysFail", "RollUpsFail"];
    // A Redis that is killed may take along what it was just asked.
    let caused: BTreeSet<_> = caused.into_iter().chain(["Untold"]).map(|name| format!("Ipseity{name}")).collect();
    let others: Vec<_> = prometheus.firing().await.difference(&caused).cloned().collect();
    assert!(others.is_empty(), "{others:?}");
    traffic.abort();
    house.nodes[0].kill9();
    prometheus.fires("IpseityDown").await;
}
