//! Attacks on the public listeners while a legitimate client measures. A limit must close the attackers' connections,
//! and the client must be served.
//!
//! Attacks are short by default; `just abuse` runs each for 30 seconds. Slow headers and slow reads come from
//! slowhttptest, TLS and QUIC attacks from `attack` of the testkit, and the others from tools/attack.py. All attackers run at the lowest priority, because their CPU use is not the service's.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::deployment::node::{Env, FAILED_ATTEMPTS_ENV, find_service_binary};
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, ReservedPort, eventually};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::baseline::{self, BaselineStats};
use crate::connection::print_line;
use crate::fixture::{env_number, fresh_key, relaxed_timeouts, shared_deployment};
use crate::portal::fixture::{digest_sql, fresh_secret};
use crate::proxies::edge_env;

/// Enough that no key reaches its burst limit.
const KEYS: usize = 12;
/// Of an attack from one network. Idle TLS sessions and handshakes come from many.
const RSS_GROWTH_MAX_KIB: u64 = 64 * 1024;
const RSS_GROWTH_OF_MANY_NETWORKS_MAX_KIB: u64 = 128 * 1024;
/// Attacks of this length must meet every target. Shorter ones end before a slow client reaches its deadline, and their
/// p99 is that of a few requests.
const FULL_ATTACK_S: u32 = 30;
/// Below this, a doubled p99 is noise.
const P99_NOISE_FLOOR_MS: f64 = 5.0;
/// Source networks of TLS sessions and of QUIC handshakes. The other attacks come from one. One network may have a quarter of a node's connections. With few file
/// descriptors, three networks take all they may; otherwise the attackers get every session they want.
const ATTACKER_NETWORKS: usize = 20;
const ATTACKER_NETWORKS_FD_LIMITED: usize = 3;

/// Name, and number of concurrent connections, sockets or handshakes.
const ATTACKS: [(&str, u32); 17] = [
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
    ("unread_http2", 300),
    ("trickle_http2", 300),
    ("unread_http3", 300),
    ("trickle_http3", 300),
    ("event_streams", 300),
    ("sign_ins", 64),
    ("unknown_keys", 64),
];
/// Attacks that come from a /48 too, with this many connections: as many as it may have, and some more.
const ATTACKS_OF_A_48: [&str; 5] = ["unread_http2", "trickle_http2", "event_streams", "sign_ins", "unknown_keys"];
const CONNECTIONS_OF_A_48: u32 = 1200;
const NETWORK_48: &str = "2001:db8:77::/48";
/// The source of all other attacks, and the proxy that names clients in the /48.
const ATTACKER_ADDRESS: &str = "127.0.1.1";
/// Pages, a file and a document: the largest responses, in memory that is shared and that is not.
const LARGE_RESPONSES: &str = "/,/docs/errors,/api/v1/openapi.json,/signin";
/// More keys than a node remembers as unknown.
const UNKNOWN_KEYS: usize = 100_000;

fn attack_seconds() -> u32 {
    env_number("IPSEITY_ABUSE_S", 2)
}

fn is_full_run() -> bool {
    attack_seconds() >= FULL_ATTACK_S
}

/// Whether `IPSEITY_ABUSE` selects an attack: parts of "label: name", separated by commas. All if it is not set.
fn is_selected(label: &str, name: &str) -> bool {
    let parts = std::env::var("IPSEITY_ABUSE").unwrap_or_default();
    parts.split(',').any(|part| format!("{label}: {name}").contains(part))
}

/// The attacked node and the keys of the legitimate client.
struct AbuseFixture<'a> {
    deployment: &'a Deployment,
    node: &'a Node,
    /// The listener for plain HTTP of the legitimate client, and that of the attackers.
    http: SocketAddr,
    attacked: SocketAddr,
    keys: &'a [IssuedKey],
    /// A session and a file, which attackers use.
    cookie: &'a str,
    unknown_keys: &'a Path,
    label: &'a str,
    networks: usize,
    attacks: Vec<(&'static str, u32)>,
    /// An address or a network.
    source: &'a str,
}

impl AbuseFixture<'_> {
    fn start_attack(&self, name: &str, connections: u32) -> Child {
        let (clear, tls) = (self.attacked, self.node.https().to_string());
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
                vec![&program, name, &tls, &authority, &seconds, &connections, &networks, ""]
            }
            "unread_http3" | "trickle_http3" => {
                vec![&program, name, &tls, &authority, &seconds, &connections, "1", LARGE_RESPONSES]
            }
            kind => {
                let value = match kind {
                    "event_streams" => self.cookie,
                    "unknown_keys" => self.unknown_keys.to_str().expect("path is UTF-8"),
                    _ => LARGE_RESPONSES,
                };
                vec!["python3", script, kind, &host, &port, &seconds, &connections, self.source, value]
            }
        };
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec nice -n 19 "$@""#, "sh"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true).spawn().expect("attack starts; install slowhttptest and python3")
    }

    /// Runs all attacks; returns the missed targets.
    async fn run_attacks(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let attacks: Vec<_> = self.attacks.iter().filter(|(name, _)| is_selected(self.label, name)).collect();
        if attacks.is_empty() {
            return failures;
        }
        let duration = Duration::from_secs(attack_seconds().into());
        for &(name, connections) in attacks {
            let connections = if is_full_run() { connections } else { connections.div_ceil(5) };
            let measure = || baseline::measure_baseline(self.deployment, self.node, self.http, self.keys, duration);
            // Before each attack: the speed of a virtual machine changes within minutes.
            let calm_p99_ms = if is_full_run() { Some(measure().await.map(|stats| stats.p99_ms)) } else { None };
            let (rss_before, before, cpu_before) =
                (status_kib(self.node, "VmRSS:"), close_counts(self.node).await, cpu_s(self.node));
            let stolen_before = stolen_s();
            reset_rss_max(self.node);
            let attacker = self.start_attack(name, connections);
            let stats = measure().await;
            let (rss, cpu_s) = (status_kib(self.node, "VmHWM:"), cpu_s(self.node) - cpu_before);
            let stolen_s = stolen_s() - stolen_before;
            let output = attacker.wait_with_output().await.expect("attacker exits");
            let counts = close_counts(self.node).await.into_iter().zip(before);
            let counts: Vec<_> =
                counts.map(|((what, now), (_, old))| (what, now - old)).filter(|(_, n)| *n > 0).collect();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let output = output.lines().last().filter(|line| line.starts_with('{')).unwrap_or_default();
            print_line(&format!(
                "{}: {name} × {connections}: {}; without the attack {calm_p99_ms:.1?}; {rss_before} → {rss} KiB, {cpu_s:.1} s of CPU time, {stolen_s:.1} s taken by the host, {counts:?} {output}",
                self.label,
                format_stats(&stats)
            ));
            // These send nothing for which a connection could be closed: invalid packets, or valid requests.
            let is_closed = ["junk", "event_streams", "sign_ins", "unknown_keys"].contains(&name)
                || counts.iter().any(|(what, _)| what.starts_with("closed by"));
            let waits_for_a_deadline =
                !["rapid_reset", "continuation", "empty_data", "settings", "ping"].contains(&name);
            let is_from_many_networks = ["idle_tls", "handshakes"].contains(&name);
            let growth_max =
                if is_from_many_networks { RSS_GROWTH_OF_MANY_NETWORKS_MAX_KIB } else { RSS_GROWTH_MAX_KIB };
            let within = calm_p99_ms.is_none_or(|calm_p99_ms| {
                let limits_ms = calm_p99_ms.map(|p99_ms| 2.0 * p99_ms.max(P99_NOISE_FLOOR_MS));
                stats.iter().zip(limits_ms).all(|(stats, limit_ms)| stats.p99_ms <= limit_ms)
            });
            let checks = [
                ("a legitimate request failed", stats.iter().all(|stats| stats.failures.is_empty())),
                ("memory grew", rss < rss_before + growth_max),
                ("no attacker was closed", is_closed || (!is_full_run() && waits_for_a_deadline)),
                ("the p99 of the legitimate client more than doubled", within),
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

/// A size from the status of the node's process.
fn status_kib(node: &Node, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("node runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("status has the line");
    line.trim().trim_end_matches(" kB").parse().expect("valid number")
}

/// Starts a new measurement of the maximum (`VmHWM`).
fn reset_rss_max(node: &Node) {
    std::fs::write(format!("/proc/{}/clear_refs", node.pid()), "5").expect("node runs");
}

/// CPU time of a node in user and kernel mode.
fn cpu_s(node: &Node) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).expect("node runs");
    let fields = stat.rsplit_once(')').expect("stat has a name").1.split_whitespace().skip(11).take(2);
    // Linux reports 100 ticks per second.
    fields.map(|ticks| ticks.parse::<f64>().expect("valid number") / 100.0).sum()
}

/// CPU time that the host of this virtual machine gave to others. If it is much, the latencies are those of the host.
fn stolen_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("system has statistics");
    let ticks = stat.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok());
    ticks.expect("valid number") / 100.0
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
    // The default.
    env.insert(FAILED_ATTEMPTS_ENV.to_owned(), "20".to_owned());
    let deployment =
        &Deployment::start(DeploymentOptions { env, ..DeploymentOptions::default() }).await.expect("deployment starts");
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(fresh_key(deployment, Scope::Full).await);
    }
    let cookie = fresh_secret();
    let session = format!(
        "with account as (insert into accounts (email, password_hash) values ('streams@example.com', '') returning id)
         insert into sessions (digest, account_id, label) select {}, id, 'attacker' from account",
        digest_sql(&cookie)
    );
    deployment.postgres.psql("ipseity", &session).await.expect("session is stored");
    let unknown_keys = deployment.nodes[0].dir().join("unknown-keys");
    let lines: Vec<_> =
        (0..UNKNOWN_KEYS).map(|_| PlaintextKey::generate(|| fastrand::u8(..)).expose().to_owned()).collect();
    std::fs::write(&unknown_keys, lines.join("\n")).expect("file is written");

    let fixture = |node, label, networks| AbuseFixture {
        deployment,
        node,
        http: Node::http(node),
        attacked: Node::http(node),
        keys: &keys,
        cookie: &cookie,
        unknown_keys: &unknown_keys,
        label,
        networks,
        attacks: ATTACKS.to_vec(),
        source: ATTACKER_ADDRESS,
    };
    let mut failures = fixture(&deployment.nodes[0], "default limits", ATTACKER_NETWORKS).run_attacks().await;
    let fd_limited = deployment.start_node_with_fd_limit(&Env::new(), 256).await.expect("node starts");
    failures.append(&mut fixture(&fd_limited, "256 files", ATTACKER_NETWORKS_FD_LIMITED).run_attacks().await);

    let [http, attacked] = [(); 2].map(|()| ReservedPort::reserve_free().expect("port is free"));
    let (http, attacked) = (http.address(), attacked.address());
    let settings = [
        ("HTTP", format!("{http},{attacked}")),
        ("PROXY_PROTOCOL", attacked.to_string()),
        ("TRUSTED_PROXIES", format!("{ATTACKER_ADDRESS}/32")),
    ];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let proxied = deployment.start_node(&edge_env(&settings)).await.expect("node starts");
    let attacks = ATTACKS_OF_A_48.map(|name| (name, CONNECTIONS_OF_A_48)).to_vec();
    let proxied =
        AbuseFixture { http, attacked, attacks, source: NETWORK_48, ..fixture(&proxied, "one /48", ATTACKER_NETWORKS) };
    failures.append(&mut proxied.run_attacks().await);
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
