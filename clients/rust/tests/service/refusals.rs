//! Every status that the service can answer, as the cause that it becomes; each is asked for once, whatever the budget.

use std::time::{Duration, SystemTime};

use domain::Scope;
use ipseity_client::{Cause, Client, Error, Ip, Limits, Refusal};
use testkit::CliOutput;

use crate::relay::Relay;
use crate::{base_url, failing, house, issue, spend, spent};

const UNKNOWN: &str = "ips_000000000000000000000000000000000000000000000000";

/// What the client for this key is told through this relay, which is asked once.
async fn refused(relay: &Relay, path: &str, key: &str) -> Refusal {
    let before = relay.asked();
    let client = Client::<Ip>::open(&format!("{}{path}", relay.url()), key).expect("a client");
    let told = unwrap(client.lookup().await);
    assert_eq!(relay.asked() - before, 1, "{told}");
    told
}

fn unwrap<A: std::fmt::Debug>(outcome: Result<A, Error>) -> Refusal {
    let error = outcome.expect_err("a refusal");
    let Error::Refused(refusal) = error else { panic!("{error}") };
    *refusal
}

/// Holds a refusal of the service's own to what all of them carry.
#[track_caller]
fn holds(refusal: &Refusal, status: u16, code: &str, anchor: &str) {
    assert_eq!((refusal.status, refusal.code.as_str()), (status, code));
    assert!(refusal.docs.ends_with(&format!("#{anchor}")) && refusal.message.ends_with('.'), "{refusal:?}");
    assert_eq!(refusal.request_id.as_ref().map(String::len), Some(16));
    assert_eq!(refusal.retry_after.is_some(), status == 429);
}

#[track_caller]
fn holds_limits(refusal: &Refusal, limits: &Limits, limit: u64) {
    assert_eq!((limits.limit, limits.remaining), (limit, 0));
    let to_reset = limits.reset.duration_since(SystemTime::now()).expect("in the future");
    let difference = to_reset.abs_diff(refusal.retry_after.expect("Retry-After"));
    assert!(difference < Duration::from_secs(5), "{difference:?}");
}

async fn straight() -> Relay {
    Relay::start(vec![house().await.nodes[0].http()], |text| text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn status_401_for_no_key_and_one_that_does_not_exist() {
    let relay = straight().await;
    let missing = refused(&relay, "", "").await;
    holds(&missing, 401, "missing_api_key", "missing_api_key");
    assert_eq!(missing.cause, Cause::MissingKey);
    let invalid = refused(&relay, "", UNKNOWN).await;
    holds(&invalid, 401, "invalid_api_key", "invalid_api_key");
    assert_eq!(invalid.cause, Cause::InvalidKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_403_for_a_deactivated_key() {
    let (house, relay) = (house().await, straight().await);
    let key = issue(house, Scope::Ip).await;
    house.cli(&["key", "deactivate", &key.id]).await.and_then(CliOutput::success).expect("deactivated");
    let inactive = refused(&relay, "", &key.key).await;
    holds(&inactive, 403, "inactive_api_key", "inactive-keys");
    assert_eq!(inactive.cause, Cause::InactiveKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_429_pauses_a_key_that_exceeds_the_burst_limit_and_403_keeps_it_so() {
    let (house, relay) = (house().await, straight().await);
    let key = issue(house, Scope::Ip).await;
    spend(house, &key, 300).await;
    let burst = refused(&relay, "", &key.key).await;
    holds(&burst, 429, "rate_limit_exceeded", "burst-limit");
    let Cause::BurstLimit { limits } = &burst.cause else { panic!("{burst:?}") };
    holds_limits(&burst, limits, 300);
    assert_eq!(burst.retry_after, Some(Duration::from_secs(60)));
    let paused = refused(&relay, "", &key.key).await;
    holds(&paused, 403, "inactive_api_key", "paused-keys");
    assert_eq!(paused.cause, Cause::PausedKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_429_for_a_spent_day() {
    let (house, relay) = (house().await, straight().await);
    let day = refused(&relay, "", &spent(house).await.0.key).await;
    holds(&day, 429, "rate_limit_exceeded", "daily-quota");
    let Cause::DailyQuota { limits, enterprise } = &day.cause else { panic!("{day:?}") };
    holds_limits(&day, limits, 1);
    assert!(enterprise.ends_with("/enterprise"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_429_for_a_spent_demo() {
    // Other tests ask the demo too, and a node remembers that it is spent.
    let house = crate::start().await;
    let mut caller = house.nodes[0].caller();
    while caller.get("/api/v1/ip/demo", &[]).await.expect("an answer").status == 200 {}
    let demo = unwrap(Client::open_demo(&base_url(&house)).expect("a client").lookup().await);
    holds(&demo, 429, "rate_limit_exceeded", "demo-quota");
    let Cause::DemoQuota { limits, signup } = &demo.cause else { panic!("{demo:?}") };
    holds_limits(&demo, limits, 1_000);
    assert!(signup.ends_with("/signup"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_404_405_and_414_for_requests_that_went_astray() {
    let (house, relay) = (house().await, straight().await);
    let key = issue(house, Scope::Ip).await.key;
    let lost = refused(&relay, "/nowhere", &key).await;
    holds(&lost, 404, "not_found", "not_found");
    assert_eq!(lost.cause, Cause::NotFound);
    let long = refused(&relay, &format!("/{}", "x".repeat(5_000)), &key).await;
    holds(&long, 414, "uri_too_long", "bad_request");
    assert_eq!(long.cause, Cause::UriTooLong);
    let posting = Relay::start(vec![house.nodes[0].http()], |text| text.replacen("GET /", "POST /", 1)).await;
    let posted = refused(&posting, "", &key).await;
    holds(&posted, 405, "method_not_allowed", "method_not_allowed");
    assert_eq!(posted.cause, Cause::MethodNotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_400_and_431_have_no_body_and_are_unexpected() {
    let (house, relay) = (house().await, straight().await);
    let garbling =
        Relay::start(vec![house.nodes[0].http()], |text| text.replacen("\r\naccept:", "\r\naccept ", 1)).await;
    let garbled = refused(&garbling, "", UNKNOWN).await;
    let large = refused(&relay, "", &"x".repeat(20_000)).await;
    assert_eq!((garbled.status, garbled.cause), (400, Cause::Unexpected));
    assert_eq!((large.status, large.cause), (431, Cause::Unexpected));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_500_for_a_node_without_its_stores() {
    let (house, key) = failing().await;
    let keyed = Client::<Ip>::open(&base_url(house), &key.key).expect("a client").retry_budget(0).lookup().await;
    let demo = Client::open_demo(&base_url(house)).expect("a client").retry_budget(0).lookup().await;
    for internal in [unwrap(keyed), unwrap(demo)] {
        holds(&internal, 500, "internal_error", "internal_error");
        assert_eq!(internal.cause, Cause::Internal);
    }
}
