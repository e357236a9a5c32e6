//! Remote nodes that admit requests before home has charged them.

use std::time::{Duration, Instant};

use ipseity_domain::{IN_FLIGHT_MAX, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{FaultConfig, IssuedKey, eventually};
use tokio::time::sleep;

use super::fixture::{RemoteNode, Sites, delayed, read_metric};
use super::limits::{count_pauses, flood, local_decisions};
use crate::fixture::{env_number, fresh_key, lookup_status};

const WITHIN: Duration = Duration::from_secs(30);
pub(super) const ADMITTED: &str = "ipseity_optimistic_requests_total";
pub(super) const OVER_LIMIT: &str = "ipseity_over_limit_requests_total";

pub(super) async fn start_optimistic_node(sites: &Sites, name: &str, faults: FaultConfig) -> RemoteNode {
    sites.start_remote_node_with(name, faults, optimistic_settings()).await
}

pub(super) fn optimistic_settings() -> Env {
    let settings = [
        ("IPSEITY__HOME__OPTIMISTIC", "true"),
        ("IPSEITY__HOME__TIMEOUT_MS", "10000"),
        ("IPSEITY__HOME__SILENCE_TIMEOUT_MS", "20000"),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Sends requests until the node admits one before home has charged it. Returns the number of requests.
pub(super) async fn open_key(remote: &RemoteNode, key: &IssuedKey) -> u64 {
    let mut requests = 0;
    eventually("the key is open", WITHIN, async || {
        let before = read_metric(&remote.node, ADMITTED).await;
        assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
        requests += 1;
        read_metric(&remote.node, ADMITTED).await > before
    })
    .await
    .expect("key is open");
    requests
}

pub(super) async fn wait_until_charged(sites: &Sites, key: &IssuedKey, requests: u64) {
    let charged = eventually("the charges arrive", WITHIN, async || sites.charged(&key.id).await >= requests).await;
    assert_eq!(sites.charged(&key.id).await, requests, "{charged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_key_does_not_wait_for_home() {
    let sites = Sites::start(1).await;
    let remote = start_optimistic_node(&sites, "syd", delayed(150)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let mut requests = open_key(&remote, &key).await;
    let (before, mut waited) = (read_metric(&remote.node, ADMITTED).await, 0);
    for _ in 0..30 {
        sleep(Duration::from_millis(150)).await;
        let start = Instant::now();
        assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
        waited += u64::from(start.elapsed() >= Duration::from_millis(300));
        requests += 1;
    }
    let optimistic = read_metric(&remote.node, ADMITTED).await - before;
    // A busy machine can be late with a ping.
    assert!(optimistic >= 25 && waited <= 30 - optimistic, "{optimistic} did not wait, {waited} did");
    wait_until_charged(&sites, &key, requests).await;
    assert_eq!(read_metric(&remote.node, OVER_LIMIT).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exceeded_by_at_most_the_requests_in_flight() {
    let sites = Sites::start(2).await;
    let mut remotes = Vec::new();
    for (name, delay_ms) in [("ams", 1), ("lhr", 10), ("iad", 45), ("sin", 75), ("syd", 150)] {
        remotes.push(start_optimistic_node(&sites, name, delayed(delay_ms)).await);
    }
    let deployment = &sites.deployment;
    let nodes: Vec<_> = deployment.nodes.iter().chain(remotes.iter().map(|remote| &remote.node)).collect();
    for round in 0..env_number("IPSEITY_SITES_ROUNDS", 2) {
        let key = fresh_key(deployment, Scope::Ip).await;
        let mut opened = 0;
        for remote in &remotes {
            opened += open_key(remote, &key).await as usize;
        }
        let before = (local_decisions(&nodes).await, over_limit(&remotes).await);
        let statuses = flood(&nodes, "/api/v1/ip", Some(&key.bearer()), 8).await;
        let admitted = opened + statuses.get(&200).copied().unwrap_or_default();
        let local = local_decisions(&nodes).await - before.0;
        let bound = 300 + IN_FLIGHT_MAX * remotes.len() + local;
        assert!((300..=bound).contains(&admitted), "round {round}: {admitted} admitted, {statuses:?}");
        assert_eq!(count_pauses(&sites, &key).await, 1);
        wait_until_charged(&sites, &key, admitted as u64).await;
        if local == 0 {
            assert_eq!(over_limit(&remotes).await - before.1, admitted - 300, "round {round}");
        }
    }
}

pub(super) async fn over_limit(remotes: &[RemoteNode]) -> usize {
    let mut requests = 0;
    for remote in remotes {
        requests += read_metric(&remote.node, OVER_LIMIT).await as usize;
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_fresh_changes_waits_for_home() {
    let sites = Sites::start(1).await;
    let remote = start_optimistic_node(&sites, "syd", delayed(10)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    for faults in [FaultConfig { half_open: true, ..FaultConfig::none() }, delayed(3_000)] {
        open_key(&remote, &key).await;
        remote.set_faults(faults);
        sleep(Duration::from_millis(900)).await;
        let before = read_metric(&remote.node, ADMITTED).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), lookup_status(&remote.node, &key.key)).await;
        assert_eq!(read_metric(&remote.node, ADMITTED).await, before, "{faults:?}");
        remote.set_faults(delayed(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_charged_once_whatever_happens_to_the_link() {
    let sites = Sites::start(2).await;
    let settings = [("IPSEITY__HOME__OPTIMISTIC".to_owned(), "true".to_owned())];
    let remote = sites.start_remote_node_with("syd", delayed(20), Env::from(settings)).await;
    let keys = [fresh_key(&sites.deployment, Scope::Ip).await, fresh_key(&sites.deployment, Scope::Ip).await];
    let mut sent = [(0, 0); 2];
    let mut send = async |times: usize| {
        for request in 0..times {
            let key = request % keys.len();
            let is_admitted = lookup_status(&remote.node, &keys[key].key).await == 200;
            (sent[key].0, sent[key].1) = (sent[key].0 + u64::from(is_admitted), sent[key].1 + u64::from(!is_admitted));
            sleep(Duration::from_millis(60)).await;
        }
    };
    send(20).await;
    let none = delayed(20);
    for faults in [
        FaultConfig { cut: true, ..none },
        FaultConfig { half_open: true, ..none },
        FaultConfig { reply_drop_rate: 0.3, ..none },
        FaultConfig { hold_requests_before: Some(Instant::now() + Duration::from_secs(3600)), ..none },
        delayed(600),
    ] {
        remote.set_faults(faults);
        send(24).await;
        remote.set_faults(none);
        send(16).await;
    }
    let unverifiable = read_metric(&remote.node, "ipseity_unverifiable_charges_total").await;
    for (key, (admitted, refused)) in keys.iter().zip(sent) {
        // A request that got an error may be charged.
        let is_complete = async || sites.charged(&key.id).await + unverifiable >= admitted;
        let complete = eventually("the charges are reconciled", WITHIN, is_complete).await;
        sleep(Duration::from_secs(2)).await;
        let charged = sites.charged(&key.id).await;
        let unverifiable = read_metric(&remote.node, "ipseity_unverifiable_charges_total").await;
        let expected = admitted.saturating_sub(unverifiable)..=admitted + refused;
        assert!(expected.contains(&charged), "{charged} charged, {admitted} admitted, {refused} refused: {complete:?}");
        assert_eq!(count_pauses(&sites, key).await, 0);
    }
    let optimistic = read_metric(&remote.node, ADMITTED).await;
    assert!(optimistic > 50, "only {optimistic} did not wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_node_leaves_no_admitted_request_uncharged() {
    let sites = Sites::start(1).await;
    let mut remote = start_optimistic_node(&sites, "syd", delayed(150)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let mut requests = open_key(&remote, &key).await;
    wait_until_charged(&sites, &key, requests).await;
    for _ in 0..IN_FLIGHT_MAX {
        assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
        requests += 1;
    }
    assert!(remote.node.terminate().await.expect("node stops").success());
    assert_eq!(sites.charged(&key.id).await, requests);
}
