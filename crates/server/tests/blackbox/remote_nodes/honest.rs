//! Honest callers: keys just below their limits are never paused, and known keys do not wait.
//!
//! `IPSEITY_SITES_SECONDS` sets the duration of each test, and each prints what it measured.

use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::{IssuedKey, Node, RedisOptions, TestClient, TestClock};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::fixture::{RemoteNode, Sites, delayed, read_metric};
use super::limits::count_pauses;
use super::optimistic::{ADMITTED, OVER_LIMIT, open_key, start_optimistic_node};
use crate::fixture::{env_number, fresh_key};

/// 300 requests in 60.05 s.
const JUST_BELOW_LIMIT: Duration = Duration::from_micros(60_050_000 / 300);
const KEYS: usize = 10;

async fn start_all(sites: &Sites) -> Vec<RemoteNode> {
    let mut remotes = Vec::new();
    for (name, delay_ms) in [("ams", 1), ("lhr", 10), ("iad", 45), ("sin", 75), ("syd", 150)] {
        remotes.push(start_optimistic_node(sites, name, delayed(delay_ms)).await);
    }
    remotes
}

/// Sends requests of a key at fixed times, each to one of the nodes. Returns how many did not get 200.
async fn send_at_rate(nodes: Vec<std::net::SocketAddr>, key: String, interval: Duration, duration: Duration) -> usize {
    let (start, mut requests) = (tokio::time::Instant::now(), JoinSet::new());
    let count = u32::try_from(duration.as_nanos() / interval.as_nanos()).expect("few requests");
    for request in 0..count {
        sleep_until(start + interval * request).await;
        let (node, key) = (nodes[fastrand::usize(..nodes.len())], key.clone());
        requests.spawn(async move {
            let response = TestClient::new(node).get("/api/v1/ip", &[("authorization", &key)]).await;
            response.expect("response arrives").status
        });
    }
    requests.join_all().await.into_iter().filter(|status| *status != 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_just_below_their_limit_are_never_paused_at_any_distance() {
    let clock = TestClock::open().expect("clock opens");
    clock.set_offset_ms(0);
    let redis = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
    let sites = Sites::start_with(2, redis).await;
    let remotes = start_all(&sites).await;
    let nodes: Vec<_> = sites.deployment.nodes.iter().chain(remotes.iter().map(|remote| &remote.node)).collect();
    let duration = Duration::from_secs(env_number("IPSEITY_SITES_SECONDS", 66).into());
    let mut senders = JoinSet::new();
    for _ in 0..KEYS {
        let key = fresh_key(&sites.deployment, Scope::Ip).await;
        let addresses = nodes.iter().map(|node| node.http()).collect();
        senders.spawn(send_at_rate(addresses, key.bearer(), JUST_BELOW_LIMIT, duration));
    }
    // When the first requests leave the window, it matters whether the clock was set.
    for step_ms in [-50, -500, 3_000] {
        sleep(duration.mul_f64(0.3)).await;
        clock.advance_ms(step_ms);
    }
    let failed: usize = senders.join_all().await.into_iter().sum();
    let pauses = sites.deployment.postgres.psql("ipseity", "select count(*) from pauses").await;
    assert_eq!(pauses.expect("query succeeds").trim(), "0", "{failed} requests did not return 200");
    assert_eq!(failed, 0);
}

/// Milliseconds of requests, sorted.
async fn measure(node: &Node, keys: &[IssuedKey], interval: Duration, count: u32) -> Vec<f64> {
    let (start, mut requests) = (tokio::time::Instant::now(), JoinSet::new());
    for request in 0..count {
        sleep_until(start + interval * request).await;
        let (address, key) = (node.http(), keys[request as usize % keys.len()].bearer());
        requests.spawn(async move {
            let start = Instant::now();
            let response = TestClient::new(address).get("/api/v1/ip", &[("authorization", &key)]).await;
            assert_eq!(response.expect("response arrives").status, 200);
            start.elapsed().as_secs_f64() * 1000.0
        });
    }
    let mut durations = requests.join_all().await;
    durations.sort_by(f64::total_cmp);
    durations
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn known_keys_at_a_distant_node_do_not_wait() {
    let sites = Sites::start(1).await;
    let remote = start_optimistic_node(&sites, "syd", delayed(150)).await;
    let duration = Duration::from_secs(env_number("IPSEITY_SITES_SECONDS", 4).into());
    let mut keys = Vec::new();
    for _ in 0..env_number("IPSEITY_SITES_KEYS", 4) {
        let key = fresh_key(&sites.deployment, Scope::Ip).await;
        open_key(&remote, &key).await;
        keys.push(key);
    }
    let shapes = [
        ("2 requests per second over all keys", &keys[..], Duration::from_millis(500)),
        ("170 requests per minute of a key", &keys[..1], Duration::from_micros(60_000_000 / 170)),
        ("270 requests per minute of a key", &keys[1..2], Duration::from_micros(60_000_000 / 270)),
    ];
    for (name, keys, interval) in shapes {
        let count = u32::try_from(duration.as_nanos() / interval.as_nanos()).expect("few requests");
        let before = read_metric(&remote.node, ADMITTED).await;
        let remote_ms = measure(&remote.node, keys, interval, count).await;
        let share = (read_metric(&remote.node, ADMITTED).await - before) as f64 / f64::from(count);
        let home_ms = match keys.len() {
            // The same key would come nearer to its limit.
            1 => Vec::from([f64::NAN]),
            _ => measure(&sites.deployment.nodes[0], keys, interval, count).await,
        };
        eprintln!(
            "{name}: {:.1} % of {count} did not wait; p50 {:.1} ms, p99 {:.1} ms; at home p50 {:.1} ms, p99 {:.1} ms",
            share * 100.0,
            percentile(&remote_ms, 50),
            percentile(&remote_ms, 99),
            percentile(&home_ms, 50),
            percentile(&home_ms, 99),
        );
        // A busy machine can be late with a ping.
        assert!(share > 0.8, "{name}: {share}");
    }
    assert_eq!(read_metric(&remote.node, OVER_LIMIT).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn requests_in_one_moment_are_admitted_and_wait_at_most_for_home() {
    let sites = Sites::start(1).await;
    let home = &sites.deployment.nodes[0];
    let alone_ms = measure(home, &[fresh_key(&sites.deployment, Scope::Ip).await], Duration::ZERO, 290).await;
    eprintln!("290 at home without remote nodes: p99 {:.1} ms", percentile(&alone_ms, 99));

    let remote = start_optimistic_node(&sites, "syd", delayed(150)).await;
    let home_key = [fresh_key(&sites.deployment, Scope::Ip).await];
    let remote_key = [fresh_key(&sites.deployment, Scope::Ip).await];
    open_key(&remote, &remote_key[0]).await;
    for round in 0..env_number("IPSEITY_SITES_BURSTS", 1) {
        if round > 0 {
            sleep(Duration::from_millis(30_500)).await;
        }
        let before = read_metric(&remote.node, ADMITTED).await;
        let remote_ms = measure(&remote.node, &remote_key, Duration::ZERO, 100).await;
        eprintln!(
            "100 at the remote node: {} did not wait, p99 {:.1} ms",
            read_metric(&remote.node, ADMITTED).await - before,
            percentile(&remote_ms, 99)
        );
        if round % 2 == 0 {
            let home_ms = measure(home, &home_key, Duration::ZERO, 290).await;
            eprintln!("290 at home: p99 {:.1} ms", percentile(&home_ms, 99));
        }
    }
    for key in home_key.iter().chain(&remote_key) {
        assert_eq!(count_pauses(&sites, key).await, 0);
    }
}
