//! Remote nodes whose connection to home is cut, stalls or is slow.

use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{FaultConfig, IssuedKey, RedisOptions, TestClock, eventually};
use tokio::time::sleep;

use super::fixture::{RemoteNode, Sites, delayed, read_metric};
use crate::fixture::{fresh_key, lookup_status};

const WITHIN: Duration = Duration::from_secs(30);

async fn send(remote: &RemoteNode, key: &IssuedKey, times: usize) -> u64 {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += u64::from(lookup_status(&remote.node, &key.key).await == 200);
    }
    admitted
}

/// The first request of a key needs home. On a busy machine home may need longer than its timeout, so it learns the key
/// from a home node first.
///
/// Returns the number of requests without an answer, which may be charged.
async fn admit_first_requests(sites: &Sites, remote: &RemoteNode, key: &IssuedKey) -> u64 {
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &key.key).await, 200);
    let mut unanswered = 0;
    while send(remote, key, 1).await == 0 {
        unanswered += 1;
        assert!(unanswered < 10, "the key stays unknown");
    }
    assert_eq!(send(remote, key, 1).await, 1);
    unanswered
}

/// Waits until each admitted request is charged once, or reported as unverifiable. Unanswered requests may be charged.
async fn wait_until_charged(sites: &Sites, remote: &RemoteNode, key: &IssuedKey, admitted: u64, unanswered: u64) {
    let accounted =
        async || sites.charged(&key.id).await + read_metric(&remote.node, "ipseity_unverifiable_charges_total").await;
    let is_complete = eventually("the charges are reconciled", WITHIN, async || accounted().await >= admitted);
    let is_complete = is_complete.await.is_ok();
    sleep(Duration::from_secs(1)).await;
    let (accounted, expected) = (accounted().await, admitted..=admitted + unanswered);
    assert!(is_complete && expected.contains(&accounted), "{accounted} of {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_node_without_home_continues_with_local_limits_and_reconciles() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("syd", delayed(10)).await;
    let (known, unknown) =
        (fresh_key(&sites.deployment, Scope::Ip).await, fresh_key(&sites.deployment, Scope::Ip).await);
    assert_eq!(send(&remote, &known, 5).await, 5);
    // Its connections are closed, so it does not wait for the timeout.
    remote.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    eventually("the cut is noticed", WITHIN, async || !remote.is_connected().await).await.expect("cut is noticed");
    assert_eq!(send(&remote, &known, 295).await, 295);
    assert_eq!(lookup_status(&remote.node, &unknown.key).await, 500, "only home knows this key");
    assert_eq!(lookup_status(&remote.node, &known.key).await, 429, "the 301st request of this node");
    remote.set_faults(delayed(10));
    wait_until_charged(&sites, &remote, &known, 300, 0).await;
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &known.key).await, 403, "the pause is known at home");
    let pauses = format!("select count(*) from pauses where key_id = '{}'", known.id);
    eventually("the pause is recorded", WITHIN, async || {
        let pauses = sites.deployment.postgres.psql("ipseity", &pauses).await.expect("query succeeds");
        pauses.trim() == "1"
    })
    .await
    .expect("pause is recorded");
    assert_eq!(lookup_status(&remote.node, &unknown.key).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_that_arrives_at_home_after_8_seconds_is_not_applied() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node_with("syd", FaultConfig::none(), Env::new()).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let unanswered = admit_first_requests(&sites, &remote, &key).await;
    let held = FaultConfig { hold_requests_before: Some(Instant::now()), ..FaultConfig::none() };
    remote.set_faults(held);
    let start = Instant::now();
    assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
    assert!(start.elapsed() < Duration::from_secs(8), "the local limiter decides after the timeout");
    sleep(Duration::from_secs(8)).await;
    remote.set_faults(FaultConfig::none());
    assert_eq!(send(&remote, &key, 3).await, 3);
    wait_until_charged(&sites, &remote, &key, 7, unanswered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_or_killed_home_node_is_replaced_by_the_next() {
    let mut sites = Sites::start(2).await;
    let remote = sites.start_remote_node_with("syd", FaultConfig::none(), Env::new()).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    let unanswered = admit_first_requests(&sites, &remote, &key).await;
    let mut admitted = 3;
    sites.deployment.nodes[0].freeze();
    for _ in 0..20 {
        admitted += send(&remote, &key, 1).await;
        sleep(Duration::from_millis(200)).await;
    }
    eventually("the next home node is used", WITHIN, async || remote.is_connected().await).await.expect("connects");
    assert_eq!(admitted, 23, "a known key is always answered");
    sites.deployment.nodes[0].thaw();
    wait_until_charged(&sites, &remote, &key, 23, unanswered).await;
    sites.deployment.nodes[1].kill9();
    eventually("the first home node is used", WITHIN, async || remote.is_connected().await).await.expect("connects");
    assert_eq!(send(&remote, &key, 3).await, 3);
    wait_until_charged(&sites, &remote, &key, 26, unanswered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn home_decides_also_after_its_clock_was_set_back() {
    let clock = TestClock::open().expect("clock opens");
    let redis = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
    let sites = Sites::start_with(1, redis).await;
    let remote = sites.start_remote_node("syd", delayed(75)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    assert_eq!(send(&remote, &key, 1).await, 1);
    for _ in 0..5 {
        clock.advance_ms(-500);
        assert_eq!(send(&remote, &key, 1).await, 1);
    }
    assert_eq!(read_metric(&remote.node, "ipseity_degraded_decisions_total").await, 0);
    wait_until_charged(&sites, &remote, &key, 6, 0).await;
}
