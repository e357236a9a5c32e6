//! Attacks on the public listeners while a legitimate client measures. A limit must close the attackers' connections,
//! and the client must be served.
//!
//! Attacks are short by default; `just abuse` runs each for 30 seconds. Slow headers and slow reads come from
//! slowhttptest, HTTP/2 floods from tools/attack.py, and TLS and QUIC attacks from `attack` of the testkit. All
//! attackers run at the lowest priority, because their CPU use is not the service's.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::{Env, find_service_binary};
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, eventually};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::baseline::{self, BaselineStats};
use crate::connection::print_line;
use crate::fixture::{env_number, fresh_key, relaxed_timeouts, shared_deployment};
use crate::proxies::edge_env;

/// Enough that no key reaches its burst limit.
const KEYS: usize = 12;
const RSS_GROWTH_MAX_KIB: u64 = 64 * 1024;
/// Attacks of this length must meet every target. Shorter ones end before a slow client reaches its deadline, and their
/// p99 is that of a few requests.
const FULL_ATTACK_S: u32 = 30;
/// Below this, a doubled p99 is noise.
const P99_NOISE_FLOOR_MS: f64 = 5.0;
/// Source networks of attacks on TLS and QUIC. One network may have a quarter of a node's connections. With few file
/// descriptors, three networks take all they may; otherwise the attackers get every session they want.
const ATTACKER_NETWORKS: usize = 20;
const ATTACKER_NETWORKS_FD_LIMITED: usize = 3;

/// Name, and number of concurrent connections, sockets or handshakes.
const ATTACKS: [(&str, u32); 10] = [
    ("slow_headers", 2000),
    ("slow_read", 500),
    ("idle_tls", 5000),
    ("rapid_reset", 4),
    ("continuation", 4),
    ("empty_data", 4),
    ("settings", 4),
    ("ping", 4),
    ("junk", 16),
    ("handshakes", 3000),
];

fn attack_seconds() -> u32 {
    env_number("IPSEITY_ABUSE_S", 2)
}

fn is_full_run() -> bool {
    attack_seconds() >= FULL_ATTACK_S
}

/// Attacks selected by `IPSEITY_ABUSE`: parts of "label: name", separated by commas. All if it is not set.
fn selected_attacks(label: &str) -> Vec<(&'static str, u32)> {
    let parts = std::env::var("IPSEITY_ABUSE").unwrap_or_default();
    let is_wanted = |name: &str| parts.split(',').any(|part| format!("{label}: {name}").contains(part));
    ATTACKS.into_iter().filter(|(name, _)| is_wanted(name)).collect()
}

/// The attacked node and the keys of the legitimate client.
struct AbuseFixture<'a> {
    deployment: &'a Deployment,
    node: &'a Node,
    keys: &'a [IssuedKey],
    label: &'a str,
    networks: usize,
}

impl AbuseFixture<'_> {
    fn start_attack(&self, name: &str, connections: u32) -> Child {
        let (clear, tls) = (self.node.http(), self.node.https().to_string());
        let (seconds, connections, networks) =
            (attack_seconds().to_string(), connections.to_string(), self.networks.to_string());
        let url = format!("http://{clear}/api/v1/ip");
        let (host, port) = (clear.ip().to_string(), clear.port().to_string());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/attack.py");
        let program = find_service_binary().expect("service is built").with_file_name("attack").display().to_string();
        let authority = self.deployment.certificate.ca_file.display().to_string();
        let common = ["-c", &connections, "-r", "500", "-l", &seconds, "-u", &url];
        let arguments: Vec<&str> = match name {
            "slow_headers" => [&["slowhttptest", "-H", "-i", "1", "-t", "GET", "-p", "3"], &common[..]].concat(),
            "slow_read" => {
                [&["slowhttptest", "-X", "-w", "1", "-y", "2", "-n", "5", "-z", "1", "-k", "3", "-p", "3"], &common[..]]
                    .concat()
            }
            "idle_tls" | "junk" | "handshakes" => {
                vec![&program, name, &tls, &authority, &seconds, &connections, &networks]
            }
            kind => vec!["python3", script, kind, &host, &port, &seconds, &connections],
        };
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec nice -n 19 "$@""#, "sh"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true).spawn().expect("attack starts; install slowhttptest and python3")
    }

    /// Runs all attacks; returns the missed targets.
    async fn run_attacks(&self) -> Vec<String> {
        let (mut failures, attacks) = (Vec::new(), selected_attacks(self.label));
        if attacks.is_empty() {
            return failures;
        }
        let duration = Duration::from_secs(attack_seconds().into());
        let before_attack = baseline::measure_baseline(self.deployment, self.node, self.keys, duration).await;
        assert!(before_attack.iter().all(|stats| stats.failures.is_empty()), "{}: before any attack", self.label);
        print_line(&format!("{}: calm: {}; {} KiB", self.label, format_stats(&before_attack), rss_kib(self.node)));
        for (name, connections) in attacks {
            let connections = if is_full_run() { connections } else { connections.div_ceil(5) };
            let (rss_before, before, cpu_before) =
                (rss_kib(self.node), close_counts(self.node).await, cpu_s(self.node));
            let attacker = self.start_attack(name, connections);
            let stats = baseline::measure_baseline(self.deployment, self.node, self.keys, duration).await;
            let (rss, cpu_s) = (rss_kib(self.node), cpu_s(self.node) - cpu_before);
            let output = attacker.wait_with_output().await.expect("attacker exits");
            let counts = close_counts(self.node).await.into_iter().zip(before);
            let counts: Vec<_> =
                counts.map(|((what, now), (_, old))| (what, now - old)).filter(|(_, n)| *n > 0).collect();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let output = output.lines().last().filter(|line| line.starts_with('{')).unwrap_or_default();
            print_line(&format!(
                "{}: {name} × {connections}: {}; {rss_before} → {rss} KiB, {cpu_s:.1} s of CPU time, {counts:?} {output}",
                self.label,
                format_stats(&stats)
            ));
            // Junk opens no connection that could be closed.
            let is_closed = name == "junk" || counts.iter().any(|(what, _)| what.starts_with("closed by"));
            let waits_for_a_deadline = ["slow_headers", "slow_read", "idle_tls", "handshakes"].contains(&name);
            let within = stats
                .iter()
                .zip(&before_attack)
                .all(|(stats, before_attack)| stats.p99_ms <= 2.0 * before_attack.p99_ms.max(P99_NOISE_FLOOR_MS));
            let checks = [
                ("a legitimate request failed", stats.iter().all(|stats| stats.failures.is_empty())),
                ("memory grew", rss < rss_before + RSS_GROWTH_MAX_KIB),
                ("no attacker was closed", is_closed || (!is_full_run() && waits_for_a_deadline)),
                ("the p99 of the legitimate client more than doubled", within || !is_full_run()),
            ];
            let failed = checks.into_iter().filter(|(_, is_met)| !is_met);
            failures.extend(failed.map(|(check, _)| format!("{}, {name}: {check}", self.label)));
        }
        failures
    }
}

fn format_stats(stats: &[BaselineStats; 2]) -> String {
    let format_one = |name: &str, stats: &BaselineStats| {
        let BaselineStats { succeeded, failures, p99_ms } = stats;
        let first_failure = failures.first().map_or(String::new(), |first| format!(" ({first})"));
        format!("{name} {succeeded} succeeded, {} failed{first_failure}, p99 {p99_ms:.1} ms", failures.len())
    };
    format!("{}; {}", format_one("HTTP/1.1", &stats[0]), format_one("HTTP/3", &stats[1]))
}

fn rss_kib(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("node runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("status has VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("valid number")
}

/// CPU time of a node in user and kernel mode.
fn cpu_s(node: &Node) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).expect("node runs");
    let fields = stat.rsplit_once(')').expect("stat has a name").1.split_whitespace().skip(11).take(2);
    // Linux reports 100 ticks per second.
    fields.map(|ticks| ticks.parse::<f64>().expect("valid number") / 100.0).sum()
}

/// Connections closed by each limit, and QUIC Retry packets sent.
async fn close_counts(node: &Node) -> Vec<(String, u64)> {
    let text = node.metrics().await.expect("read the metrics");
    let counts = text.lines().filter_map(|line| {
        let (name, count) = line.rsplit_once(' ')?;
        let reason =
            name.strip_prefix("ipseity_connections_closed_total{reason=\"").map(|name| name.trim_end_matches("\"}"));
        let retries = (name == "ipseity_quic_retries_total").then(|| "retries sent".to_owned());
        Some((reason.map(|reason| format!("closed by {reason}")).or(retries)?, count.parse().ok()?))
    });
    counts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn legitimate_client_is_served_during_every_attack() {
    let mut env = relaxed_timeouts();
    // No loopback address is trusted, because the subnet limit does not apply to trusted proxies.
    env.insert("IPSEITY__EDGE__TRUSTED_PROXIES".to_owned(), String::new());
    let deployment =
        &Deployment::start(DeploymentOptions { env, ..DeploymentOptions::default() }).await.expect("deployment starts");
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(fresh_key(deployment, Scope::Full).await);
    }
    let keys = &keys;
    let default_node = AbuseFixture {
        deployment,
        node: &deployment.nodes[0],
        keys,
        label: "default limits",
        networks: ATTACKER_NETWORKS,
    };
    let mut failures = default_node.run_attacks().await;
    let fd_limited = deployment.start_node_with_fd_limit(&Env::new(), 256).await.expect("node starts");
    let fd_limited = AbuseFixture {
        deployment,
        node: &fd_limited,
        keys,
        label: "256 files",
        networks: ATTACKER_NETWORKS_FD_LIMITED,
    };
    failures.append(&mut fd_limited.run_attacks().await);
    assert!(failures.is_empty(), "{failures:#?}");
}

/// With no reserve, so that the limit is reached. A node without free descriptors retries after a backoff.
#[tokio::test(flavor = "multi_thread")]
async fn node_out_of_file_descriptors_recovers_when_some_are_freed() {
    const HELD_CONNECTIONS: usize = 200;
    let max_wait = Duration::from_secs(30);
    let node = shared_deployment()
        .await
        .start_node_with_fd_limit(&edge_env(&[("OPEN_FILES_RESERVED", "0")]), 128)
        .await
        .expect("node starts");
    let start = Instant::now();
    let mut held = Vec::new();
    for _ in 0..HELD_CONNECTIONS {
        held.push(TcpStream::connect(node.http()).await.expect("connection is queued"));
    }
    let is_out = async || node.log().is_ok_and(|log| log.contains("accept failed"));
    eventually("the node is out of file descriptors", max_wait, is_out).await.expect("descriptors run out");
    drop(held);
    let served = async || node.client().get("/api/v1/meta", &[]).await.is_ok_and(|reply| reply.status == 200);
    eventually("the node accepts connections again", max_wait, served).await.expect("node accepts again");
    let metrics = node.metrics().await.expect("read the metrics");
    let errors =
        metrics.lines().find_map(|line| line.strip_prefix("ipseity_accept_errors_total ")).expect("metric exists");
    // Three listeners with a backoff, plus one attempt for each connection that ended and freed its descriptor.
    let attempts_max = 3 * (start.elapsed().as_millis() / 100 + 1) + HELD_CONNECTIONS as u128;
    assert!((1..=attempts_max).contains(&errors.parse().expect("valid number")), "{errors} of {attempts_max}");
}
