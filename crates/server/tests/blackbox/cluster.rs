//! The counter store as a cluster, and as a primary with a replica: faults and moves under load, and the books of every key afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::Scope;
use testkit::node::Env;
use testkit::{Caller, Cluster, House, HouseOptions, Redis, RedisOptions, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinSet;

use crate::race::{remaining, storm, tally};
use crate::round_trip::issue_all;
use crate::shared::{fresh_key, patient};

const LOOKUP: &str = "/api/v1/ip";
const NODES: usize = 2;
const KEYS: usize = 200;
const WORKERS: usize = 10;
/// 200 requests a second in all; no key comes near its burst limit.
const PACE: Duration = Duration::from_millis(50);
const DAILY: u64 = 10_000;
/// A sixteenth of all slots.
const MOVED: u16 = 1_024;

/// What a caller may be answered while the owner of its key is away.
const WHILE_AWAY: [u16; 2] = [200, 500];
/// From the fault, or from the promotion that only a person can make, until every request is answered again.
const HEAL_MAX: Duration = Duration::from_secs(5);
/// What may be lost of a key's count with a primary: what its replica had not heard yet and no node had rolled up.
const LOST_MAX: u64 = 2;

/// What became of one request.
struct Outcome {
    /// When it was answered.
    at: Instant,
    key: usize,
    status: u16,
}

/// Callers on all nodes, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    workers: JoinSet<Vec<Outcome>>,
}

impl Load {
    fn start(house: &House, keys: &[String]) -> Self {
        let (keys, stop) = (Arc::<[String]>::from(keys), Arc::new(AtomicBool::new(false)));
        let mut workers = JoinSet::new();
        for (worker, node) in house.nodes.iter().cycle().take(WORKERS).enumerate() {
            let (mut caller, keys, stop) = (node.caller(), Arc::clone(&keys), Arc::clone(&stop));
            workers.spawn(async move {
                let mut outcomes = Vec::new();
                let mut tick = tokio::time::interval(PACE);
                for key in (0..keys.len()).skip(worker).step_by(WORKERS).cycle() {
                    tick.tick().await;
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    let status = ask(&mut caller, &keys[key]).await.0;
                    outcomes.push(Outcome { at: Instant::now(), key, status });
                }
                outcomes
            });
        }
        Self { stop, workers }
    }

    async fn end(self) -> Vec<Outcome> {
        self.stop.store(true, Ordering::Release);
        self.workers.join_all().await.into_iter().flatten().collect()
    }
}

/// A request's status, and how much of the day it leaves used.
async fn ask(caller: &mut Caller, key: &str) -> (u16, Option<u64>) {
    let reply = caller.get(LOOKUP, &[("authorization", &format!("Bearer {key}"))]).await.expect("an answer");
    let left = reply.header("x-ratelimit-remaining").and_then(|left| left.parse::<u64>().ok());
    (reply.status, left.map(|left| DAILY - left))
}

/// Checks each key's books: what was charged against what was answered. Returns how many charges were lost.
async fn audit(house: &House, keys: &[String], outcomes: &[Outcome], lost_max: u64) -> u64 {
    let mut caller = house.nodes[0].caller();
    let mut lost = 0;
    for (place, key) in keys.iter().enumerate() {
        let own = || outcomes.iter().filter(|outcome| outcome.key == place);
        let admitted = own().filter(|outcome| outcome.status == 200).count() as u64;
        let failed = own().count() as u64 - admitted;
        let (status, used) = ask(&mut caller, key).await;
        assert_eq!(status, 200, "a key that kept its limits");
        let charged = used.expect("a count") - 1;
        assert!(charged <= admitted + failed, "{charged} charged, {admitted} admitted, {failed} failed");
        assert!(charged + lost_max >= admitted, "{charged} charged, {admitted} admitted, {failed} failed");
        lost += admitted.saturating_sub(charged);
    }
    lost
}

/// How long after the fault the last request failed; nobody was refused for anything but the fault.
fn healed_after(outcomes: &[Outcome], fault: Instant) -> Duration {
    let odd = outcomes.iter().find(|outcome| !WHILE_AWAY.contains(&outcome.status));
    assert!(odd.is_none(), "answered {}", odd.map_or(0, |odd| odd.status));
    let early = outcomes.iter().filter(|outcome| outcome.status != 200 && outcome.at < fault).count();
    assert_eq!(early, 0, "failed before the fault");
    let last = outcomes.iter().filter(|outcome| outcome.status != 200).map(|outcome| outcome.at).max();
    last.map_or(Duration::ZERO, |last| last - fault)
}

#[expect(clippy::print_stdout, reason = "the figures are the point")]
fn told(what: &str, outcomes: &[Outcome], healed: Duration, lost: u64) {
    let failed = outcomes.iter().filter(|outcome| outcome.status != 200).count();
    println!("{what}: {} requests, {failed} failed, healed after {healed:.1?}, {lost} charges lost", outcomes.len());
}

async fn house(ledger: String) -> House {
    let mut env: Env = patient();
    env.insert("IPSEITY__LEDGER__URL".to_owned(), ledger);
    House::start(HouseOptions { nodes: NODES, env, ..HouseOptions::default() }).await.expect("a house")
}

async fn is_ready(house: &House) -> bool {
    for node in &house.nodes {
        if !Caller::new(node.ops()).get("/ready", &[]).await.is_ok_and(|reply| reply.status == 200) {
            return false;
        }
    }
    true
}

/// Answers of all keys, so that no node meets one for the first time during a fault.
async fn warm(house: &House, keys: &[String]) -> Vec<Outcome> {
    let load = Load::start(house, keys);
    tokio::time::sleep(PACE * u32::try_from(2 * KEYS / WORKERS).expect("a few")).await;
    load.end().await
}

struct Clustered {
    house: House,
    cluster: Cluster,
    keys: Vec<String>,
}

static CLUSTERED: OnceCell<Mutex<Clustered>> = OnceCell::const_new();

/// A turn in a house on a cluster, which is whole.
async fn turn() -> MutexGuard<'static, Clustered> {
    let start = async || {
        let cluster = Cluster::start().await.expect("a cluster");
        let house = house(cluster.url()).await;
        let keys = issue_all(&house).await;
        Mutex::new(Clustered { house, cluster, keys })
    };
    CLUSTERED.get_or_init(start).await.lock().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_exact() {
    let Clustered { house, .. } = &*turn().await;
    for _ in 0..3 {
        let issued = fresh_key(house, Scope::Ip).await;
        let replies = storm(house, LOOKUP, Some(issued.bearer()), 8).await;
        assert_eq!(tally(&replies), BTreeMap::from([(200, 300), (403, 99), (429, 1)]));
        assert_eq!(remaining(&replies), (9_700..10_000).collect());
        let row = format!("select count(*) from pauses where key_id = '{}'", issued.id);
        assert_eq!(house.postgres.psql("ipseity", &row).await.expect("a row"), "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_moved_under_load_change_no_answer_and_no_count() {
    let Clustered { house, cluster, keys } = &*turn().await;
    let keys = &keys[..KEYS];
    let load = Load::start(house, keys);
    // The second primary gives slots to the third, and gets some of them back.
    let first = *cluster.share(1).start();
    cluster.move_slots(first..=first + MOVED, 1, 2).await.expect("a move");
    cluster.move_slots(first..=first + MOVED / 2, 2, 1).await.expect("a move back");
    let outcomes = load.end().await;
    let failed = outcomes.iter().filter(|outcome| outcome.status != 200).count();
    assert_eq!(failed, 0, "of {}", outcomes.len());
    let lost = audit(house, keys, &outcomes, 0).await;
    told("slots moved", &outcomes, Duration::ZERO, lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_under_load() {
    let Clustered { house, cluster, keys } = &mut *turn().await;
    let keys = &keys[KEYS..2 * KEYS];
    let mut outcomes = warm(house, keys).await;
    let load = Load::start(house, keys);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fault = Instant::now();
    cluster.servers[0].kill9();
    tokio::time::sleep(HEAL_MAX + Duration::from_secs(1)).await;
    assert!(is_ready(house).await, "all nodes are ready again");
    outcomes.extend(load.end().await);
    let healed = healed_after(&outcomes, fault);
    let lost = audit(house, keys, &outcomes, LOST_MAX).await;
    told("a primary killed", &outcomes, healed, lost);
    assert!(healed <= HEAL_MAX, "healed after {healed:?}");
    cluster.servers[0].restart().await.expect("a server that comes back");
    cluster.whole().await.expect("a whole cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_promoted_by_hand_is_found_under_load() {
    let mut primary = Redis::start(RedisOptions::default()).await.expect("a server");
    let replica = Redis::start(RedisOptions::default()).await.expect("a server");
    replica.follow(&primary).await.expect("a replica in step");
    let house = house(format!("{},{}", primary.url(), replica.url())).await;
    let keys = &issue_all(&house).await[..KEYS];
    let mut outcomes = warm(&house, keys).await;
    let load = Load::start(&house, keys);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fault = Instant::now();
    primary.kill9();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let promoted = Instant::now();
    replica.promote().await.expect("a promotion");
    eventually("all nodes are ready again", HEAL_MAX, async || is_ready(&house).await).await.expect("a heal");
    tokio::time::sleep(Duration::from_secs(2)).await;
    outcomes.extend(load.end().await);
    let healed = healed_after(&outcomes, fault).saturating_sub(promoted - fault);
    let lost = audit(&house, keys, &outcomes, LOST_MAX).await;
    told("a replica promoted", &outcomes, healed, lost);
    assert!(healed <= HEAL_MAX, "healed after {healed:?}");
}
