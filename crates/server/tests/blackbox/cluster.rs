//! Redis as a cluster, and as a primary with a replica: failover and resharding under load, and the counts of every key
//! afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::{Env, Node};
use ipseity_testkit::{Deployment, DeploymentOptions, Redis, RedisCluster, RedisOptions, TestClient, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinSet;

use crate::fixture::{fresh_key, relaxed_timeouts};
use crate::race::{count_statuses, distinct_remaining, send_concurrently};
use crate::round_trip::issue_1000_keys;

const LOOKUP_PATH: &str = "/api/v1/ip";
const NODES: usize = 2;
const KEYS: usize = 200;
const WORKERS: usize = 10;
/// 200 requests per second in total, so that no key reaches its burst limit.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
const DAILY_LIMIT: u64 = 10_000;
/// A sixteenth of all slots.
const MOVED_SLOTS: u16 = 1_024;

/// Allowed statuses while the primary of a key is down.
const STATUSES_DURING_FAILOVER: [u16; 2] = [200, 500];
/// Maximum time from the fault, or from a manual promotion, until every request succeeds again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Charges per key that may be lost with a primary: those not yet replicated and not yet flushed by a node.
const LOST_CHARGES_MAX: u64 = 2;

/// Result of one request.
struct ClusterOutcome {
    /// When the response arrived.
    received_at: Instant,
    key: usize,
    status: u16,
}

/// Clients on all nodes that send requests until they are stopped.
struct ClusterLoad {
    stop: Arc<AtomicBool>,
    workers: JoinSet<Vec<ClusterOutcome>>,
}

impl ClusterLoad {
    fn start(deployment: &Deployment, keys: &[String]) -> Self {
        let (keys, stop) = (Arc::<[String]>::from(keys), Arc::new(AtomicBool::new(false)));
        let mut workers = JoinSet::new();
        for (worker, node) in deployment.nodes.iter().cycle().take(WORKERS).enumerate() {
            let (mut caller, keys, stop) = (node.client(), Arc::clone(&keys), Arc::clone(&stop));
            workers.spawn(async move {
                let mut outcomes = Vec::new();
                let mut tick = tokio::time::interval(REQUEST_INTERVAL);
                for key in (0..keys.len()).skip(worker).step_by(WORKERS).cycle() {
                    tick.tick().await;
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    let status = lookup_usage(&mut caller, &keys[key]).await.0;
                    outcomes.push(ClusterOutcome { received_at: Instant::now(), key, status });
                }
                outcomes
            });
        }
        Self { stop, workers }
    }

    async fn stop(self) -> Vec<ClusterOutcome> {
        self.stop.store(true, Ordering::Release);
        self.workers.join_all().await.into_iter().flatten().collect()
    }
}

/// Status of a request, and the usage of the day after it.
async fn lookup_usage(caller: &mut TestClient, key: &str) -> (u16, Option<u64>) {
    let reply =
        caller.get(LOOKUP_PATH, &[("authorization", &format!("Bearer {key}"))]).await.expect("response arrives");
    let left = reply.header("x-ratelimit-remaining").and_then(|left| left.parse::<u64>().ok());
    (reply.status, left.map(|left| DAILY_LIMIT - left))
}

/// Compares the charges of each key with its responses. Returns the number of lost charges.
async fn audit_charges(deployment: &Deployment, keys: &[String], outcomes: &[ClusterOutcome], lost_max: u64) -> u64 {
    let mut caller = deployment.nodes[0].client();
    let mut lost = 0;
    for (index, key) in keys.iter().enumerate() {
        let key_outcomes = || outcomes.iter().filter(|outcome| outcome.key == index);
        let admitted = key_outcomes().filter(|outcome| outcome.status == 200).count() as u64;
        let failed = key_outcomes().count() as u64 - admitted;
        let (status, used) = lookup_usage(&mut caller, key).await;
        assert_eq!(status, 200, "a key within its limits");
        let charged = used.expect("usage is reported") - 1;
        assert!(charged <= admitted + failed, "{charged} charged, {admitted} admitted, {failed} failed");
        assert!(charged + lost_max >= admitted, "{charged} charged, {admitted} admitted, {failed} failed");
        lost += admitted.saturating_sub(charged);
    }
    lost
}

/// Time from the fault to the last failed request. No request may fail for another reason.
fn recovery_time(outcomes: &[ClusterOutcome], fault: Instant) -> Duration {
    let unexpected = outcomes.iter().find(|outcome| !STATUSES_DURING_FAILOVER.contains(&outcome.status));
    assert!(unexpected.is_none(), "status {}", unexpected.map_or(0, |unexpected| unexpected.status));
    let early = outcomes.iter().filter(|outcome| outcome.status != 200 && outcome.received_at < fault).count();
    assert_eq!(early, 0, "requests failed before the fault");
    let last = outcomes.iter().filter(|outcome| outcome.status != 200).map(|outcome| outcome.received_at).max();
    last.map_or(Duration::ZERO, |last| last - fault)
}

#[expect(clippy::print_stdout, reason = "the figures are printed")]
fn print_summary(what: &str, outcomes: &[ClusterOutcome], recovered_after: Duration, lost: u64) {
    let failed = outcomes.iter().filter(|outcome| outcome.status != 200).count();
    println!(
        "{what}: {} requests, {failed} failed, recovered after {recovered_after:.1?}, {lost} charges lost",
        outcomes.len()
    );
}

async fn start_deployment(redis_url: String) -> Deployment {
    let mut env: Env = relaxed_timeouts();
    env.insert("IPSEITY__LEDGER__URL".to_owned(), redis_url);
    Deployment::start(DeploymentOptions { nodes: NODES, env, ..DeploymentOptions::default() })
        .await
        .expect("deployment starts")
}

/// Waits until all nodes use Redis again and have reconciled what they admitted without it. `/ready` does not say this: it
/// is 200 during an outage too.
async fn wait_until_reconciled(deployment: &Deployment) {
    let is_reconciled = async |node: &Node| {
        let metrics = node.metrics().await.unwrap_or_default();
        ["ipseity_ledger_degraded 0", "ipseity_pending_charges 0"]
            .iter()
            .all(|line| metrics.lines().any(|l| l == *line))
    };
    for node in &deployment.nodes {
        let reconciled = eventually("the node has reconciled its charges", RECOVERY_TIMEOUT, || is_reconciled(node));
        reconciled.await.expect("cluster recovers");
    }
}

/// Uses all keys once, so that every node knows them before a fault.
async fn warm_up(deployment: &Deployment, keys: &[String]) -> Vec<ClusterOutcome> {
    let load = ClusterLoad::start(deployment, keys);
    tokio::time::sleep(REQUEST_INTERVAL * u32::try_from(2 * KEYS / WORKERS).expect("number fits into u32")).await;
    load.stop().await
}

struct ClusterFixture {
    deployment: Deployment,
    cluster: RedisCluster,
    keys: Vec<String>,
}

static FIXTURE: OnceCell<Mutex<ClusterFixture>> = OnceCell::const_new();

/// Locks the deployment on a healthy cluster.
async fn lock_fixture() -> MutexGuard<'static, ClusterFixture> {
    let start = async || {
        let cluster = RedisCluster::start().await.expect("cluster starts");
        let deployment = start_deployment(cluster.url()).await;
        let keys = issue_1000_keys(&deployment).await;
        Mutex::new(ClusterFixture { deployment, cluster, keys })
    };
    FIXTURE.get_or_init(start).await.lock().await
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exact_on_a_redis_cluster() {
    let ClusterFixture { deployment, .. } = &*lock_fixture().await;
    for _ in 0..3 {
        let issued = fresh_key(deployment, Scope::Ip).await;
        let replies = send_concurrently(deployment, LOOKUP_PATH, Some(issued.bearer()), 8).await;
        assert_eq!(count_statuses(&replies), BTreeMap::from([(200, 300), (403, 99), (429, 1)]));
        assert_eq!(distinct_remaining(&replies), (9_700..10_000).collect());
        let row = format!("select count(*) from pauses where key_id = '{}'", issued.id);
        assert_eq!(deployment.postgres.psql("ipseity", &row).await.expect("query returns a row"), "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_migration_under_load_loses_no_charge() {
    let ClusterFixture { deployment, cluster, keys } = &*lock_fixture().await;
    let keys = &keys[..KEYS];
    let load = ClusterLoad::start(deployment, keys);
    // The second primary gives slots to the third and gets some back.
    let first = *cluster.initial_slots(1).start();
    cluster.move_slots(first..=first + MOVED_SLOTS, 1, 2).await.expect("slots move");
    cluster.move_slots(first..=first + MOVED_SLOTS / 2, 2, 1).await.expect("slots move back");
    let outcomes = load.stop().await;
    let failed = outcomes.iter().filter(|outcome| outcome.status != 200).count();
    assert_eq!(failed, 0, "of {}", outcomes.len());
    let lost = audit_charges(deployment, keys, &outcomes, 0).await;
    print_summary("slots moved", &outcomes, Duration::ZERO, lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_failover_under_load_recovers() {
    let ClusterFixture { deployment, cluster, keys } = &mut *lock_fixture().await;
    let keys = &keys[KEYS..2 * KEYS];
    let mut outcomes = warm_up(deployment, keys).await;
    let load = ClusterLoad::start(deployment, keys);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fault = Instant::now();
    cluster.servers[0].kill9();
    tokio::time::sleep(RECOVERY_TIMEOUT + Duration::from_secs(1)).await;
    outcomes.extend(load.stop().await);
    wait_until_reconciled(deployment).await;
    let recovered_after = recovery_time(&outcomes, fault);
    let lost = audit_charges(deployment, keys, &outcomes, LOST_CHARGES_MAX).await;
    print_summary("primary killed", &outcomes, recovered_after, lost);
    assert!(recovered_after <= RECOVERY_TIMEOUT, "recovered after {recovered_after:?}");
    cluster.servers[0].restart().await.expect("server restarts");
    cluster.wait_until_healthy().await.expect("cluster is healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn manually_promoted_replica_is_found_under_load() {
    let mut primary = Redis::start(RedisOptions::default()).await.expect("server starts");
    let replica = Redis::start(RedisOptions::default()).await.expect("server starts");
    replica.replicate_from(&primary).await.expect("replica is in sync");
    let deployment = start_deployment(format!("{},{}", primary.url(), replica.url())).await;
    let keys = &issue_1000_keys(&deployment).await[..KEYS];
    let mut outcomes = warm_up(&deployment, keys).await;
    let load = ClusterLoad::start(&deployment, keys);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fault = Instant::now();
    primary.kill9();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let promoted = Instant::now();
    replica.promote().await.expect("replica is promoted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    outcomes.extend(load.stop().await);
    wait_until_reconciled(&deployment).await;
    let recovered_after = recovery_time(&outcomes, fault).saturating_sub(promoted - fault);
    let lost = audit_charges(&deployment, keys, &outcomes, LOST_CHARGES_MAX).await;
    print_summary("replica promoted", &outcomes, recovered_after, lost);
    assert!(recovered_after <= RECOVERY_TIMEOUT, "recovered after {recovered_after:?}");
}
