//! Limits over home and remote nodes are exact while home answers in time. On a busy machine it may not: then a node decides
//! with local limits, and its decisions are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipseity_domain::Scope;
use ipseity_testkit::{IssuedKey, Node, TestClient};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::fixture::{Sites, delayed, read_metric};
use crate::fixture::{env_number, fresh_key};

const CONNECTIONS: usize = 50;

/// Sends requests over fifty connections to these nodes at the same time. Returns the number of responses by status.
pub(super) async fn flood(
    nodes: &[&Node],
    path: &'static str,
    authorization: Option<&str>,
    each: usize,
) -> BTreeMap<u16, usize> {
    let start = Arc::new(Barrier::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    for node in nodes.iter().cycle().take(CONNECTIONS) {
        let (mut caller, start) = (TestClient::new(node.http()), Arc::clone(&start));
        let authorization = authorization.map(str::to_owned);
        connections.spawn(async move {
            let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
            start.wait().await;
            let mut statuses = Vec::new();
            for _ in 0..each {
                statuses.push(caller.get(path, &headers).await.expect("response arrives").status);
            }
            statuses
        });
    }
    let mut counts = BTreeMap::new();
    for status in connections.join_all().await.into_iter().flatten() {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exact_over_home_and_remote_nodes() {
    let sites = Sites::start(2).await;
    let mut remotes = Vec::new();
    for (name, delay_ms) in [("ams", 1), ("iad", 45), ("syd", 150)] {
        remotes.push(sites.start_remote_node(name, delayed(delay_ms)).await);
    }
    let deployment = &sites.deployment;
    let nodes: Vec<_> = deployment.nodes.iter().chain(remotes.iter().map(|remote| &remote.node)).collect();
    for _ in 0..env_number("IPSEITY_SITES_ROUNDS", 2) {
        let key = fresh_key(deployment, Scope::Ip).await;
        let before = local_decisions(&nodes).await;
        let statuses = flood(&nodes, "/api/v1/ip", Some(&key.bearer()), 8).await;
        let local = local_decisions(&nodes).await - before;
        assert_admitted(&statuses, 300, local);
        if local > 0 {
            continue;
        }
        assert_eq!(count_pauses(&sites, &key).await, 1);
        assert_eq!(sites.charged(&key.id).await, 300);

        let key = fresh_key(deployment, Scope::Ip).await;
        let today = "(now() at time zone 'utc')::date";
        let usage = format!("insert into usage values ('{}', {today}, 9980)", key.id);
        deployment.postgres.psql("ipseity", &usage).await.expect("insert the usage");
        let before = local_decisions(&nodes).await;
        let statuses = flood(&nodes, "/api/v1/ip", Some(&key.bearer()), 2).await;
        assert_admitted(&statuses, 20, local_decisions(&nodes).await - before);
    }
    let before = local_decisions(&nodes).await;
    let statuses = flood(&nodes, "/api/v1/ip/demo", None, 24).await;
    assert_admitted(&statuses, 1000, local_decisions(&nodes).await - before);
}

/// Pauses of a key in PostgreSQL.
pub(super) async fn count_pauses(sites: &Sites, key: &IssuedKey) -> u64 {
    let pauses = format!("select count(*) from pauses where key_id = '{}'", key.id);
    let pauses = sites.deployment.postgres.psql("ipseity", &pauses).await.expect("query succeeds");
    pauses.trim().parse().expect("a number")
}

/// Decisions that nodes made without Redis or home.
pub(super) async fn local_decisions(nodes: &[&Node]) -> usize {
    let mut decisions = 0;
    for node in nodes {
        decisions += read_metric(node, "ipseity_degraded_decisions_total").await as usize;
    }
    decisions
}

#[track_caller]
fn assert_admitted(statuses: &BTreeMap<u16, usize>, limit: usize, local_decisions: usize) {
    let admitted = statuses.get(&200).copied().unwrap_or_default();
    assert!(admitted.abs_diff(limit) <= local_decisions, "{statuses:?}, {local_decisions} local decisions");
}
