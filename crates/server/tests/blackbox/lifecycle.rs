//! The procedures of `docs/operations`: backup and restore, upgrade and rollback, and a Redis failover.
//!
//! `IPSEITY_OLD_BIN` is the binary of the previous version (`just lifecycle` builds it); without it, nodes are replaced by the same version.
//! `IPSEITY_LIFECYCLE_S` is the duration of each step.

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
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// Clients on several listeners that send requests until they are stopped.
struct LifecycleLoad {
    workers: JoinSet<LoadStats>,
    stop: Arc<AtomicBool>,
}

impl LifecycleLoad {
    fn start(keys: &[String], listeners: &[SocketAddr]) -> Self {
        let (mut workers, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for (key_chunk, &server) in keys.chunks(keys.len() / WORKERS).zip(listeners.iter().cycle()) {
            let caller = StreamTestClient::new(server, StreamProtocol::Http11, None).expect("client");
            workers.spawn(run_client(caller, key_chunk.to_vec(), REQUEST_INTERVAL, Arc::clone(&stop)));
        }
        Self { workers, stop }
    }

    #[expect(clippy::print_stderr, reason = "prints the figures for review")]
    async fn stop(self, name: &str) -> LoadStats {
        self.stop.store(true, Ordering::Release);
        let mut total = LoadStats::default();
        self.workers.join_all().await.into_iter().for_each(|stats| total.merge(stats));
        eprintln!("{}", total.summary(name));
        total
    }
}

/// Lets the deployment serve for the duration of a step.
async fn wait_one_step() {
    tokio::time::sleep(Duration::from_secs(env_number("IPSEITY_LIFECYCLE_S", 1).into())).await;
}

async fn lookup_with_key(node: &Node, key: &str) -> TestResponse {
    let bearer = format!("Bearer {key}");
    node.client().get("/api/v1/ip", &[("authorization", &bearer)]).await.expect("response")
}

async fn run_key_command(deployment: &Deployment, arguments: &[&str]) -> Vec<u8> {
    deployment
        .cli(&[&["key"], arguments].concat())
        .await
        .expect("run command")
        .ensure_success()
        .expect("command succeeds")
        .stdout
}

#[track_caller]
fn assert_rejected(reply: &TestResponse, status: u16, anchor: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(anchor), "{}", reply.text());
}

/// A key in each state.
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
        run_key_command(deployment, &["delete", &deleted.id, "--yes"]).await;
        let rotated = run_key_command(deployment, &["rotate", &old.id, "--json"]).await;
        let new: IssuedKey = serde_json::from_slice(&rotated).expect("valid JSON");
        Self { used, paused, inactive, deleted, rotated: [old, new] }
    }

    async fn assert_unchanged(&self, node: &Node) {
        let used = lookup_with_key(node, &self.used.key).await;
        let left = (10_000 - USED_REQUESTS - 1).to_string();
        assert_eq!((used.status, used.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
        assert_rejected(&lookup_with_key(node, &self.paused.key).await, 403, "#paused-keys");
        assert_rejected(&lookup_with_key(node, &self.inactive.key).await, 403, "#inactive-keys");
        assert_eq!(lookup_with_key(node, &self.deleted.key).await.status, 401);
        for key in &self.rotated {
            assert_eq!(lookup_with_key(node, &key.key).await.status, 200, "both secrets work");
        }
    }
}

async fn admitted_count(postgres: &Postgres, id: &str) -> u32 {
    let query = format!("select coalesce(sum(admitted), 0) from usage where key_id = '{id}'");
    postgres.psql(DATABASE, &query).await.expect("run SQL").parse().expect("number")
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_serves_the_same_keys() {
    let deployment = Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
        .await
        .expect("start deployment");
    let load_keys = issue_1000_keys(&deployment).await;
    let load = LifecycleLoad::start(&load_keys, &[deployment.nodes[0].http()]);
    let keys_by_state = KeysByState::create(&deployment).await;
    eventually("usage is flushed", Duration::from_secs(20), async || {
        admitted_count(&deployment.postgres, &keys_by_state.used.id).await == USED_REQUESTS
    })
    .await
    .expect("happens in time");
    let folder = TestDir::create().expect("create directory");
    let dump = folder.path().join("ipseity.dump");
    deployment.postgres.back_up(DATABASE, &dump).await.expect("dump database");
    let stats = load.stop("clients during the dump").await;
    assert_eq!(stats.failed_count(), 0);

    let postgres = Postgres::start(PostgresOptions::default()).await.expect("start PostgreSQL");
    postgres.restore(DATABASE, &dump).await.expect("restore database");
    let redis = Redis::start(RedisOptions::default()).await.expect("start Redis");
    let stores = [(STORE_URL_ENV, postgres.node_url(DATABASE)), (LEDGER_URL_ENV, redis.url())];
    let node =
        deployment.start_node(&stores.map(|(name, url)| (name.to_owned(), url)).into()).await.expect("start node");
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

/// A listening socket that successive nodes inherit.
struct SharedListener {
    port: ReservedPort,
    socket: TcpListener,
}

impl SharedListener {
    fn open() -> Self {
        let port = ReservedPort::reserve_free().expect("free port");
        let socket = TcpListener::bind(port.address()).expect("bind socket");
        Self { port, socket }
    }

    async fn start_node(&self, deployment: &Deployment) -> Node {
        let env = Env::from([("IPSEITY__EDGE__HTTP".to_owned(), self.port.address().to_string())]);
        deployment.start_node_with_sockets(&env, &[&self.socket]).await.expect("start node")
    }
}

/// Replaces the nodes one by one, so that old and new nodes serve side by side.
async fn replace_nodes(deployment: &Deployment, listeners: &[SharedListener; 2], nodes: &mut [Node; 2]) {
    for (listener, node) in listeners.iter().zip(nodes) {
        let next = listener.start_node(deployment).await;
        let ended = node.terminate().await.expect("stop node");
        assert!(ended.success(), "{}", node.log().expect("read log"));
        *node = next;
        wait_one_step().await;
    }
}

/// Asserts that PostgreSQL has counted every successful request exactly once.
async fn assert_usage_recorded(deployment: &Deployment, stats: &LoadStats) {
    let recorded = deployment.postgres.psql(DATABASE, "select sum(admitted) from usage").await.expect("run SQL");
    assert_eq!(recorded, stats.succeeded.to_string(), "admitted and successful");
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_rollback_under_load_lose_no_request() {
    let new = find_service_binary().expect("service binary");
    let old = std::env::var_os("IPSEITY_OLD_BIN").map_or_else(|| new.clone(), PathBuf::from);
    let options = DeploymentOptions {
        program: Some(old.clone()),
        nodes: 0,
        env: relaxed_timeouts(),
        ..DeploymentOptions::default()
    };
    let mut deployment = Deployment::start(options).await.expect("start deployment");
    let keys = issue_1000_keys(&deployment).await;
    let listeners = [SharedListener::open(), SharedListener::open()];
    let mut nodes = [listeners[0].start_node(&deployment).await, listeners[1].start_node(&deployment).await];
    let load = LifecycleLoad::start(&keys, &listeners.each_ref().map(|listener| listener.port.address()));
    wait_one_step().await;

    deployment.use_program(&new);
    deployment.migrate().await.expect("run command").ensure_success().expect("command succeeds");
    wait_one_step().await;
    replace_nodes(&deployment, &listeners, &mut nodes).await;
    deployment.use_program(&old);
    replace_nodes(&deployment, &listeners, &mut nodes).await;

    let stats = load.stop("clients during upgrade and rollback").await;
    assert_eq!(stats.failed_count(), 0);
    for node in &mut nodes {
        node.terminate().await.expect("stop node");
    }
    assert_usage_recorded(&deployment, &stats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_binary_refuses_to_migrate_a_newer_schema() {
    let deployment = Deployment::start(DeploymentOptions { nodes: 0, ..DeploymentOptions::default() })
        .await
        .expect("start deployment");
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (9999, 'of a later version', true, '\\x00', 0)";
    deployment.postgres.psql(DATABASE, newer).await.expect("run SQL");
    let refused = deployment.migrate().await.expect("run command");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("from a newer version") && refused.stderr.contains("[9999]. It is unchanged"),
        "{}",
        refused.stderr
    );
    deployment.start_node(&Env::new()).await.expect("start node");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_failover_under_load_records_every_charge() {
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("start deployment");
    let keys = issue_1000_keys(&deployment).await;
    let next = Redis::start(RedisOptions::default()).await.expect("start Redis");
    next.replicate_from(&deployment.redis).await.expect("start replication");
    let both = format!("{},{}", deployment.redis.url(), next.url());
    let mut node = deployment.start_node(&Env::from([(LEDGER_URL_ENV.to_owned(), both)])).await.expect("start node");
    let load = LifecycleLoad::start(&keys, &[node.http()]);
    wait_one_step().await;

    let port = next.address().port().to_string();
    deployment
        .redis
        .run_command(&["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "5000"])
        .await
        .expect("run Redis command");
    eventually("the new server is the primary", Duration::from_secs(10), async || {
        next.info("replication").await.is_ok_and(|info| info.contains("role:master"))
    })
    .await
    .expect("happens in time");
    wait_one_step().await;
    deployment.redis.kill9();
    wait_one_step().await;

    let stats = load.stop("clients during the failover").await;
    assert_eq!(stats.failed_count(), 0);
    node.terminate().await.expect("stop node");
    assert_usage_recorded(&deployment, &stats).await;
}
