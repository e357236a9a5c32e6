//! Restrictions and tickets at remote nodes.
//!
//! `IPSEITY_RESTRICTION_CHANGES` sets the number of changes, and `IPSEITY_SITES_NOTICE_MS` the time in which a node in
//! optimistic mode must apply one, after the way from home.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{CommandOutput, IssuedKey, TestDir, eventually};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{RemoteNode, Sites, delayed};
use super::optimistic::start_optimistic_node;
use crate::errors::ExpectedError;
use crate::fixture::{env_number, fresh_key};
use crate::restrictions::{CHANGES, CHANGES_PER_KEY, OTHER, SHOP, lookup_from, restrict};
use crate::tickets::{create_ticket, ticket_env, use_ticket};

const WAY_MS: u64 = 20;

/// Changes the restrictions of keys. Returns how many requests were judged by the restrictions before, this long after the
/// change was acknowledged.
#[expect(clippy::print_stderr, reason = "the figure is the result of these tests")]
async fn count_outdated(sites: &Sites, remote: &RemoteNode, after: Duration) -> u32 {
    let (mut outdated, mut key) = (0, fresh_key(&sites.deployment, Scope::Ip).await);
    let changes = env_number("IPSEITY_RESTRICTION_CHANGES", 12);
    for change in 0..changes {
        if change % CHANGES_PER_KEY == CHANGES_PER_KEY - 1 {
            key = fresh_key(&sites.deployment, Scope::Ip).await;
        }
        let (options, expected) = CHANGES[change as usize % CHANGES.len()];
        restrict(&sites.deployment, &key, options).await;
        sleep(after).await;
        let replies = [lookup_from(&remote.node, &key, SHOP).await, lookup_from(&remote.node, &key, OTHER).await];
        outdated += u32::from(replies.map(|reply| reply.status) != expected);
    }
    eprintln!(
        "{changes} changes at a remote node, {outdated} requests judged by outdated restrictions after {after:?}"
    );
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

#[tokio::test(flavor = "multi_thread")]
async fn restrictions_that_postgres_has_lost_end_at_a_remote_node() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("ams", delayed(1)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let statuses = async || {
        let replies = [lookup_from(&remote.node, &key, SHOP).await, lookup_from(&remote.node, &key, OTHER).await];
        replies.map(|reply| reply.status)
    };
    restrict(&sites.deployment, &key, &["--origin", SHOP]).await;
    assert_eq!(statuses().await, [200, 403]);
    let version = format!("select restriction_version from keys where id = '{}'", key.id);
    let version = sites.deployment.postgres.psql("ipseity", &version).await.expect("PostgreSQL answers");
    restrict(&sites.deployment, &key, &["--origin", OTHER]).await;
    assert_eq!(statuses().await, [403, 200]);
    // As after a failover to a replica without the last commit. The epoch is part of what identifies a database.
    let lost = format!(
        "update keys set allowed_origins = array['{SHOP}'], restriction_version = {version} where id = '{}';
         update deployment set epoch = epoch + 1",
        key.id
    );
    sites.deployment.postgres.psql("ipseity", &lost).await.expect("PostgreSQL answers");
    let is_known = async || statuses().await == [200, 403];
    eventually("the remote node reads the restrictions again", Duration::from_secs(20), is_known)
        .await
        .expect("it does");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_of_a_restricted_key_work_at_a_remote_node_without_postgres() {
    let mut sites = Sites::start(1).await;
    let remote = sites.start_remote_node("ams", delayed(1)).await;
    let old = fresh_key(&sites.deployment, Scope::Ip).await;
    restrict(&sites.deployment, &old, &["--origin", SHOP]).await;
    let rotated = sites.deployment.cli(&["key", "rotate", &old.id, "--overlap-s", "3600", "--json"]).await;
    let rotated = rotated.and_then(CommandOutput::ensure_success).expect("key is rotated");
    let new: IssuedKey = serde_json::from_slice(&rotated.stdout).expect("valid JSON");
    for key in [&old, &new] {
        assert_eq!(lookup_from(&remote.node, key, SHOP).await.status, 200);
    }
    sites.deployment.postgres.kill9();
    for key in [&old, &new, &old, &new] {
        let replies = [lookup_from(&remote.node, key, SHOP).await, lookup_from(&remote.node, key, OTHER).await];
        assert_eq!(replies.map(|reply| reply.status), [200, 403]);
    }
}
