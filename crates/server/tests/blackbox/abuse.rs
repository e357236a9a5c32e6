//! Attacks on the public listeners while an honest caller measures: the attacker is closed by a bound, the caller is
//! served.
//!
//! Short by default; `just abuse` gives each attack its 30 seconds. Slow headers and slow reads are slowhttptest's,
//! HTTP/2's floods are tools/attack.py's, TLS and QUIC are the test kit's `attack`. All attackers run at the lowest
//! priority: the work that they make themselves on the same processors is not the service's.

use std::process::Stdio;
use std::time::{Duration, Instant};

use domain::Scope;
use testkit::node::{Env, find_program};
use testkit::{House, HouseOptions, Issued, Node, eventually};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::connection::show;
use crate::honest::{self, Seen};
use crate::proxies::edge;
use crate::shared::{fresh_key, house, patient, setting};

/// So many that none of them meets its limit for a minute.
const KEYS: usize = 12;
const RSS_GROWTH_MAX_KIB: u64 = 64 * 1024;
/// Attacks of this length are made whole, and held to every bar: shorter ones end before a slow client meets its
/// deadline, and their p99 is that of a handful of calls.
const STRICT_S: u32 = 30;
/// Below this, a doubled p99 is the machine's noise.
const NOISE_MS: f64 = 5.0;
/// Addresses that an attack on TLS or QUIC comes from. One network may hold a quarter of a node's connections: with few
/// files the attackers take all that three may, otherwise they hold every session that they wish for.
const NETWORKS: usize = 20;
const NETWORKS_NARROW: usize = 3;

/// Name, and connections, sockets or handshakes at once.
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

fn seconds() -> u32 {
    setting("IPSEITY_ABUSE_S", 2)
}

fn is_strict() -> bool {
    seconds() >= STRICT_S
}

/// Attacks to make, by `IPSEITY_ABUSE`: parts of "label: name", separated by commas; all if it is not set.
fn wanted(label: &str) -> Vec<(&'static str, u32)> {
    let parts = std::env::var("IPSEITY_ABUSE").unwrap_or_default();
    let is_wanted = |name: &str| parts.split(',').any(|part| format!("{label}: {name}").contains(part));
    ATTACKS.into_iter().filter(|(name, _)| is_wanted(name)).collect()
}

/// What is attacked, and by whom it is measured.
struct Scene<'a> {
    house: &'a House,
    node: &'a Node,
    keys: &'a [Issued],
    label: &'a str,
    networks: usize,
}

impl Scene<'_> {
    fn attack(&self, name: &str, connections: u32) -> Child {
        let (clear, tls) = (self.node.http(), self.node.https().to_string());
        let (seconds, connections, networks) =
            (seconds().to_string(), connections.to_string(), self.networks.to_string());
        let url = format!("http://{clear}/api/v1/ip");
        let (host, port) = (clear.ip().to_string(), clear.port().to_string());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/attack.py");
        let program = find_program().expect("the service").with_file_name("attack").display().to_string();
        let authority = self.house.certificate.authority.display().to_string();
        let common = ["-c", &connections, "-r", "500", "-l", &seconds, "-u", &url];
        let words: Vec<&str> = match name {
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
        command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec nice -n 19 "$@""#, "sh"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true).spawn().expect("a shell; the attacks need slowhttptest and python3")
    }

    /// Goes through all attacks; gives the bars that did not hold.
    async fn withstand(&self) -> Vec<String> {
        let (mut broken, attacks) = (Vec::new(), wanted(self.label));
        if attacks.is_empty() {
            return broken;
        }
        let lasting = Duration::from_secs(seconds().into());
        let calm = honest::ask(self.house, self.node, self.keys, lasting).await;
        assert!(calm.iter().all(|seen| seen.failures.is_empty()), "{}: before any attack", self.label);
        show(&format!("{}: calm: {}; {} KiB", self.label, told(&calm), rss_kib(self.node)));
        for (name, connections) in attacks {
            let connections = if is_strict() { connections } else { connections.div_ceil(5) };
            let (rss_before, before, cpu_before) = (rss_kib(self.node), counted(self.node).await, cpu_s(self.node));
            let attacker = self.attack(name, connections);
            let seen = honest::ask(self.house, self.node, self.keys, lasting).await;
            let (rss, cpu_s) = (rss_kib(self.node), cpu_s(self.node) - cpu_before);
            let said = attacker.wait_with_output().await.expect("the attacker ends");
            let counts = counted(self.node).await.into_iter().zip(before);
            let counts: Vec<_> =
                counts.map(|((what, now), (_, old))| (what, now - old)).filter(|(_, n)| *n > 0).collect();
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let said = said.lines().last().filter(|line| line.starts_with('{')).unwrap_or_default();
            show(&format!(
                "{}: {name} × {connections}: {}; {rss_before} → {rss} KiB, {cpu_s:.1} s of processor, {counts:?} {said}",
                self.label,
                told(&seen)
            ));
            // Junk opens nothing that could be closed: it is dropped where it arrives.
            let is_closed = name == "junk" || counts.iter().any(|(what, _)| what.starts_with("closed by"));
            let waits_for_a_deadline = ["slow_headers", "slow_read", "idle_tls", "handshakes"].contains(&name);
            let within = seen.iter().zip(&calm).all(|(seen, calm)| seen.p99_ms <= 2.0 * calm.p99_ms.max(NOISE_MS));
            let bars = [
                ("an honest caller failed", seen.iter().all(|seen| seen.failures.is_empty())),
                ("memory grew", rss < rss_before + RSS_GROWTH_MAX_KIB),
                ("nobody was closed", is_closed || (!is_strict() && waits_for_a_deadline)),
                ("the honest p99 more than doubled", within || !is_strict()),
            ];
            let failed = bars.into_iter().filter(|(_, holds)| !holds);
            broken.extend(failed.map(|(bar, _)| format!("{}, {name}: {bar}", self.label)));
        }
        broken
    }
}

fn told(seen: &[Seen; 2]) -> String {
    let one = |name: &str, seen: &Seen| {
        let Seen { answered, failures, p99_ms } = seen;
        let why = failures.first().map_or(String::new(), |first| format!(" ({first})"));
        format!("{name} {answered} answered, {} failed{why}, p99 {p99_ms:.1} ms", failures.len())
    };
    format!("{}; {}", one("HTTP/1.1", &seen[0]), one("HTTP/3", &seen[1]))
}

fn rss_kib(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("a running node");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Time that the processors have spent on a node, in its own code and in the kernel.
fn cpu_s(node: &Node) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).expect("a running node");
    let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace().skip(11).take(2);
    // In ticks, of which Linux tells a hundred a second.
    fields.map(|ticks| ticks.parse::<f64>().expect("a number") / 100.0).sum()
}

/// Connections that each bound has closed so far, and callers that were asked to prove their address.
async fn counted(node: &Node) -> Vec<(String, u64)> {
    let text = node.metrics().await.expect("metrics");
    let counted = text.lines().filter_map(|line| {
        let (name, count) = line.rsplit_once(' ')?;
        let bound =
            name.strip_prefix("ipseity_connections_closed_total{bound=\"").map(|name| name.trim_end_matches("\"}"));
        let retries = (name == "ipseity_quic_retries_total").then(|| "asked for proof".to_owned());
        Some((bound.map(|bound| format!("closed by {bound}")).or(retries)?, count.parse().ok()?))
    });
    counted.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_caller_is_served_through_every_attack() {
    let mut env = patient();
    // Nobody on the loopback is trusted here: a trusted proxy is not bounded by its network.
    env.insert("IPSEITY__EDGE__TRUSTED_PROXIES".to_owned(), String::new());
    let house = &House::start(HouseOptions { env, ..HouseOptions::default() }).await.expect("a house");
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(fresh_key(house, Scope::Full).await);
    }
    let keys = &keys;
    let wide = Scene { house, node: &house.nodes[0], keys, label: "as it is", networks: NETWORKS };
    let mut broken = wide.withstand().await;
    let narrow = house.start_node_with_files(&Env::new(), 256).await.expect("a node");
    let narrow = Scene { house, node: &narrow, keys, label: "256 files", networks: NETWORKS_NARROW };
    broken.append(&mut narrow.withstand().await);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// With nothing reserved, so that the limit is met: a node out of files tries again at its pace, and serves when there
/// are some.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_out_of_files_waits_for_some() {
    const HELD: usize = 200;
    let patience = Duration::from_secs(30);
    let node = house().await.start_node_with_files(&edge(&[("FILES_RESERVED", "0")]), 128).await.expect("a node");
    let start = Instant::now();
    let mut held = Vec::new();
    for _ in 0..HELD {
        held.push(TcpStream::connect(node.http()).await.expect("a place in the kernel's queue"));
    }
    let is_out = async || node.log().is_ok_and(|log| log.contains("could not be accepted"));
    eventually("the node is out of files", patience, is_out).await.expect("it has a limit");
    drop(held);
    let served = async || node.caller().get("/api/v1/meta", &[]).await.is_ok_and(|reply| reply.status == 200);
    eventually("it serves again", patience, served).await.expect("there are files again");
    let metrics = node.metrics().await.expect("metrics");
    let errors = metrics.lines().find_map(|line| line.strip_prefix("ipseity_accept_errors_total ")).expect("a count");
    // Three listeners at their pace; and one try for each connection that has ended, since its file is free.
    let tries_max = 3 * (start.elapsed().as_millis() / 100 + 1) + HELD as u128;
    assert!((1..=tries_max).contains(&errors.parse().expect("a number")), "{errors} of {tries_max}");
}
