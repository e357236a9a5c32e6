//! Limits under concurrency: three nodes on one Redis and one PostgreSQL, fifty connections, and new keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, DeploymentOptions, TestClient, TestResponse, eventually};
use tokio::sync::{Barrier, OnceCell};
use tokio::task::JoinSet;

use crate::fixture::{fresh_key, relaxed_timeouts};

const CONNECTIONS: usize = 50;
const LOOKUP_PATH: &str = "/api/v1/ip";
const DEMO_PATH: &str = "/api/v1/ip/demo";
const TODAY: &str = "(now() at time zone 'utc')::date";

static DEPLOYMENT: OnceCell<Deployment> = OnceCell::const_new();

/// A deployment with three nodes. It ends with the process.
pub(crate) async fn three_node_deployment() -> &'static Deployment {
    DEPLOYMENT
        .get_or_init(async || {
            let options = DeploymentOptions { nodes: 3, env: relaxed_timeouts(), ..DeploymentOptions::default() };
            Deployment::start(options).await.expect("deployment starts")
        })
        .await
}

/// Sends `each` requests on each of fifty connections, spread over the nodes. All connections are open before the first
/// request.
pub(crate) async fn send_concurrently(
    deployment: &Deployment,
    path: &'static str,
    authorization: Option<String>,
    requests_per_connection: usize,
) -> Vec<TestResponse> {
    let start = Arc::new(Barrier::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    for node in deployment.nodes.iter().cycle().take(CONNECTIONS) {
        let (mut caller, start, authorization) =
            (TestClient::new(node.http()), Arc::clone(&start), authorization.clone());
        connections.spawn(async move {
            let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
            let opened = caller.send(Method::OPTIONS, path, &[]).await.expect("preflight succeeds");
            assert_eq!(opened.status, 204);
            start.wait().await;
            let mut replies = Vec::with_capacity(requests_per_connection);
            for _ in 0..requests_per_connection {
                replies.push(caller.get(path, &headers).await.expect("response arrives"));
            }
            replies
        });
    }
    connections.join_all().await.into_iter().flatten().collect()
}

/// Number of responses by status.
pub(crate) fn count_statuses(replies: &[TestResponse]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for reply in replies {
        *counts.entry(reply.status).or_default() += 1;
    }
    counts
}

/// The remaining counts of the admitted requests, which must all differ.
pub(crate) fn distinct_remaining(replies: &[TestResponse]) -> BTreeSet<u64> {
    let admitted: Vec<_> = replies.iter().filter(|reply| reply.status == 200).collect();
    let parse_remaining = |reply: &&TestResponse| {
        reply.header("x-ratelimit-remaining").expect("remaining is set").parse().expect("valid number")
    };
    let distinct: BTreeSet<u64> = admitted.iter().map(parse_remaining).collect();
    assert_eq!(distinct.len(), admitted.len(), "two admitted requests have the same remaining count");
    distinct
}

fn refusals(replies: &[TestResponse]) -> impl Iterator<Item = serde_json::Value> {
    replies.iter().filter(|reply| reply.status == 429).map(|reply| reply.json().expect("error is JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_300_of_400_concurrent_requests_pass() {
    let deployment = three_node_deployment().await;
    let mut paused = Vec::new();
    for _ in 0..5 {
        let issued = fresh_key(deployment, Scope::Ip).await;
        let replies = send_concurrently(deployment, LOOKUP_PATH, Some(issued.bearer()), 8).await;
        assert_eq!(count_statuses(&replies), BTreeMap::from([(200, 300), (403, 99), (429, 1)]));
        assert_eq!(distinct_remaining(&replies), (9_700..10_000).collect());
        let burst = refusals(&replies).next().expect("one rejected request");
        assert!(burst["message"].as_str().expect("message exists").starts_with("Burst limit exceeded"), "{burst}");
        let evidence = "select count(*), sum((select sum(count) from unnest(counts) count)) from pauses where key_id";
        let rows = deployment
            .postgres
            .psql("ipseity", &format!("{evidence} = '{}'", issued.id))
            .await
            .expect("read the pauses");
        assert_eq!(rows, "1|301", "pauses and their request counts");
        paused.push(format!("'{}'", issued.id));
    }
    let used = format!("select string_agg(admitted::text, ' ') from usage where key_id in ({})", paused.join(","));
    eventually("300 are flushed for each key", Duration::from_secs(20), async || {
        deployment.postgres.psql("ipseity", &used).await.expect("read the usage") == "300 300 300 300 300"
    })
    .await
    .expect("usage is flushed");
}

/// Number of requests that nodes have decided without Redis.
async fn count_local_decisions(deployment: &Deployment) -> usize {
    let mut sum = 0;
    for node in &deployment.nodes {
        let metrics = node.metrics().await.expect("metrics are read");
        let series = metrics.lines().filter(|line| line.starts_with("ipseity_degraded_decisions_total"));
        let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        sum += values.sum::<usize>();
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_default_timeout_only_late_verdicts_exceed_the_burst_limit() {
    let mut env = relaxed_timeouts();
    env.remove("IPSEITY__LEDGER__TIMEOUT_MS");
    let options = DeploymentOptions { nodes: 3, env, ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    for _ in 0..5 {
        let issued = fresh_key(&deployment, Scope::Ip).await;
        let local_before = count_local_decisions(&deployment).await;
        let replies = send_concurrently(&deployment, LOOKUP_PATH, Some(issued.bearer()), 8).await;
        let local = count_local_decisions(&deployment).await - local_before;
        let counts = count_statuses(&replies);
        if local == 0 {
            assert_eq!(counts, BTreeMap::from([(200, 300), (403, 99), (429, 1)]));
        } else {
            assert!(counts.keys().all(|status| [200, 403, 429].contains(status)), "{counts:?}");
            assert!(counts[&200] <= 300 + local, "{counts:?}, {local} decided without Redis");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn last_10_requests_of_the_day_are_exact_across_nodes() {
    let deployment = three_node_deployment().await;
    for _ in 0..3 {
        let issued = fresh_key(deployment, Scope::Ip).await;
        let insert_usage = format!("insert into usage values ('{}', {TODAY}, 9990)", issued.id);
        deployment.postgres.psql("ipseity", &insert_usage).await.expect("insert the usage");
        let replies = send_concurrently(deployment, LOOKUP_PATH, Some(issued.bearer()), 5).await;
        assert_eq!(count_statuses(&replies), BTreeMap::from([(200, 10), (429, 240)]));
        assert_eq!(distinct_remaining(&replies), (0..10).collect());
        for refused in refusals(&replies) {
            assert!(refused["enterprise"].is_string(), "rejected for another reason than the daily quota: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn last_10_demo_requests_are_exact_across_nodes() {
    let deployment = three_node_deployment().await;
    let insert_usage = format!("insert into demo_usage values ({TODAY}, 990, 0)");
    deployment.postgres.psql("ipseity", &insert_usage).await.expect("insert the usage");
    let replies = send_concurrently(deployment, DEMO_PATH, None, 5).await;
    assert_eq!(count_statuses(&replies), BTreeMap::from([(200, 10), (429, 240)]));
    assert_eq!(distinct_remaining(&replies), (0..10).collect());
    for refused in refusals(&replies) {
        assert!(refused["signup"].is_string(), "rejected for another reason than the demo quota: {refused}");
    }
    assert_eq!(
        count_statuses(&send_concurrently(deployment, DEMO_PATH, None, 1).await),
        BTreeMap::from([(429, CONNECTIONS)])
    );
}
