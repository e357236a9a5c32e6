//! Attacks on the public listeners while an honest caller measures: the attacker is closed by a bound, the caller is served.
//!
//! Short by default; `just abuse` gives each attack its 30 seconds. The attackers run at the lowest priority: the work that they make
//! themselves on the same processors is not the service's. HTTP/3's own attacks join the list with its listener.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::time::{Duration, Instant};

use domain::Scope;
use testkit::node::Env;
use testkit::{Caller, House, HouseOptions, Issued, Node, eventually};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{MissedTickBehavior, interval};

use crate::connection::show;
use crate::proxies::edge;
use crate::shared::{fresh_key, house, patient};

/// The honest caller's own address: it shares no neighbourhood with the attackers.
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const PACE: Duration = Duration::from_millis(50);
/// So many that none of them meets its limit for a minute.
const KEYS: usize = 12;
const RSS_GROWTH_MAX_KIB: u64 = 64 * 1024;
/// Attacks of this length are made whole, and held to every bar: shorter ones end before a slow client meets its deadline, and
/// their p99 is that of a handful of calls.
const STRICT_S: u64 = 30;
/// Below this, a doubled p99 is the machine's noise.
const NOISE_MS: f64 = 5.0;

/// Name, connections, and whether it is TLS that is attacked.
const ATTACKS: [(&str, usize, bool); 9] = [
    ("slow_headers", 2000, false),
    ("slow_read", 500, false),
    ("idle_tls", 5000, true),
    ("rapid_reset", 4, false),
    ("continuation", 4, false),
    ("empty_data", 4, false),
    ("settings", 4, false),
    ("ping", 4, false),
    ("datagrams", 1, true),
];

fn seconds() -> u64 {
    std::env::var("IPSEITY_ABUSE_S").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

fn is_strict() -> bool {
    seconds() >= STRICT_S
}

fn attack(node: &Node, name: &str, connections: usize, is_tls: bool) -> Child {
    let address = if is_tls { node.https() } else { node.http() };
    let (seconds, connections) = (seconds().to_string(), connections.to_string());
    let url = format!("http://{address}/api/v1/ip");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/attack.py");
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let common = ["-c", &connections, "-r", "500", "-l", &seconds, "-u", &url];
    let words: Vec<&str> = match name {
        "slow_headers" => [&["slowhttptest", "-H", "-i", "1", "-t", "GET", "-p", "3"], &common[..]].concat(),
        "slow_read" => {
            [&["slowhttptest", "-X", "-w", "1", "-y", "2", "-n", "5", "-z", "1", "-k", "3", "-p", "3"], &common[..]]
                .concat()
        }
        kind => vec!["python3", script, kind, &host, &port, &seconds, &connections],
    };
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("nice; the attacks need slowhttptest and python3")
}

/// What an honest caller met.
struct Seen {
    answered: usize,
    failed: usize,
    p99_ms: f64,
}

/// Asks at a steady pace, by turns over a connection that is kept and over a new one.
async fn ask_honestly(node: &Node, keys: &[Issued], lasting: Duration) -> Seen {
    let mut kept = Caller::from_address(node.http(), HONEST);
    let (mut times_ms, mut failed) = (Vec::new(), 0);
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    let mut turn = 0;
    while start.elapsed() < lasting {
        pace.tick().await;
        let bearer = keys[turn % keys.len()].bearer();
        let headers = [("authorization", bearer.as_str())];
        let asked = Instant::now();
        let reply = if turn % 2 == 0 {
            kept.get("/api/v1/ip", &headers).await
        } else {
            Caller::from_address(node.http(), HONEST).get("/api/v1/ip", &headers).await
        };
        turn += 1;
        match reply {
            Ok(reply) if reply.status == 200 => times_ms.push(asked.elapsed().as_secs_f64() * 1000.0),
            Ok(_) | Err(_) => failed += 1,
        }
    }
    times_ms.sort_by(f64::total_cmp);
    let rank = (times_ms.len() * 99).div_ceil(100).saturating_sub(1);
    Seen { answered: times_ms.len(), failed, p99_ms: times_ms.get(rank).copied().unwrap_or(f64::INFINITY) }
}

fn rss_kib(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("a running node");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Connections that each bound has closed so far.
async fn closed(node: &Node) -> Vec<(String, u64)> {
    let text = node.metrics().await.expect("metrics");
    let lines = text.lines().filter_map(|line| line.strip_prefix("ipseity_connections_closed_total{bound=\""));
    let counted = lines.filter_map(|line| {
        let (bound, count) = line.split_once("\"} ")?;
        Some((bound.to_owned(), count.parse().ok()?))
    });
    counted.collect()
}

/// Goes through all attacks; gives the bars that did not hold.
async fn withstand(node: &Node, keys: &[Issued], label: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let lasting = Duration::from_secs(seconds());
    let calm = ask_honestly(node, keys, lasting).await;
    assert_eq!(calm.failed, 0, "{label}: before any attack");
    show(&format!("{label}: calm, p99 {:.1} ms, {} KiB", calm.p99_ms, rss_kib(node)));
    for (name, connections, is_tls) in ATTACKS {
        let connections = if is_strict() { connections } else { connections.div_ceil(5) };
        let (rss_before, closed_before) = (rss_kib(node), closed(node).await);
        let attacker = attack(node, name, connections, is_tls);
        let seen = ask_honestly(node, keys, lasting).await;
        let rss = rss_kib(node);
        let said = attacker.wait_with_output().await.expect("the attacker ends");
        let by_bound =
            closed(node).await.into_iter().zip(closed_before).map(|((bound, now), (_, old))| (bound, now - old));
        let by_bound: Vec<_> = by_bound.filter(|(_, count)| *count > 0).collect();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let told = said.lines().last().filter(|line| line.starts_with('{')).unwrap_or_default();
        show(&format!(
            "{label}: {name} × {connections}: {} answered, {} failed, p99 {:.1} ms, {rss_before} → {rss} KiB, closed {by_bound:?} {told}",
            seen.answered, seen.failed, seen.p99_ms
        ));
        let is_told = told.contains("closed") && !told.contains("\"closed\": 0");
        // Junk datagrams open nothing that could be closed: they are dropped where they arrive.
        let is_closed = !by_bound.is_empty() || is_told || name == "datagrams";
        let p99_max_ms = 2.0 * calm.p99_ms.max(NOISE_MS);
        let bars = [
            ("an honest caller failed", seen.failed == 0),
            ("memory grew", rss < rss_before + RSS_GROWTH_MAX_KIB),
            ("nobody was closed", is_closed || (!is_strict() && name.starts_with("slow"))),
            ("the honest p99 more than doubled", seen.p99_ms <= p99_max_ms || !is_strict()),
        ];
        broken.extend(bars.into_iter().filter(|(_, holds)| !holds).map(|(bar, _)| format!("{label}, {name}: {bar}")));
    }
    broken
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_caller_is_served_through_every_attack() {
    let mut env = patient();
    // Nobody on the loopback is trusted here: a trusted proxy is not bounded by its network.
    env.insert("IPSEITY__EDGE__TRUSTED_PROXIES".to_owned(), String::new());
    let house = House::start(HouseOptions { env, ..HouseOptions::default() }).await.expect("a house");
    let mut keys = Vec::new();
    for _ in 0..KEYS {
        keys.push(fresh_key(&house, Scope::Full).await);
    }
    let mut broken = withstand(&house.nodes[0], &keys, "as it is").await;
    let narrow = house.start_node_with_files(&Env::new(), 256).await.expect("a node");
    broken.append(&mut withstand(&narrow, &keys, "256 files").await);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// With nothing reserved, so that the limit is met: a node out of files tries again at its pace, and serves when there are some.
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
