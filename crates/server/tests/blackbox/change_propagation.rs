//! A change through one node applies to the next request on another node.
//!
//! `IPSEITY_CHANGES` sets the number of measured changes; 1,000 by default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, IssuedKey, TestClient};
use tokio::task::JoinSet;

use crate::race::three_node_deployment;

const WORKERS: usize = 8;
const LOOKUP_PATH: &str = "/api/v1/ip";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyTransition {
    Deactivate,
    Reactivate,
    Pause,
    Resume,
    Delete,
}

/// The states each key goes through, repeatedly. A pause costs 300 requests, so a key is deactivated twice as often.
const KEY_LIFECYCLE: [KeyTransition; 9] = [
    KeyTransition::Deactivate,
    KeyTransition::Reactivate,
    KeyTransition::Pause,
    KeyTransition::Resume,
    KeyTransition::Deactivate,
    KeyTransition::Reactivate,
    KeyTransition::Deactivate,
    KeyTransition::Reactivate,
    KeyTransition::Delete,
];

impl KeyTransition {
    /// Status and docs anchor of the next response.
    const fn expected_response(self) -> (u16, &'static str) {
        match self {
            Self::Deactivate => (403, "#inactive-keys"),
            Self::Reactivate | Self::Resume => (200, ""),
            Self::Pause => (403, "#paused-keys"),
            Self::Delete => (401, "#invalid_api_key"),
        }
    }

    /// Applies the change through node A. Returns false if node A did not know the key's state.
    async fn apply(self, deployment: &Deployment, issued: &IssuedKey, node_a: &mut TestClient) -> bool {
        let verb = match self {
            Self::Deactivate => "deactivate",
            Self::Reactivate => "reactivate",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::Pause => return pause_key(issued, node_a).await,
        };
        let confirmation: &[&str] = if matches!(self, Self::Delete) { &["--yes"] } else { &[] };
        let arguments = [&["key", verb, issued.id.as_str()], confirmation].concat();
        let output = deployment.cli(&arguments).await.expect("command runs");
        assert!(output.is_success() && output.stderr.is_empty(), "key {verb}: {}", output.stderr);
        true
    }
}

/// Sends requests until the key is paused: 301 minus those that node B admitted in the same window.
async fn pause_key(issued: &IssuedKey, node_a: &mut TestClient) -> bool {
    let bearer = issued.bearer();
    for _ in 0..301 {
        match node_a.get(LOOKUP_PATH, &[("authorization", &bearer)]).await.expect("response arrives").status {
            200 => {}
            429 => return true,
            _ => return false,
        }
    }
    panic!("301 requests did not pause the key");
}

/// Changes its keys until enough changes are made; returns changes and stale responses by kind.
async fn run_worker(
    deployment: &'static Deployment,
    number: usize,
    left: Arc<AtomicUsize>,
) -> BTreeMap<KeyTransition, (usize, usize)> {
    let (mut node_a, mut node_b) = (deployment.nodes[0].client(), deployment.nodes[1].client());
    let account = format!("worker-{number}@example.com");
    deployment.create_account(&account).await.expect("create an account");
    let mut counts: BTreeMap<KeyTransition, (usize, usize)> = BTreeMap::new();
    loop {
        let issued = deployment.issue_key(&account, Scope::Ip).await.expect("issue a key");
        let bearer = issued.bearer();
        let known = node_b.get(LOOKUP_PATH, &[("authorization", &bearer)]).await.expect("response arrives");
        assert_eq!(known.status, 200, "a new key");
        for change in KEY_LIFECYCLE {
            if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
                return counts;
            }
            let is_current = change.apply(deployment, &issued, &mut node_a).await;
            let next = node_b.get(LOOKUP_PATH, &[("authorization", &bearer)]).await.expect("response arrives");
            let (status, section) = change.expected_response();
            let (count, stale) = counts.entry(change).or_default();
            *count += 1;
            *stale += usize::from(!is_current || next.status != status || !next.text().contains(section));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is the result of this test")]
async fn key_change_applies_to_the_next_request_on_any_node() {
    let deployment = three_node_deployment().await;
    let changes = std::env::var("IPSEITY_CHANGES").map_or(1_000, |text| text.parse().expect("valid number"));
    let left = Arc::new(AtomicUsize::new(changes));
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(run_worker(deployment, number, Arc::clone(&left)));
    }
    let mut counts: BTreeMap<KeyTransition, (usize, usize)> = BTreeMap::new();
    for (change, (count, stale)) in workers.join_all().await.into_iter().flatten() {
        let sum = counts.entry(change).or_default();
        *sum = (sum.0 + count, sum.1 + stale);
    }
    let (count, stale) = counts.values().fold((0, 0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1));
    eprintln!("next request: {count} changes, {stale} stale responses; (changes, stale) by kind: {counts:?}");
    assert_eq!((count, stale), (changes, 0));
}
