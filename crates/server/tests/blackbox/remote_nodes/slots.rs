//! Slots: only so many remote nodes admit requests before home has charged them, and one process of each site.

use std::time::Duration;

use ipseity_domain::{IN_FLIGHT_MAX, Scope};
use ipseity_ledger::REMOTE_SLOTS;
use ipseity_testkit::{IssuedKey, Node};
use tokio::time::sleep;

use super::fixture::{Sites, delayed, read_metric};
use super::limits::{count_pauses, flood, local_decisions};
use super::optimistic::{ADMITTED, open_key, optimistic_settings, start_optimistic_node, wait_until_charged};
use crate::fixture::{fresh_key, lookup_status};

/// Longer than the first claim of a slot, and than the time to its renewal.
const FIRST_CLAIM: Duration = Duration::from_secs(2);
const RENEWAL: Duration = Duration::from_secs(5);

impl Sites {
    async fn run_sql(&self, sql: &str) -> String {
        self.deployment.postgres.psql("ipseity", sql).await.expect("query succeeds")
    }
}

/// Sends requests to these nodes for some time. Returns the number of requests, which are all admitted.
async fn send_for(duration: Duration, nodes: &[&Node], key: &IssuedKey) -> u64 {
    let (start, mut requests) = (tokio::time::Instant::now(), 0);
    while start.elapsed() < duration {
        for node in nodes {
            assert_eq!(lookup_status(node, &key.key).await, 200);
            requests += 1;
        }
        sleep(Duration::from_millis(100)).await;
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_free_slot_waits_for_home_until_one_expires() {
    let sites = Sites::start(1).await;
    let others = format!("generate_series(0, {REMOTE_SLOTS} - 1) number");
    sites
        .run_sql(&format!(
            "insert into sites select 'other-' || number, sha256(number::text::bytea) from {others};
             insert into remote_slots select number, 'other-' || number, 'other', now() + interval '1 hour' from {others}"
        ))
        .await;
    let remote = start_optimistic_node(&sites, "syd", delayed(10)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let mut requests = send_for(FIRST_CLAIM, &[&remote.node], &key).await;
    assert_eq!(read_metric(&remote.node, ADMITTED).await, 0, "all slots are taken");
    wait_until_charged(&sites, &key, requests).await;

    sites.run_sql("update remote_slots set expires_at = now() - interval '1 second' where slot = 17").await;
    requests += open_key(&remote, &key).await;
    assert_eq!(sites.run_sql("select slot from remote_slots where site = 'syd'").await, "17");
    wait_until_charged(&sites, &key, requests).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_of_a_site_admits_requests_before_they_are_charged() {
    let sites = Sites::start(1).await;
    let dir = sites.add_site("syd").await;
    let mut first = sites.start_node_of_site(&dir, delayed(10), optimistic_settings()).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let mut requests = open_key(&first, &key).await;
    let second = sites.start_node_of_site(&dir, delayed(10), optimistic_settings()).await;
    let before = read_metric(&first.node, ADMITTED).await;
    requests += send_for(RENEWAL, &[&first.node, &second.node], &key).await;
    assert!(read_metric(&first.node, ADMITTED).await > before, "the first process keeps its slot");
    assert_eq!(read_metric(&second.node, ADMITTED).await, 0);
    wait_until_charged(&sites, &key, requests).await;

    let flooded = fresh_key(&sites.deployment, Scope::Ip).await;
    let opened = open_key(&first, &flooded).await as usize;
    let nodes = [&sites.deployment.nodes[0], &first.node, &second.node];
    let local = local_decisions(&nodes).await;
    let statuses = flood(&nodes, "/api/v1/ip", Some(&flooded.bearer()), 8).await;
    let (admitted, local) = (opened + statuses[&200], local_decisions(&nodes).await - local);
    let bound = 300 + IN_FLIGHT_MAX + local;
    assert!((300..=bound).contains(&admitted), "{admitted} admitted, at most {bound} expected: {statuses:?}");
    assert_eq!(count_pauses(&sites, &flooded).await, 1);
    wait_until_charged(&sites, &flooded, admitted as u64).await;
    assert_eq!(read_metric(&second.node, ADMITTED).await, 0);

    first.node.kill9();
    sites.run_sql("update remote_slots set expires_at = now() - interval '1 second'").await;
    requests += open_key(&second, &key).await;
    wait_until_charged(&sites, &key, requests).await;
}
