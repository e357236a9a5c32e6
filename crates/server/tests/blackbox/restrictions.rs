//! Restricted keys, as a web page uses them: changes, and what strangers can do with a copied key.
//!
//! `IPSEITY_RESTRICTION_CHANGES` sets the number of changes, `IPSEITY_RESTRICTION_FLOOD` the requests of each flood, and
//! `IPSEITY_RESTRICTION_SECONDS` how long pages of another origin are refused.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use ipseity_domain::Scope;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::deployment::LEDGER_URL_ENV;
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, FaultConfig, FaultProxy, Http3TestClient, IssuedKey, Node,
    StreamTestClient, TestResponse,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::fixture::{env_number, fresh_key, relaxed_timeouts, shared_deployment};
use crate::race::three_node_deployment;

const LOOKUP_PATH: &str = "/api/v1/ip";
pub(crate) const SHOP: &str = "https://shop.example";
pub(crate) const OTHER: &str = "https://other.example";
const WORKERS: u32 = 4;
/// A change admits up to two requests on each node, and the burst limit must not pause the key.
pub(crate) const CHANGES_PER_KEY: u32 = 40;
/// Options that restrict a key, and the status of lookups from pages of two origins. They tighten and loosen in turn.
pub(crate) const CHANGES: [(&[&str], [u16; 2]); 6] = [
    (&["--origin", SHOP], [200, 403]),
    (&[], [200, 200]),
    (&["--network", "192.0.2.0/24"], [403, 403]),
    (&["--network", "127.0.0.0/8"], [200, 200]),
    (&["--origin", OTHER], [403, 200]),
    (&["--tickets-only"], [403, 403]),
];
/// Delays of the connections to Redis, so that a change reaches it later than PostgreSQL.
const NODE_DELAYS_MS: [u64; 3] = [0, 5, 10];
const COMMAND_DELAY_MS: u64 = 30;
/// The limit per caller of the preset for web pages, with three nodes.
const CALLER_LIMIT: u64 = 12;
/// How many times the limit of a caller one subscriber has.
const SUBSCRIBER_FACTOR: u64 = 4;
/// An office or a mobile network, and a home.
const SHARED_ADDRESS: &str = "198.51.100.7";
const VISITOR: &str = "203.0.113.9";
/// Less often than the limit of a caller.
const VISIT_INTERVAL: Duration = Duration::from_millis(2_500);

/// Replaces the restrictions of a key. They are in effect when this returns.
pub(crate) async fn restrict(deployment: &Deployment, key: &IssuedKey, options: &[&str]) {
    restrict_with_env(deployment, key, options, &[]).await;
}

async fn restrict_with_env(deployment: &Deployment, key: &IssuedKey, options: &[&str], env: &[(&str, &str)]) {
    let arguments: Vec<_> = ["key", "restrict", &key.id].into_iter().chain(options.iter().copied()).collect();
    let output = deployment.cli_with_env(env, &arguments).await.and_then(CommandOutput::ensure_success);
    let output = output.expect("command succeeds");
    assert!(!output.stderr.contains("not in effect"), "{}", output.stderr);
}

/// Makes a lookup from a page of this origin.
pub(crate) async fn lookup_from(node: &Node, key: &IssuedKey, origin: &str) -> TestResponse {
    let headers = [("authorization", key.bearer()), ("origin", origin.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    node.client().get(LOOKUP_PATH, &headers).await.expect("response arrives")
}

/// Three nodes, each with another delay to Redis.
async fn start_delayed_nodes() -> Deployment {
    let mut options = DeploymentOptions { nodes: 3, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    options.fault_proxies = true;
    let deployment = Deployment::start(options).await.expect("deployment starts");
    for (node, delay_ms) in NODE_DELAYS_MS.into_iter().enumerate() {
        let delay = Duration::from_millis(delay_ms);
        deployment.fault_proxies(node).redis.set_faults(FaultConfig { delay, ..FaultConfig::none() });
    }
    deployment
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is the result of this test")]
async fn change_of_restrictions_applies_to_the_next_request_on_any_node() {
    let deployment = start_delayed_nodes().await;
    let link = FaultProxy::open(deployment.redis.address()).expect("proxy starts");
    link.set_faults(FaultConfig { delay: Duration::from_millis(COMMAND_DELAY_MS), ..FaultConfig::none() });
    let delayed_url =
        deployment.env()[LEDGER_URL_ENV].replace(&deployment.redis.address().to_string(), &link.address().to_string());
    let changes = env_number("IPSEITY_RESTRICTION_CHANGES", 40) / WORKERS;
    let worker = async |number: u32| {
        let (mut outdated, mut key) = (0, fresh_key(&deployment, Scope::Ip).await);
        // Half of the changes are published late.
        let env: &[_] = if number.is_multiple_of(2) { &[(LEDGER_URL_ENV, delayed_url.as_str())] } else { &[] };
        for change in 0..changes {
            if change % CHANGES_PER_KEY == CHANGES_PER_KEY - 1 {
                key = fresh_key(&deployment, Scope::Ip).await;
            }
            let (options, expected) = CHANGES[(change + number) as usize % CHANGES.len()];
            restrict_with_env(&deployment, &key, options, env).await;
            for node in &deployment.nodes {
                let replies = [lookup_from(node, &key, SHOP).await, lookup_from(node, &key, OTHER).await];
                outdated += usize::from(replies.map(|reply| reply.status) != expected);
            }
        }
        outdated
    };
    let outdated: usize = join_all((0..WORKERS).map(worker)).await.into_iter().sum();
    eprintln!("{} changes on 3 nodes, {outdated} requests judged by outdated restrictions", changes * WORKERS);
    assert_eq!(outdated, 0);
}

/// Three nodes, and a key with the restrictions of the preset for web pages.
async fn web_page_deployment() -> (Deployment, IssuedKey) {
    let options = DeploymentOptions { nodes: 3, env: relaxed_timeouts(), ..DeploymentOptions::default() };
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

/// Floods all nodes at the same time, while a visitor of the allowed page looks itself up on each of them.
async fn flood_beside_visitor(
    deployment: &Deployment,
    key: &IssuedKey,
    origin: &str,
    address: impl Fn(u32) -> String + Copy,
    requests: u32,
) -> Counts {
    let each = requests / deployment.nodes.len() as u32;
    let floods = deployment.nodes.iter().enumerate().map(async |(number, node)| {
        flood(node, key, origin, |request| address(request + number as u32 * each), each).await
    });
    let (mut floods, mut visits) = (pin!(join_all(floods)), interval(VISIT_INTERVAL));
    let counts = loop {
        tokio::select! {
            counts = &mut floods => break counts,
            _ = visits.tick() => {
                for node in &deployment.nodes {
                    assert_eq!(flood(node, key, SHOP, |_| VISITOR.to_owned(), 1).await, only(200, "", 1));
                }
            }
        }
    };
    let mut total = Counts::new();
    for (outcome, count) in counts.into_iter().flatten() {
        *total.entry(outcome).or_default() += count;
    }
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_with_a_copied_key_do_not_disturb_visitors() {
    let (deployment, key) = web_page_deployment().await;
    let requests = env_number("IPSEITY_RESTRICTION_FLOOD", 999);
    let from_page = flood_beside_visitor(&deployment, &key, OTHER, |_| SHARED_ADDRESS.to_owned(), requests).await;
    assert_eq!(from_page, only(403, "origin_not_allowed", requests.into()));

    let limit = CALLER_LIMIT * deployment.nodes.len() as u64;
    // A second minute may begin meanwhile.
    let is_limited = |counts: &Counts, limit: u64| {
        let limited = ((429, "rate_limit_exceeded".to_owned()), (200, String::new()));
        let [refused, admitted] =
            [limited.0, limited.1].map(|outcome| counts.get(&outcome).copied().unwrap_or_default());
        (limit..=2 * limit).contains(&admitted) && refused + admitted == u64::from(requests)
    };
    let forged = flood_beside_visitor(&deployment, &key, SHOP, |_| SHARED_ADDRESS.to_owned(), requests).await;
    assert!(is_limited(&forged, limit), "{forged:?}");
    let address = |number: u32| format!("2001:db8:1:{:x}::{number:x}", number % 65_536);
    let from_48 = flood_beside_visitor(&deployment, &key, SHOP, address, requests).await;
    assert!(is_limited(&from_48, SUBSCRIBER_FACTOR * limit), "{from_48:?}");
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
async fn request_with_two_origins_is_rejected_over_every_protocol() {
    let deployment = shared_deployment().await;
    let (node, key) = (&deployment.nodes[0], fresh_key(deployment, Scope::Ip).await);
    restrict(deployment, &key, &["--origin", SHOP]).await;
    let (bearer, ca_file) = (key.bearer(), &deployment.certificate.ca_file);
    let mut http1 = node.client();
    let mut http2 = StreamTestClient::new(node.https(), StreamProtocol::Http2, Some(ca_file)).expect("client connects");
    let mut http3 =
        Http3TestClient::connect(Http3TestOptions::localhost(node.https(), ca_file)).await.expect("connection opens");
    for (origins, status) in [(&[SHOP][..], 200), (&[SHOP, SHOP], 403), (&[SHOP, OTHER], 403), (&[], 403)] {
        let headers = origins.iter().map(|origin| ("origin", *origin)).chain([("authorization", bearer.as_str())]);
        let headers = headers.collect::<Vec<_>>();
        let replies = [
            http1.get(LOOKUP_PATH, &headers).await,
            http2.get(LOOKUP_PATH, &headers).await,
            http3.get(LOOKUP_PATH, &headers).await,
        ];
        assert_eq!(replies.map(|reply| reply.expect("response arrives").status), [status; 3], "{origins:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_restricted_from_its_creation() {
    let deployment = three_node_deployment().await;
    let account = "created-restricted@example.com";
    deployment.create_account(account).await.expect("account is created");
    let issue = ["key", "issue", "--account", account, "--scope", "ip", "--name", "shop", "--json"];
    let options = ["--origin", SHOP, "--caller-limit", "13"];
    let output = deployment.cli(&[&issue[..], &options].concat()).await.and_then(CommandOutput::ensure_success);
    let output = output.expect("key is issued");
    let key: IssuedKey = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let warning =
        "each of the 3 nodes counts separately, and an IPv6 /48 network has 4 times this limit. Set at most 12.";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    for node in &deployment.nodes {
        let replies = [lookup_from(node, &key, SHOP).await, lookup_from(node, &key, OTHER).await];
        assert_eq!(replies.map(|reply| reply.status), [200, 403]);
    }
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
