//! Restrictions and tickets at remote nodes.
//!
//! `IPSEITY_RESTRICTION_CHANGES` sets the number of changes, and `IPSEITY_SITES_NOTICE_MS` the time in which a node in
//! optimistic mode must apply one, after the way from home.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{CommandOutput, TestDir};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{RemoteNode, Sites, delayed};
use super::optimistic::start_optimistic_node;
use crate::errors::ExpectedError;
use crate::fixture::{env_number, fresh_key};
use crate::restrictions::{lookup_from, restrict};
use crate::tickets::{create_ticket, ticket_env, use_ticket};

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";
const WAY_MS: u64 = 20;
/// Each change admits a request, and the burst limit must not pause the key.
const CHANGES_PER_KEY: u32 = 100;

/// Changes the allowed origin of keys. Returns how many requests were judged by the restrictions before, this long after the
/// change was acknowledged.
async fn count_outdated(sites: &Sites, remote: &RemoteNode, after: Duration) -> u32 {
    let (mut outdated, mut key) = (0, fresh_key(&sites.deployment, Scope::Ip).await);
    for change in 0..env_number("IPSEITY_RESTRICTION_CHANGES", 10) {
        if change % CHANGES_PER_KEY == CHANGES_PER_KEY - 1 {
            key = fresh_key(&sites.deployment, Scope::Ip).await;
        }
        let (allowed, other) = if change % 2 == 0 { (SHOP, OTHER) } else { (OTHER, SHOP) };
        restrict(&sites.deployment, &key, &["--origin", allowed]).await;
        sleep(after).await;
        let replies = [lookup_from(&remote.node, &key, other).await, lookup_from(&remote.node, &key, allowed).await];
        outdated += u32::from(replies.map(|reply| reply.status) != [403, 200]);
    }
    outdated
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_restrictions_applies_to_the_next_request_at_a_remote_node() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("ams", delayed(WAY_MS)).await;
    assert_eq!(count_outdated(&sites, &remote, Duration::ZERO).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_restrictions_applies_in_optimistic_mode_after_the_way_from_home() {
    let sites = Sites::start(1).await;
    let remote = start_optimistic_node(&sites, "syd", delayed(WAY_MS)).await;
    let notice_ms = WAY_MS + u64::from(env_number("IPSEITY_SITES_NOTICE_MS", 450));
    assert_eq!(count_outdated(&sites, &remote, Duration::from_millis(notice_ms)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_of_home_work_at_remote_nodes_and_the_reverse() {
    let (sites, dir) = (Sites::start(1).await, TestDir::create().expect("directory"));
    let env = ticket_env(dir.path(), "https://localhost");
    let home = sites.deployment.start_node(&env).await.expect("node starts");
    let remote = sites.start_remote_node_with("ams", delayed(1), env).await;
    let key = fresh_key(&sites.deployment, Scope::Geo).await;
    restrict(&sites.deployment, &key, &["--tickets-only", "--network", "127.0.0.0/8"]).await;
    let nodes = [&home, &remote.node];
    for created_at in nodes {
        let ticket = create_ticket(created_at, &key, &json!({ "origin": SHOP, "scope": "ip" })).await;
        for used_at in nodes {
            let from_visitor = [("origin", SHOP), ("x-forwarded-for", "203.0.113.9")];
            let reply = use_ticket(used_at, &ticket, &from_visitor).await;
            assert!(reply.status == 200 && !reply.text().contains("country"), "{}", reply.text());
            ExpectedError::ORIGIN_NOT_ALLOWED.assert_matches(&use_ticket(used_at, &ticket, &[]).await);
            ExpectedError::TICKET_REQUIRED.assert_matches(&lookup_from(used_at, &key, SHOP).await);
        }
        let invalidated = sites.deployment.cli(&["key", "invalidate-tickets", &key.id]).await;
        invalidated.and_then(CommandOutput::ensure_success).expect("command succeeds");
        for used_at in nodes {
            ExpectedError::INVALID_TICKET.assert_matches(&use_ticket(used_at, &ticket, &[("origin", SHOP)]).await);
        }
    }
}
