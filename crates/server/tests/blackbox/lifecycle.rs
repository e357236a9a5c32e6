//! A house over the years: backed up and restored, upgraded and rolled back, its counter store moved. What `docs/operations` says, done.
//!
//! `IPSEITY_OLD_BIN` names the program of the version before (`just lifecycle` builds it); without it, a node is replaced by its own kind.
//! `IPSEITY_LIFECYCLE_S` is the time that each step serves for.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::deployment::node::{Env, find_service_binary};
use ipseity_testkit::deployment::{DATABASE, LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{
    Deployment, DeploymentOptions, IssuedKey, Node, Postgres, PostgresOptions, Redis, RedisOptions, ReservedPort,
    StreamTestClient, TestDir, TestResponse, eventually,
};
use tokio::task::JoinSet;

use crate::fixture::{env_number, fresh_key, relaxed_timeouts};
use crate::restarts::{LoadStats, run_client};
use crate::round_trip::issue_1000_keys;

const WORKERS: usize = 10;
/// Between two requests of a worker.
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// Callers that go on until they are stopped, shared out to some listeners.
struct LifecycleLoad {
    workers: JoinSet<LoadStats>,
    stop: Arc<AtomicBool>,
}

impl LifecycleLoad {
    fn start(keys: &[String], listeners: &[SocketAddr]) -> Self {
        let (mut workers, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for (key_chunk, &server) in keys.chunks(keys.len() / WORKERS).zip(listeners.iter().cycle()) {
            let caller = StreamTestClient::new(server, StreamProtocol::Http11, None).expect("a caller");
            workers.spawn(run_client(caller, key_chunk.to_vec(), REQUEST_INTERVAL, Arc::clone(&stop)));
        }
        Self { workers, stop }
    }

    #[expect(clippy::print_stderr, reason = "the figures are the point")]
    async fn stop(self, name: &str) -> LoadStats {
        self.stop.store(true, Ordering::Release);
        let mut total = LoadStats::default();
        self.workers.join_all().await.into_iter().for_each(|stats| total.merge(stats));
        eprintln!("{}", total.summary(name));
        total
    }
}

/// Lets the house serve as it is.
async fn wait_one_step() {
    tokio::time::sleep(Duration::from_secs(env_number("IPSEITY_LIFECYCLE_S", 1).into())).await;
}

async fn lookup_with_key(node: &Node, key: &str) -> TestResponse {
    let bearer = format!("Bearer {key}");
    node.client().get("/api/v1/ip", &[("authorization", &bearer)]).await.expect("an answer")
}

async fn run_key_command(deployment: &Deployment, arguments: &[&str]) -> Vec<u8> {
    deployment.cli(&[&["key"], arguments].concat()).await.expect("a command").ensure_success().expect("a change").stdout
}

#[track_caller]
fn assert_refused(reply: &TestResponse, status: u16, anchor: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(anchor), "{}", reply.text());
}

/// One key of each kind, as callers left it.
struct KeysByState {
    used: IssuedKey,
    paused: IssuedKey,
    inactive: IssuedKey,
    deleted: IssuedKey,
    rotated: [IssuedKey; 2],
}

const USED_REQUESTS: u32 = 25;

impl KeysByState {
    async fn create(deployment: &Deployment) -> Self {
        let node = &deployment.nodes[0];
        let mut keys = Vec::new();
        for _ in 0..5 {
            keys.push(fresh_key(deployment, Scope::Full).await);
        }
        let [used, paused, inactive, deleted, old] = <[IssuedKey; 5]>::try_from(keys).ok().expect("five keys");
        for _ in 0..USED_REQUESTS {
            assert_eq!(lookup_with_key(node, &used.key).await.status, 200);
        }
        for expected in [200; 300].into_iter().chain([429]) {
            assert_eq!(lookup_with_key(node, &paused.key).await.status, expected);
        }
        run_key_command(deployment, &["deactivate", &inactive.id]).await;
        run_key_command(deployment, &["delete", &deleted.id]).await;
        let rotated = run_key_command(deployment, &["rotate", &old.id, "--json"]).await;
        let new: IssuedKey = serde_json::from_slice(&rotated).expect("a key");
        Self { used, paused, inactive, deleted, rotated: [old, new] }
    }

    async fn assert_unchanged(&self, node: &Node) {
        let used = lookup_with_key(node, &self.used.key).await;
        let left = (10_000 - USED_REQUESTS - 1).to_string();
        assert_eq!((used.status, used.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
        assert_refused(&lookup_with_key(node, &self.paused.key).await, 403, "#paused-keys");
        assert_refused(&lookup_with_key(node, &self.inactive.key).await, 403, "#inactive-keys");
        assert_eq!(lookup_with_key(node, &self.deleted.key).await.status, 401);
        for key in &self.rotated {
            assert_eq!(lookup_with_key(node, &key.key).await.status, 200, "both secrets hold");
        }
    }
}

async fn admitted_count(postgres: &Postgres, id: &str) -> u32 {
    let query = format!("select coalesce(sum(admitted), 0) from usage where key_id = '{id}'");
    postgres.psql(DATABASE, &query).await.expect("rows").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_answers_the_same_keys() {
    let deployment = Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
        .await
        .expect("a house");
    let load_keys = issue_1000_keys(&deployment).await;
    let load = LifecycleLoad::start(&load_keys, &[deployment.nodes[0].http()]);
    let keys_by_state = KeysByState::create(&deployment).await;
    eventually("the counts are rolled up", Duration::from_secs(20), async || {
        admitted_count(&deployment.postgres, &keys_by_state.used.id).await == USED_REQUESTS
    })
    .await
    .expect("a roll-up");
    let folder = TestDir::create().expect("a folder");
    let dump = folder.path().join("ipseity.dump");
    deployment.postgres.back_up(DATABASE, &dump).await.expect("a dump");
    let stats = load.stop("callers during the dump").await;
    assert_eq!(stats.failed_count(), 0);

    let postgres = Postgres::start(PostgresOptions::default()).await.expect("an empty cluster");
    postgres.restore(DATABASE, &dump).await.expect("a restored database");
    let redis = Redis::start(RedisOptions::default()).await.expect("an empty Redis");
    let stores = [(STORE_URL_ENV, postgres.url(DATABASE)), (LEDGER_URL_ENV, redis.url())];
    let node = deployment.start_node(&stores.map(|(name, url)| (name.to_owned(), url)).into()).await.expect("a node");
    keys_by_state.assert_unchanged(&node).await;
    for key in load_keys.iter().step_by(load_keys.len() / 20) {
        let before = admitted_count(&postgres, key_id_of(key)).await;
        let reply = lookup_with_key(&node, key).await;
        let left = (10_000 - before - 1).to_string();
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
    }
}

/// The ten characters after `ips_`.
fn key_id_of(key: &str) -> &str {
    &key[4..14]
}

/// A place that callers know, whose nodes come and go.
struct SharedListener {
    port: ReservedPort,
    socket: TcpListener,
}

impl SharedListener {
    fn open() -> Self {
        let port = ReservedPort::reserve_free().expect("a port");
        let socket = TcpListener::bind(port.address()).expect("a socket");
        Self { port, socket }
    }

    async fn start_node(&self, deployment: &Deployment) -> Node {
        let env = Env::from([("IPSEITY__EDGE__HTTP".to_owned(), self.port.address().to_string())]);
        deployment.start_node_with_sockets(&env, &[&self.socket]).await.expect("a node")
    }
}

/// Replaces the nodes one by one; between them, old and new serve side by side.
async fn replace_nodes(deployment: &Deployment, listeners: &[SharedListener; 2], nodes: &mut [Node; 2]) {
    for (listener, node) in listeners.iter().zip(nodes) {
        let next = listener.start_node(deployment).await;
        let ended = node.terminate().await.expect("an end");
        assert!(ended.success(), "{}", node.log().expect("a log"));
        *node = next;
        wait_one_step().await;
    }
}

/// Holds the books against what callers were told: everything that was answered is rolled up, once.
async fn assert_usage_recorded(deployment: &Deployment, stats: &LoadStats) {
    let recorded = deployment.postgres.psql(DATABASE, "select sum(admitted) from usage").await.expect("rows");
    assert_eq!(recorded, stats.answered.to_string(), "admitted, and answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_rollback_under_load_lose_no_request() {
    let new = find_service_binary().expect("the program");
    let old = std::env::var_os("IPSEITY_OLD_BIN").map_or_else(|| new.clone(), PathBuf::from);
    let options = DeploymentOptions {
        program: Some(old.clone()),
        nodes: 0,
        env: relaxed_timeouts(),
        ..DeploymentOptions::default()
    };
    let mut deployment = Deployment::start(options).await.expect("a house");
    let keys = issue_1000_keys(&deployment).await;
    let listeners = [SharedListener::open(), SharedListener::open()];
    let mut nodes = [listeners[0].start_node(&deployment).await, listeners[1].start_node(&deployment).await];
    let load = LifecycleLoad::start(&keys, &listeners.each_ref().map(|listener| listener.port.address()));
    wait_one_step().await;

    deployment.use_program(&new);
    deployment.cli(&["migrate"]).await.expect("a command").ensure_success().expect("a new schema");
    wait_one_step().await;
    replace_nodes(&deployment, &listeners, &mut nodes).await;
    deployment.use_program(&old);
    replace_nodes(&deployment, &listeners, &mut nodes).await;

    let stats = load.stop("callers during upgrade and roll-back").await;
    assert_eq!(stats.failed_count(), 0);
    for node in &mut nodes {
        node.terminate().await.expect("an end");
    }
    assert_usage_recorded(&deployment, &stats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_binary_refuses_to_migrate_a_newer_schema() {
    let deployment =
        Deployment::start(DeploymentOptions { nodes: 0, ..DeploymentOptions::default() }).await.expect("a house");
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (9999, 'of a later version', true, '\\x00', 0)";
    deployment.postgres.psql(DATABASE, newer).await.expect("a row");
    let refused = deployment.cli(&["migrate"]).await.expect("a command");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("failed to update the schema") && refused.stderr.contains("9999"),
        "{}",
        refused.stderr
    );
    deployment.start_node(&Env::new()).await.expect("a node on a newer schema");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_failover_under_load_records_every_charge() {
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("a house");
    let keys = issue_1000_keys(&deployment).await;
    let next = Redis::start(RedisOptions::default()).await.expect("a second Redis");
    next.replicate_from(&deployment.redis).await.expect("a replica");
    let both = format!("{},{}", deployment.redis.url(), next.url());
    let mut node = deployment.start_node(&Env::from([(LEDGER_URL_ENV.to_owned(), both)])).await.expect("a node");
    let load = LifecycleLoad::start(&keys, &[node.http()]);
    wait_one_step().await;

    let port = next.address().port().to_string();
    deployment.redis.run_command(&["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "5000"]).await.expect("a failover");
    eventually("the new server is the primary", Duration::from_secs(10), async || {
        next.info("replication").await.is_ok_and(|info| info.contains("role:master"))
    })
    .await
    .expect("a new primary");
    wait_one_step().await;
    deployment.redis.kill9();
    wait_one_step().await;

    let stats = load.stop("callers while Redis moved").await;
    assert_eq!(stats.failed_count(), 0);
    node.terminate().await.expect("an end");
    assert_usage_recorded(&deployment, &stats).await;
}
