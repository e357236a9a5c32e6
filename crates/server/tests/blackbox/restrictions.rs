//! Restricted keys, as a web page uses them: changes, and what strangers can do with a copied key.
//!
//! `IPSEITY_RESTRICTION_CHANGES` sets the number of changes, `IPSEITY_RESTRICTION_FLOOD` the requests of each flood, and
//! `IPSEITY_RESTRICTION_SECONDS` how long pages of another origin are refused.

use std::collections::BTreeMap;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{CommandOutput, Deployment, DeploymentOptions, IssuedKey, Node, TestClient, TestResponse};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::fixture::{env_number, fresh_key, relaxed_timeouts};
use crate::race::three_node_deployment;

const LOOKUP_PATH: &str = "/api/v1/ip";
const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";
const WORKERS: u32 = 4;
/// Each change admits a request on each node, and the burst limit must not pause the key.
const CHANGES_PER_KEY: u32 = 50;
/// The limit per caller of the preset for web pages.
const CALLER_LIMIT: u64 = 30;
/// An office or a mobile network, and a home.
const SHARED_ADDRESS: &str = "198.51.100.7";
const VISITOR: &str = "203.0.113.9";

/// Replaces the restrictions of a key. They are in effect when this returns.
pub(crate) async fn restrict(deployment: &Deployment, key: &IssuedKey, options: &[&str]) {
    let arguments: Vec<_> = ["key", "restrict", &key.id].into_iter().chain(options.iter().copied()).collect();
    let output = deployment.cli(&arguments).await.and_then(CommandOutput::ensure_success).expect("command succeeds");
    assert!(output.stderr.is_empty(), "{}", output.stderr);
}

/// Makes a lookup from a page of this origin.
pub(crate) async fn lookup_from(node: &Node, key: &IssuedKey, origin: &str) -> TestResponse {
    let headers = [("authorization", key.bearer()), ("origin", origin.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    node.client().get(LOOKUP_PATH, &headers).await.expect("response arrives")
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is the result of this test")]
async fn change_of_restrictions_applies_to_the_next_request_on_any_node() {
    let deployment = three_node_deployment().await;
    let changes = env_number("IPSEITY_RESTRICTION_CHANGES", 40) / WORKERS;
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(async move {
            let mut outdated = 0;
            let mut key = fresh_key(deployment, Scope::Ip).await;
            for change in 0..changes {
                if change % CHANGES_PER_KEY == CHANGES_PER_KEY - 1 {
                    key = fresh_key(deployment, Scope::Ip).await;
                }
                let (allowed, other) = if change % 2 == 0 { (SHOP, OTHER) } else { (OTHER, SHOP) };
                restrict(deployment, &key, &["--origin", allowed]).await;
                for node in &deployment.nodes {
                    let statuses = [lookup_from(node, &key, other).await, lookup_from(node, &key, allowed).await];
                    outdated += usize::from(statuses.map(|reply| reply.status) != [403, 200]);
                }
            }
            outdated
        });
    }
    let outdated: usize = workers.join_all().await.into_iter().sum();
    eprintln!("{} changes on 3 nodes, {outdated} requests judged by outdated restrictions", changes * WORKERS);
    assert_eq!(outdated, 0);
}

async fn web_page_deployment() -> (Deployment, IssuedKey) {
    let options = DeploymentOptions { nodes: 1, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    restrict(&deployment, &key, &["--origin", SHOP, "--caller-limit", &CALLER_LIMIT.to_string()]).await;
    (deployment, key)
}

/// Responses by status and error.
type Counts = BTreeMap<(u16, String), u64>;

/// Sends requests from these addresses in turn, with this origin. Returns the number of responses by status and error.
async fn flood(node: &Node, key: &IssuedKey, origin: &str, address: impl Fn(u32) -> String, requests: u32) -> Counts {
    let (mut caller, bearer, mut counts) = (node.client(), key.bearer(), Counts::new());
    for number in 0..requests {
        let address = address(number);
        let headers = [("authorization", bearer.as_str()), ("origin", origin), ("x-forwarded-for", address.as_str())];
        let reply = caller.get(LOOKUP_PATH, &headers).await.expect("response arrives");
        let error = reply.json().ok().and_then(|body| Some(body["error"].as_str()?.to_owned()));
        *counts.entry((reply.status, error.unwrap_or_default())).or_default() += 1;
    }
    counts
}

fn only(status: u16, error: &str, count: u64) -> Counts {
    Counts::from([((status, error.to_owned()), count)])
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_with_a_copied_key_do_not_disturb_visitors() {
    let (deployment, key) = web_page_deployment().await;
    let node = &deployment.nodes[0];
    let requests = env_number("IPSEITY_RESTRICTION_FLOOD", 1_000);
    let mut visitor = TestClient::new(node.http());
    let bearer = key.bearer();
    let mut assert_visitor_served = async || {
        let headers = [("authorization", bearer.as_str()), ("origin", SHOP), ("x-forwarded-for", VISITOR)];
        assert_eq!(visitor.get(LOOKUP_PATH, &headers).await.expect("response arrives").status, 200);
    };
    assert_visitor_served().await;
    let from_page = flood(node, &key, OTHER, |_| SHARED_ADDRESS.to_owned(), requests).await;
    assert_eq!(from_page, only(403, "origin_not_allowed", requests.into()));
    assert_visitor_served().await;
    let forged = flood(node, &key, SHOP, |_| SHARED_ADDRESS.to_owned(), requests).await;
    let is_limited = |(admitted, limit): (u64, u64)| (limit..=2 * limit).contains(&admitted);
    let count = |counts: &Counts, status| {
        counts.iter().filter(|((counted, _), _)| *counted == status).map(|(_, count)| count).sum::<u64>()
    };
    assert!(is_limited((count(&forged, 200), CALLER_LIMIT)), "{forged:?}");
    assert_eq!(count(&forged, 200) + count(&forged, 429), u64::from(requests), "{forged:?}");
    assert_visitor_served().await;
    // One subscriber with a /48 has four times the limit.
    let address = |number: u32| format!("2001:db8:1:{:x}::{number:x}", number % 65_536);
    let from_48 = flood(node, &key, SHOP, address, requests).await;
    assert!(is_limited((count(&from_48, 200), 4 * CALLER_LIMIT)), "{from_48:?}");
    assert_visitor_served().await;
    let shown = deployment.cli(&["key", "show", &key.id, "--json"]).await.expect("command runs");
    assert_eq!(shown.json().expect("valid JSON")["state"], "active");
}

/// Makes lookups at this rate, from a page of this origin. Returns the number of responses by status and error.
async fn lookups_at_rate(node: &Node, key: &IssuedKey, origin: &str, per_second: u32, seconds: u32) -> Counts {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut counts = Counts::new();
    for number in 0..per_second * seconds {
        ticks.tick().await;
        let address = |_| format!("203.0.113.{}", number % 250);
        for (outcome, count) in flood(node, key, origin, address, 1).await {
            *counts.entry(outcome).or_default() += count;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_another_origin_do_not_disturb_the_allowed_one() {
    const REFUSED_PER_SECOND: u32 = 100;
    // The burst limit is 5 per second.
    const ALLOWED_PER_SECOND: u32 = 4;
    let (deployment, key) = web_page_deployment().await;
    let (node, seconds) = (&deployment.nodes[0], env_number("IPSEITY_RESTRICTION_SECONDS", 5));
    let (refused, allowed) = tokio::join!(
        lookups_at_rate(node, &key, OTHER, REFUSED_PER_SECOND, seconds),
        lookups_at_rate(node, &key, SHOP, ALLOWED_PER_SECOND, seconds),
    );
    assert_eq!(refused, only(403, "origin_not_allowed", (REFUSED_PER_SECOND * seconds).into()));
    assert_eq!(allowed, only(200, "", (ALLOWED_PER_SECOND * seconds).into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_behind_one_address_share_the_limit_per_caller() {
    let (deployment, key) = web_page_deployment().await;
    let visits = flood(&deployment.nodes[0], &key, SHOP, |_| SHARED_ADDRESS.to_owned(), 200).await;
    let refused = visits.get(&(429, "rate_limit_exceeded".to_owned())).copied().unwrap_or_default();
    assert_eq!(visits.values().sum::<u64>(), 200);
    // A second minute may begin meanwhile.
    assert!((200 - 2 * CALLER_LIMIT..=200 - CALLER_LIMIT).contains(&refused), "{visits:?}");
    let other = flood(&deployment.nodes[0], &key, SHOP, |_| VISITOR.to_owned(), 1).await;
    assert_eq!(other, only(200, "", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn restrictions_are_refused_until_an_operator_confirms_that_all_nodes_know_them() {
    let deployment = Deployment::start(DeploymentOptions { nodes: 1, ..DeploymentOptions::default() })
        .await
        .expect("deployment starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    // As in a database that older nodes have used.
    let older = "update deployment set restrictions_enabled = false";
    deployment.postgres.psql("ipseity", older).await.expect("PostgreSQL answers");
    let arguments = ["key", "restrict", &key.id, "--origin", SHOP];
    let output = deployment.cli(&arguments).await.expect("command runs");
    assert!(!output.is_success() && output.stderr.contains("ipseity key enable-restrictions"), "{}", output.stderr);
    assert_eq!(lookup_from(&deployment.nodes[0], &key, OTHER).await.status, 200);
    deployment.cli(&["key", "enable-restrictions"]).await.and_then(CommandOutput::ensure_success).expect("enabled");
    restrict(&deployment, &key, &["--origin", SHOP]).await;
    assert_eq!(lookup_from(&deployment.nodes[0], &key, OTHER).await.status, 403);
}
