//! Loss of Redis, PostgreSQL or a node: pauses, revocations and flushed counts survive.
//!
//! The tests run one at a time on one deployment, and each starts separate nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, TestClient, TestResponse, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::{JoinHandle, JoinSet};

use crate::fixture::{fresh_key, relaxed_timeouts};

const LOOKUP_PATH: &str = "/api/v1/ip";
/// How long a fail point delays a node, so that a command can overtake it.
const SLOW_FILL: &str = "fill-before-write=2500";

static DEPLOYMENT: OnceCell<Mutex<Deployment>> = OnceCell::const_new();

/// Locks the deployment, which has no node while PostgreSQL and Redis run. The nodes of the previous test were killed. Their
/// claims on a Redis that has restarted empty would count for 10 s.
async fn lock_deployment() -> MutexGuard<'static, Deployment> {
    let start = async || {
        let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
        Mutex::new(Deployment::start(options).await.expect("deployment starts"))
    };
    let deployment = DEPLOYMENT.get_or_init(start).await.lock().await;
    query_rows(&deployment, "delete from ledger_claims").await;
    deployment
}

async fn start_node_with_failpoints(deployment: &Deployment, failpoints: &str) -> Node {
    let env = Env::from([("IPSEITY_FAILPOINTS".to_owned(), failpoints.to_owned())]);
    deployment.start_node(&env).await.expect("node starts")
}

async fn lookup_with_key(caller: &mut TestClient, key: &IssuedKey) -> TestResponse {
    try_lookup(caller, key).await.expect("response arrives")
}

async fn try_lookup(caller: &mut TestClient, key: &IssuedKey) -> anyhow::Result<TestResponse> {
    caller.get(LOOKUP_PATH, &[("authorization", &key.bearer())]).await
}

/// Sends a request on a new connection in the background.
fn spawn_lookup(node: &Node, key: &IssuedKey) -> JoinHandle<anyhow::Result<TestResponse>> {
    let (mut caller, key) = (node.client(), key.clone());
    tokio::spawn(async move { try_lookup(&mut caller, &key).await })
}

/// Issues a key and pauses it with its 301st request.
async fn paused_key(deployment: &Deployment, node: &Node) -> IssuedKey {
    let (issued, mut caller) = (fresh_key(deployment, Scope::Ip).await, node.client());
    pause_key(&mut caller, &issued).await;
    issued
}

async fn pause_key(caller: &mut TestClient, issued: &IssuedKey) {
    for _ in 0..301 {
        match lookup_with_key(caller, issued).await.status {
            200 => {}
            429 => return,
            other => panic!("an active key returned {other}"),
        }
    }
    panic!("301 requests did not pause the key");
}

#[track_caller]
fn assert_paused(reply: &TestResponse) {
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert!(reply.text().contains("#paused-keys"), "{}", reply.text());
}

async fn query_rows(deployment: &Deployment, query: &str) -> String {
    deployment.postgres.psql("ipseity", query).await.expect("query succeeds")
}

async fn wait_until_held(node: &Node, point: &str) {
    eventually("a request is held", Duration::from_secs(20), async || {
        let log = node.log().expect("read the log");
        log.lines().any(|line| line.contains("delayed at failpoint") && line.contains(point))
    })
    .await
    .expect("request is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_survives_flushall() {
    let deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let paused = paused_key(&deployment, &node).await;
    deployment.redis.flushall().await.expect("flush Redis");
    assert_paused(&lookup_with_key(&mut node.client(), &paused).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_survives_loss_of_all_redis_data() {
    let mut deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let paused = paused_key(&deployment, &node).await;
    deployment.redis.kill9();
    std::fs::remove_file(deployment.redis.data_dir().join("dump.rdb")).ok();
    deployment.redis.restart().await.expect("Redis restarts");
    assert_paused(&lookup_with_key(&mut node.client(), &paused).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_survives_restore_of_an_older_redis_snapshot() {
    let mut deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, node.client());
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    deployment.redis.save_snapshot().await.expect("save a snapshot");
    pause_key(&mut caller, &issued).await;
    deployment.redis.restore_snapshot().await.expect("restore the snapshot");
    let kept = deployment.redis.dump_all().await.expect("read the data of Redis");
    assert!(String::from_utf8_lossy(&kept).contains(&format!(":k:{}", issued.id)), "the snapshot holds the record");
    assert_paused(&lookup_with_key(&mut caller, &issued).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_restored_from_postgres() {
    let deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, node.client());
    for _ in 0..50 {
        assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    }
    let used = format!("select admitted from usage where key_id = '{}'", issued.id);
    eventually("50 are flushed", Duration::from_secs(20), async || query_rows(&deployment, &used).await == "50")
        .await
        .expect("usage is flushed");
    deployment.redis.flushall().await.expect("flush Redis");
    let next = lookup_with_key(&mut caller, &issued).await;
    assert_eq!((next.status, next.header("x-ratelimit-remaining")), (200, Some("9949")));
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_row_is_written_after_its_node_dies() {
    let deployment = lock_deployment().await;
    let mut dying = start_node_with_failpoints(&deployment, "pause-before-insert=60000").await;
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, dying.client());
    for _ in 0..300 {
        assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    }
    let last = spawn_lookup(&dying, &issued);
    wait_until_held(&dying, "pause-before-insert").await;
    dying.kill9();
    assert!(last.await.expect("task does not panic").is_err(), "a stopped node responded to the 301st request");
    let evidence = format!(
        "select count(*), coalesce(sum((select sum(count) from unnest(counts) count)), 0) from pauses where key_id = '{}'",
        issued.id
    );
    assert_eq!(query_rows(&deployment, &evidence).await, "0|0", "the row is not written yet");
    let other = start_node_with_failpoints(&deployment, "").await;
    eventually("the row is written", Duration::from_secs(10), async || {
        query_rows(&deployment, &evidence).await == "1|301"
    })
    .await
    .expect("row is written");
    assert_paused(&lookup_with_key(&mut other.client(), &issued).await);
    deployment.redis.flushall().await.expect("flush Redis");
    assert_paused(&lookup_with_key(&mut other.client(), &issued).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_can_be_resumed_before_its_pause_is_recorded() {
    let deployment = lock_deployment().await;
    let (slow, other) = (
        start_node_with_failpoints(&deployment, "pause-before-insert=60000").await,
        start_node_with_failpoints(&deployment, "").await,
    );
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, slow.client());
    for _ in 0..300 {
        assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    }
    let last = spawn_lookup(&slow, &issued);
    wait_until_held(&slow, "pause-before-insert").await;
    deployment
        .cli(&["key", "resume", &issued.id])
        .await
        .expect("command runs")
        .ensure_success()
        .expect("resume the key");
    assert_eq!(lookup_with_key(&mut other.client(), &issued).await.status, 200);
    let evidence = format!("select count(*) from pauses where key_id = '{}'", issued.id);
    assert_eq!(query_rows(&deployment, &evidence).await, "1", "the resumed key stays recorded");
    last.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_during_postgres_outage_is_recorded_later() {
    let mut deployment = lock_deployment().await;
    let short_timeout = Env::from([("IPSEITY__STORE__TIMEOUT_MS".to_owned(), "500".to_owned())]);
    let node = deployment.start_node(&short_timeout).await.expect("node starts");
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, node.client());
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    deployment.postgres.kill9();
    pause_key(&mut caller, &issued).await;
    assert_paused(&lookup_with_key(&mut caller, &issued).await);
    deployment.postgres.restart().await.expect("PostgreSQL restarts");
    let row = format!("select count(*) from pauses where key_id = '{}'", issued.id);
    eventually("the row is written", Duration::from_secs(20), async || query_rows(&deployment, &row).await == "1")
        .await
        .expect("row is written");
    deployment.redis.flushall().await.expect("flush Redis");
    assert_paused(&lookup_with_key(&mut caller, &issued).await);
}

/// Delays a fill on one node while `change` is made to its key, whose record Redis has lost. Returns the delayed
/// response, then the next ones.
async fn change_during_fill(change: &[&str]) -> [TestResponse; 3] {
    let deployment = lock_deployment().await;
    let (slow, other) =
        (start_node_with_failpoints(&deployment, SLOW_FILL).await, start_node_with_failpoints(&deployment, "").await);
    let issued = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!(lookup_with_key(&mut other.client(), &issued).await.status, 200);
    deployment.redis.flushall().await.expect("flush Redis");
    let held_lookup = spawn_lookup(&slow, &issued);
    wait_until_held(&slow, "fill-before-write").await;
    deployment
        .cli(&[&["key"], change, &[&issued.id]].concat())
        .await
        .expect("command runs")
        .ensure_success()
        .expect("change succeeds");
    assert!(!held_lookup.is_finished(), "the machine is too slow: the command did not overtake the fill");
    let held_lookup = held_lookup.await.expect("task does not panic").expect("response arrives");
    [
        held_lookup,
        lookup_with_key(&mut slow.client(), &issued).await,
        lookup_with_key(&mut other.client(), &issued).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_fill_does_not_restore_a_deactivated_key() {
    for reply in change_during_fill(&["deactivate"]).await {
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains("#inactive-keys"), "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_fill_does_not_restore_a_deleted_key() {
    for reply in change_during_fill(&["delete", "--yes"]).await {
        assert_eq!(reply.status, 401, "{}", reply.text());
    }
}

/// Deactivates a key while Redis does not respond. The command succeeds with a warning.
async fn deactivate_without_redis(deployment: &Deployment, issued: &IssuedKey) {
    let output = deployment.cli(&["key", "deactivate", &issued.id]).await.expect("command runs");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.starts_with("warning: saved, but not in effect yet"), "{}", output.stderr);
    assert!(output.text().contains("is deactivated"), "{}", output.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_while_redis_hangs_applies_soon_after_it_recovers() {
    let mut deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, node.client());
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    deployment.redis.freeze();
    deactivate_without_redis(&deployment, &issued).await;
    deployment.redis.thaw();
    // Redis still has the active record, so only the outbox worker can apply the change.
    eventually("the outbox worker has applied the change", Duration::from_secs(10), async || {
        lookup_with_key(&mut caller, &issued).await.status == 403
    })
    .await
    .expect("request is rejected");
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 403);
    eventually("the outbox is empty", Duration::from_secs(10), async || {
        query_rows(&deployment, "select count(*) from outbox").await == "0"
    })
    .await
    .expect("outbox is empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_while_redis_is_down_applies_on_the_next_request() {
    let mut deployment = lock_deployment().await;
    let node = start_node_with_failpoints(&deployment, "").await;
    let (issued, mut caller) = (fresh_key(&deployment, Scope::Ip).await, node.client());
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 200);
    deployment.redis.save_snapshot().await.expect("save a snapshot");
    deployment.redis.kill9();
    deactivate_without_redis(&deployment, &issued).await;
    deployment.redis.restart().await.expect("Redis restarts with its snapshot");
    assert_eq!(lookup_with_key(&mut caller, &issued).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_node_finishes_open_requests_and_flushes_usage() {
    let deployment = lock_deployment().await;
    let mut node = start_node_with_failpoints(&deployment, SLOW_FILL).await;
    let email = "drain@example.com";
    deployment.create_account(email).await.expect("create an account");
    let mut keys = Vec::new();
    for _ in 0..8 {
        keys.push(deployment.issue_key(email, Scope::Ip).await.expect("issue a key"));
    }
    // The first use of a key is delayed. This request is in flight when the signal arrives; the others have started
    // long before.
    let held_key = keys.pop().expect("key exists");
    let request_count = Arc::new(AtomicUsize::new(0));
    let mut busy = JoinSet::new();
    for key in keys.clone() {
        let (mut caller, request_count) = (node.client(), Arc::clone(&request_count));
        busy.spawn(async move {
            let mut admitted = 0;
            while admitted < 300 {
                match try_lookup(&mut caller, &key).await {
                    Ok(reply) => assert_eq!(reply.status, 200, "{}", reply.text()),
                    // The connection ended with the node while no request was in flight on it.
                    Err(_) => break,
                }
                admitted += 1;
                request_count.fetch_add(1, Ordering::Relaxed);
            }
            (key.id, admitted)
        });
    }
    eventually("all keys are in use", Duration::from_secs(30), async || request_count.load(Ordering::Relaxed) >= 100)
        .await
        .expect("keys are in use");
    let held_before = node.log().expect("read the log").matches("delayed at failpoint").count();
    let held = spawn_lookup(&node, &held_key);
    eventually("a request is held", Duration::from_secs(20), async || {
        node.log().expect("read the log").matches("delayed at failpoint").count() > held_before
    })
    .await
    .expect("request is held");
    let status = node.terminate().await.expect("process exits");
    assert!(status.success(), "{status}");
    let held = held.await.expect("task does not panic").expect("response arrives");
    assert_eq!(held.status, 200, "the request in flight");
    let mut admitted_counts = busy.join_all().await;
    admitted_counts.push((held_key.id, 1));
    for (id, admitted) in admitted_counts {
        let used = query_rows(&deployment, &format!("select admitted from usage where key_id = '{id}'")).await;
        assert_eq!(used, admitted.to_string(), "flushed, and responded");
    }
}
