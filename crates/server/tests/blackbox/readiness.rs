//! `/ready`, `ipseity ready` and `ipseity drain`, signals, and what the log says about unavailable stores.

use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::{LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{CommandOutput, Deployment, DeploymentOptions, Node, TestClient, TestDir, eventually};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::sleep;

use crate::fixture::{fresh_key, lookup_status};

const PATIENCE: Duration = Duration::from_secs(20);
/// A load balancer that waits this long takes no node out because of a store.
const READY_TIME_MAX: Duration = Duration::from_millis(200);
const NOWHERE: &str = "127.0.0.1:1";

/// The status and the body of `/ready`, which must come in time. On a busy machine, the fastest of three counts.
async fn ready(node: &Node) -> (u16, Value) {
    let mut fastest = Duration::MAX;
    for attempt in 1.. {
        let started = Instant::now();
        let reply = TestClient::new(node.ops()).get("/ready", &[]).await.expect("response arrives");
        fastest = fastest.min(started.elapsed());
        if fastest < READY_TIME_MAX {
            return (reply.status, reply.json().expect("valid JSON"));
        }
        assert!(attempt < 3, "{fastest:?}");
    }
    unreachable!("the loop returns")
}

/// Waits until `/ready` returns this status and a text in one of its fields.
async fn expect_ready(node: &Node, status: u16, field: &str, text: &str) {
    let mut last = (0, Value::Null);
    let is_expected = async || {
        last = ready(node).await;
        last.0 == status && last.1[field].to_string().contains(text)
    };
    let found = eventually("/ready is as expected", PATIENCE, is_expected).await;
    assert!(found.is_ok(), "{status}, {field}: {text}; last: {last:?}");
}

async fn expect_line(node: &Node, text: &str) {
    let is_logged = async || node.log().expect("log").contains(text);
    let found = eventually("the line is logged", PATIENCE, is_logged).await;
    assert!(found.is_ok(), "{text}: {:?}", node.log());
}

async fn start() -> Deployment {
    Deployment::start(DeploymentOptions::default()).await.expect("deployment starts")
}

/// A node whose stores have other URLs.
async fn start_node_with(deployment: &Deployment, env: &[(&str, &str)]) -> Node {
    let env: Env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    deployment.start_live_node(&env).await.expect("node starts")
}

/// Runs a command that asks the first node.
async fn run_command(deployment: &Deployment, arguments: &[&str]) -> CommandOutput {
    let address = deployment.nodes[0].ops().to_string();
    deployment.cli(&[arguments, &["--node", &address]].concat()).await.expect("command runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_stores_do_not_delay_ready_and_either_store_is_enough() {
    let mut deployment = start().await;
    let key = fresh_key(&deployment, Scope::Ip).await;
    // Redis gets the record of the key, but the first node does not know it.
    // On a busy machine, Redis can exceed the timeout, and the node would decide without it.
    let other = start_node_with(&deployment, &[("IPSEITY__LEDGER__TIMEOUT_MS", "5000")]).await;
    assert_eq!(lookup_status(&other, &key.key).await, 200);
    drop(other);
    expect_ready(&deployment.nodes[0], 200, "store", "ok").await;
    deployment.postgres.freeze();
    expect_ready(&deployment.nodes[0], 200, "store", "did not answer within 1000 ms").await;
    deployment.redis.freeze();
    // Neither a store nor memory can answer.
    expect_ready(&deployment.nodes[0], 503, "reasons", "this node knows none").await;
    deployment.postgres.thaw();
    expect_ready(&deployment.nodes[0], 200, "ledger", "did not answer within 1000 ms").await;
    assert_eq!(lookup_status(&deployment.nodes[0], &key.key).await, 200);
    // Now memory can.
    deployment.postgres.freeze();
    expect_ready(&deployment.nodes[0], 200, "store", "did not answer").await;
    deployment.postgres.thaw();
    deployment.redis.thaw();
    expect_ready(&deployment.nodes[0], 200, "degraded", "false").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_starts_without_redis_is_ready_and_serves() {
    let deployment = start().await;
    let key = fresh_key(&deployment, Scope::Ip).await;
    let node = start_node_with(&deployment, &[(LEDGER_URL_ENV, &format!("redis://{NOWHERE}"))]).await;
    expect_ready(&node, 200, "ledger", "Connection refused").await;
    assert_eq!(lookup_status(&node, &key.key).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_not_ready_until_the_schema_is_migrated() {
    let deployment = start().await;
    let set_applied = async |is_applied: bool| {
        let sql = format!(
            "update _sqlx_migrations set success = {is_applied} where version = (select max(version) from _sqlx_migrations)"
        );
        deployment.postgres.psql("ipseity", &sql).await.expect("PostgreSQL answers");
    };
    set_applied(false).await;
    let node = &deployment.nodes[0];
    expect_ready(node, 503, "reasons", "Run `ipseity migrate`").await;
    let metrics = node.metrics().await.expect("metrics");
    assert!(metrics.contains("ipseity_ready 0") && metrics.contains("ipseity_pending_migrations 1"), "{metrics}");
    assert!(node.log().expect("log").contains("schema is outdated"));
    let output = run_command(&deployment, &["ready"]).await;
    assert!(output.code == Some(1) && output.stderr.contains("Run `ipseity migrate`"), "{}", output.stderr);
    set_applied(true).await;
    expect_ready(node, 200, "ready", "true").await;
    assert!(node.metrics().await.expect("metrics").contains("ipseity_ready 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_not_ready_with_migrations_of_another_program() {
    let deployment = start().await;
    let sql = async |sql: &str| deployment.postgres.psql("ipseity", sql).await.expect("PostgreSQL answers");
    let node = &deployment.nodes[0];
    sql("insert into _sqlx_migrations select 9999, 'x', now(), true, 'x', 1").await;
    sql("create table kept as select checksum from _sqlx_migrations where version = 2").await;
    sql("update _sqlx_migrations set checksum = 'x' where version = 2").await;
    expect_ready(node, 503, "reasons", "migrations [2] differ from those of this version").await;
    expect_line(node, "schema differs from that of this version").await;
    // A newer migration does not matter.
    sql("update _sqlx_migrations set checksum = (select checksum from kept) where version = 2").await;
    expect_ready(node, 200, "ready", "true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_postgres_is_reported_and_the_node_stays_ready() {
    let mut deployment = start().await;
    let set_read_only = async |deployment: &Deployment, setting: &str| {
        let sql = format!("alter database ipseity set default_transaction_read_only = {setting}");
        deployment.postgres.psql("postgres", &sql).await.expect("PostgreSQL answers");
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'ipseity'";
        deployment.postgres.psql("postgres", end).await.expect("PostgreSQL answers");
    };
    set_read_only(&deployment, "on").await;
    expect_ready(&deployment.nodes[0], 200, "store", "it is read-only").await;
    expect_line(&deployment.nodes[0], "PostgreSQL rejects writes").await;
    // It can answer, although nothing can be saved.
    deployment.redis.freeze();
    expect_ready(&deployment.nodes[0], 200, "ledger", "did not answer").await;
    deployment.redis.thaw();
    set_read_only(&deployment, "off").await;
    expect_ready(&deployment.nodes[0], 200, "store", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_by_hand_ends_by_hand() {
    let deployment = start().await;
    let (node, key) = (&deployment.nodes[0], fresh_key(&deployment, Scope::Ip).await);
    assert_eq!(run_command(&deployment, &["ready"]).await.ensure_success().expect("ready").text(), "ready\n");
    run_command(&deployment, &["drain"]).await.ensure_success().expect("command succeeds");
    let (status, body) = ready(node).await;
    assert_eq!((status, &body["draining"]), (503, &true.into()));
    assert_eq!(lookup_status(node, &key.key).await, 200);
    let output = run_command(&deployment, &["ready"]).await;
    assert!(output.code == Some(1) && output.stderr.contains("draining"), "{}", output.stderr);
    run_command(&deployment, &["drain", "--end"]).await.ensure_success().expect("command succeeds");
    assert_eq!(ready(node).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn hangup_reloads_and_other_signals_do_not_kill() {
    let (deployment, dir) = (start().await, TestDir::create().expect("directory"));
    let config = dir.path().join("ipseity.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("file is written");
    write("[log]\nlevel = \"warn\"\n");
    let mut node = deployment.start_node_with_config(&Env::new(), &config).await.expect("node starts");
    let log_settings =
        async |node: &Node| TestClient::new(node.ops()).get("/log", &[]).await.expect("response arrives").text();
    assert!(log_settings(&node).await.contains("\"warn\""));
    write("[log]\nlevel = \"debug\"\n[edge]\ndrain_delay_ms = 1\n");
    node.send_signal(Signal::HUP.as_raw());
    let is_reloaded = async || log_settings(&node).await.contains("\"debug\"");
    eventually("the log level is reloaded", PATIENCE, is_reloaded).await.expect("reloaded");
    expect_line(&node, "edge.drain_delay_ms").await;
    write("[log]\nlevel = \"loud\"\n");
    node.send_signal(Signal::HUP.as_raw());
    expect_line(&node, "reload failed").await;
    assert!(log_settings(&node).await.contains("\"debug\""));
    const REAL_TIME: i32 = 40;
    let signals = [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::XFSZ, Signal::TRAP, Signal::SYS]
        .map(Signal::as_raw);
    for signal in signals.into_iter().chain([REAL_TIME]) {
        node.send_signal(signal);
        expect_line(&node, &format!("\"signal\":{signal}")).await;
    }
    node.send_signal(Signal::QUIT.as_raw());
    let status = node.wait_for_exit().await.expect("node stops");
    assert!(status.success() && node.log().expect("log").contains("draining"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_without_memory_is_one_outage() {
    let deployment = start().await;
    let (node, key) = (&deployment.nodes[0], fresh_key(&deployment, Scope::Ip).await);
    assert_eq!(lookup_status(node, &key.key).await, 200);
    deployment.redis.run_command(&["config", "set", "maxmemory", "1"]).await.expect("Redis answers");
    for _ in 0..100 {
        assert_eq!(lookup_status(node, &key.key).await, 200);
        sleep(Duration::from_millis(30)).await;
    }
    expect_ready(node, 200, "ledger", "OOM").await;
    let count = |text: &str| node.log().expect("log").matches(text).count();
    assert_eq!((count("entered degraded mode"), count("left degraded mode")), (1, 0), "{:?}", node.log());
    assert!(count("OOM") > 0, "the log has the cause");
    deployment.redis.run_command(&["config", "set", "maxmemory", "0"]).await.expect("Redis answers");
    expect_ready(node, 200, "degraded", "false").await;
    assert_eq!(count("left degraded mode"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_ops_listener_leave_no_connection_open() {
    let deployment = start().await;
    let node = &deployment.nodes[0];
    // More than [ops] connections_max, and each could keep its connection.
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = TestClient::new(node.ops());
        let reply = client.get("/ready", &[]).await.expect("response arrives");
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        clients.push(client);
    }
}

/// Starts a node with this URL. `/ready` and the log must have the cause, and the other store is enough.
async fn assert_cause(deployment: &Deployment, (setting, field): (&str, &str), url: &str, cause: &str) {
    let node = start_node_with(deployment, &[(setting, url)]).await;
    expect_ready(&node, 200, field, cause).await;
    expect_line(&node, cause).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_says_why_a_store_is_unavailable() {
    let deployment = start().await;
    let (redis, postgres) = (deployment.redis.address(), deployment.postgres.address());
    let store = (STORE_URL_ENV, "store");
    // Redis answers, but it knows no key.
    let stranger = format!("postgres://stranger@{postgres}/ipseity");
    let node = start_node_with(&deployment, &[(STORE_URL_ENV, &stranger)]).await;
    expect_ready(&node, 503, "reasons", "this node knows none").await;
    let key = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&deployment.nodes[0], &key.key).await, 200);
    expect_ready(&node, 200, "store", "stranger").await;
    assert_eq!(lookup_status(&node, &key.key).await, 200);
    assert_cause(&deployment, store, &stranger, "stranger").await;
    assert_cause(&deployment, store, &deployment.postgres.url("nowhere"), "nowhere").await;
    assert_cause(&deployment, store, &format!("postgres://ipseity@{NOWHERE}/ipseity"), "Connection refused").await;
    let nowhere = [(STORE_URL_ENV, &*format!("postgres://ipseity@{NOWHERE}/ipseity"))];
    let output = deployment.cli_with_env(&nowhere, &["account", "list"]).await.expect("command runs");
    assert!(output.stderr.contains("Connection refused"), "{}", output.stderr);
    assert!(!output.stderr.contains("pool timed out"), "{}", output.stderr);
    let ledger = (LEDGER_URL_ENV, "ledger");
    assert_cause(&deployment, ledger, "redis://host.invalid", "failed to lookup address").await;
    deployment.redis.run_command(&["config", "set", "requirepass", "secret"]).await.expect("Redis answers");
    assert_cause(&deployment, ledger, &format!("redis://:wrong@{redis}"), "WRONGPASS").await;
    assert_cause(&deployment, ledger, &format!("redis://{redis}"), "NOAUTH").await;
}
