//! A change made through one node's writer is in force on the very next request to another node.
//!
//! `IPSEITY_CHANGES` says how many changes are measured; 1,000 if absent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::Scope;
use testkit::{Caller, House, Issued};
use tokio::task::JoinSet;

use crate::race::three_nodes;

const WORKERS: usize = 8;
const LOOKUP: &str = "/api/v1/ip";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Deactivate,
    Reactivate,
    Pause,
    Resume,
    Delete,
}

/// What each key goes through, again with the next one. Deactivated twice as often as it is paused, which costs 300 requests.
const LIFE: [Change; 9] = [
    Change::Deactivate,
    Change::Reactivate,
    Change::Pause,
    Change::Resume,
    Change::Deactivate,
    Change::Reactivate,
    Change::Deactivate,
    Change::Reactivate,
    Change::Delete,
];

impl Change {
    /// The status, and the section of the documentation, of the next answer.
    const fn expected(self) -> (u16, &'static str) {
        match self {
            Self::Deactivate => (403, "#inactive-keys"),
            Self::Reactivate | Self::Resume => (200, ""),
            Self::Pause => (403, "#paused-keys"),
            Self::Delete => (401, "#invalid_api_key"),
        }
    }

    /// Makes the change through node A; `false` when node A itself did not know the key as it was.
    async fn make(self, house: &House, issued: &Issued, node_a: &mut Caller) -> bool {
        let verb = match self {
            Self::Deactivate => "deactivate",
            Self::Reactivate => "reactivate",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::Pause => return pause(issued, node_a).await,
        };
        let made = house.cli(&["key", verb, &issued.id]).await.expect("a command");
        assert!(made.is_success() && made.stderr.is_empty(), "key {verb} says: {}", made.stderr);
        true
    }
}

/// Asks until the key is paused: 301 requests, less those that node B answered within this minute.
async fn pause(issued: &Issued, node_a: &mut Caller) -> bool {
    let bearer = issued.bearer();
    for _ in 0..301 {
        match node_a.get(LOOKUP, &[("authorization", &bearer)]).await.expect("an answer").status {
            200 => {}
            429 => return true,
            _ => return false,
        }
    }
    panic!("301 requests did not pause the key");
}

/// Works through keys of its own until enough changes are made; returns the changes and the stale answers by kind.
async fn work(house: &'static House, number: usize, left: Arc<AtomicUsize>) -> BTreeMap<Change, (usize, usize)> {
    let (mut node_a, mut node_b) = (house.nodes[0].caller(), house.nodes[1].caller());
    let account = format!("worker-{number}@example.com");
    house.account(&account).await.expect("an account");
    let mut made: BTreeMap<Change, (usize, usize)> = BTreeMap::new();
    loop {
        let issued = house.issue(&account, Scope::Ip).await.expect("a key");
        let bearer = issued.bearer();
        let known = node_b.get(LOOKUP, &[("authorization", &bearer)]).await.expect("an answer");
        assert_eq!(known.status, 200, "a new key");
        for change in LIFE {
            if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
                return made;
            }
            let fresh = change.make(house, &issued, &mut node_a).await;
            let next = node_b.get(LOOKUP, &[("authorization", &bearer)]).await.expect("an answer");
            let (status, section) = change.expected();
            let (count, stale) = made.entry(change).or_default();
            *count += 1;
            *stale += usize::from(!fresh || next.status != status || !next.text().contains(section));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is what this test is for")]
async fn a_change_through_one_node_is_in_force_on_the_next_request_to_another() {
    let house = three_nodes().await;
    let changes = std::env::var("IPSEITY_CHANGES").map_or(1_000, |text| text.parse().expect("a number of changes"));
    let left = Arc::new(AtomicUsize::new(changes));
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(work(house, number, Arc::clone(&left)));
    }
    let mut made: BTreeMap<Change, (usize, usize)> = BTreeMap::new();
    for (change, (count, stale)) in workers.join_all().await.into_iter().flatten() {
        let sum = made.entry(change).or_default();
        *sum = (sum.0 + count, sum.1 + stale);
    }
    let (count, stale) = made.values().fold((0, 0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1));
    eprintln!("next request: {count} changes, {stale} stale answers; (changes, stale) by kind: {made:?}");
    assert_eq!((count, stale), (changes, 0));
}
