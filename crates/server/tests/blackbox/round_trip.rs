//! Counts the commands that Redis and PostgreSQL received while 10,000 requests were admitted.

use std::collections::BTreeMap;
use std::time::Duration;

use ipseity_domain::PlaintextKey;
use ipseity_testkit::{Deployment, DeploymentOptions, TestClient, eventually};
use tokio::task::JoinSet;

use crate::fixture::relaxed_timeouts;

const ACCOUNTS: usize = 100;
const KEYS_PER_ACCOUNT: usize = 10;
const REQUESTS_PER_KEY: u64 = 10;
const CONNECTIONS: usize = 50;
const RESTRICT_HALF_OF_THE_KEYS: &str = "update keys
    set allowed_networks = '{127.0.0.0/8}', caller_limit = 300, expires_at = now() + interval '1 day', restriction_version = 1
    where seat % 2 = 0";

/// A deployment whose PostgreSQL logs every statement with its application name. Its node starts afterwards.
async fn deployment_with_query_log() -> Deployment {
    let mut env = relaxed_timeouts();
    // The probes of /ready are neither of requests nor rare.
    env.insert("IPSEITY__OPS__PROBE_INTERVAL_MS".to_owned(), "600000".to_owned());
    let options = DeploymentOptions { nodes: 0, env, ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("deployment starts");
    for setting in ["log_statement = 'all'", "log_line_prefix = '<%a> '"] {
        deployment.postgres.psql("postgres", &format!("alter system set {setting}")).await.expect("change the setting");
    }
    deployment.postgres.psql("postgres", "select pg_reload_conf()").await.expect("reload the settings");
    let node = deployment.start_node(&ipseity_testkit::deployment::node::Env::new()).await.expect("node starts");
    deployment.nodes.push(node);
    deployment
}

/// Creates 100 accounts with ten keys each by SQL. Commands would take a minute.
pub(crate) async fn issue_1000_keys(deployment: &Deployment) -> Vec<String> {
    let accounts =
        format!("insert into accounts (email) select n || '@example.com' from generate_series(1, {ACCOUNTS}) n");
    deployment.postgres.psql("ipseity", &accounts).await.expect("create accounts");
    let mut keys = Vec::new();
    for account in 1..=ACCOUNTS {
        let mut rows = Vec::new();
        for slot in 1..=KEYS_PER_ACCOUNT {
            let clear = PlaintextKey::generate(|| fastrand::u8(..));
            let digest = hex::encode(clear.to_api_key().digest.as_bytes());
            let owner = format!("(select id from accounts where email = '{account}@example.com')");
            rows.push(format!("('{}', {owner}, {slot}, 'key', 'full', '\\x{digest}')", clear.to_api_key().id));
            keys.push(clear.expose().to_owned());
        }
        let insert = format!("insert into keys (id, account_id, seat, name, scope, digest) values {}", rows.join(","));
        deployment.postgres.psql("ipseity", &insert).await.expect("insert the keys");
    }
    keys
}

/// Sends this many requests with every key over fifty connections; all must be admitted.
async fn lookup_with_all(deployment: &Deployment, keys: &[String], times: u64) {
    let mut connections = JoinSet::new();
    for key_chunk in keys.chunks(keys.len() / CONNECTIONS) {
        let (mut caller, key_chunk) = (TestClient::new(deployment.nodes[0].http()), key_chunk.to_vec());
        connections.spawn(async move {
            for _ in 0..times {
                for key in &key_chunk {
                    let headers = [("authorization", format!("Bearer {key}"))];
                    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
                    assert_eq!(caller.get("/api/v1/ip", &headers).await.expect("response arrives").status, 200);
                }
            }
        });
    }
    connections.join_all().await;
}

/// Statements in PostgreSQL's log after this offset, by application.
fn statements_by_application(deployment: &Deployment, from: usize) -> BTreeMap<String, usize> {
    let log = deployment.postgres.log().expect("read the log");
    let mut counts = BTreeMap::new();
    for line in log[from..].lines().filter(|line| line.contains("LOG:  execute ") || line.contains("LOG:  statement: "))
    {
        let application = line.strip_prefix('<').and_then(|line| line.split_once('>')).map_or("", |(name, _)| name);
        *counts.entry(application.to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is the result of this test")]
async fn admitted_request_makes_one_redis_call_and_no_sql() {
    let deployment = deployment_with_query_log().await;
    let keys = issue_1000_keys(&deployment).await;
    deployment.postgres.psql("ipseity", RESTRICT_HALF_OF_THE_KEYS).await.expect("restrict keys");
    let requests = keys.len() as u64 * REQUESTS_PER_KEY;
    lookup_with_all(&deployment, &keys, 1).await;
    let filled = statements_by_application(&deployment, 0).get("ipseity-request").copied().unwrap_or_default();
    assert!(filled >= keys.len(), "the log shows {filled} statements for the first use of {} keys", keys.len());

    // The first usage flush loads the last script, the only one that deletes fields. Loads are no proof of it: several connections
    // can load the same script.
    eventually("usage is flushed", Duration::from_secs(20), async || {
        deployment.redis.command_calls().await.expect("read the counts").contains_key("hdel")
    })
    .await
    .expect("all scripts are loaded");

    let log_start = deployment.postgres.log().expect("read the log").len();
    let before = deployment.redis.command_calls().await.expect("read the counts");
    lookup_with_all(&deployment, &keys, REQUESTS_PER_KEY).await;
    let after = deployment.redis.command_calls().await.expect("read the counts");
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    let all_calls: BTreeMap<_, _> =
        after.keys().map(|name| (name, calls(name))).filter(|(_, count)| *count > 0).collect();
    eventually("background statements are logged", Duration::from_secs(20), async || {
        statements_by_application(&deployment, log_start).contains_key("ipseity-background")
    })
    .await
    .expect("background statements exist");
    let sent = statements_by_application(&deployment, log_start);
    eprintln!("round trip: {requests} requests, {} evalsha; statements by application: {sent:?}", calls("evalsha"));
    // Each request adds an entry to a log. Concurrent requests share a call.
    let context =
        format!("{all_calls:?}, {sent:?}, log of the node:\n{}", deployment.nodes[0].log().expect("read the log"));
    assert_eq!(calls("rpush"), requests, "{context}");
    assert!((1..=requests).contains(&calls("evalsha")), "{context}");
    for other in ["eval", "script|load", "hello"] {
        assert_eq!(calls(other), 0, "{other}: {context}");
    }
    assert_eq!(sent.get("ipseity-request"), None, "{context}");
}
