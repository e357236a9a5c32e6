//! What is sent again, how often, and what ends a lookup early.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use domain::Scope;
use ipseity_client::{Cause, Client, Error, Ip};
use testkit::CliOutput;
use tokio::net::TcpListener;

use crate::relay::Relay;
use crate::{failing, house, issue, spent};

/// Nothing listens here.
const NOBODY: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

async fn relay(servers: Vec<SocketAddr>) -> Relay {
    Relay::start(servers, |text| text).await
}

fn client(relay: &Relay, key: &str) -> Client<Ip> {
    Client::open(&relay.url(), key).expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_500_and_a_connection_that_breaks_are_tried_again_until_an_answer_comes() {
    let good = house().await;
    let key = issue(good, Scope::Ip).await.key;
    for bad in [failing().await.0.nodes[0].http(), NOBODY.into()] {
        let relay = relay(vec![bad, good.nodes[0].http()]).await;
        client(&relay, &key).lookup().await.expect("an answer");
        assert_eq!(relay.asked(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_is_tried_three_times_at_the_most() {
    let (bad, key) = failing().await;
    let broken = relay(vec![NOBODY.into()]).await;
    let told = client(&broken, &key.key).lookup().await.expect_err("nobody");
    assert!(matches!(told, Error::Connection(_)), "{told}");
    let failed = relay(vec![bad.nodes[0].http()]).await;
    // Each try waits for stores that are not there, on a busy machine for seconds.
    let told = client(&failed, &key.key).timeout(Duration::from_secs(60)).lookup().await.expect_err("a 500");
    assert!(matches!(&told, Error::Refused(refusal) if refusal.cause == Cause::Internal), "{told}");
    assert_eq!((broken.asked(), failed.asked()), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_bounds_all_retries_of_a_client_and_its_clones() {
    let relay = relay(vec![NOBODY.into()]).await;
    let client = client(&relay, "ips_").retry_budget(3);
    for asked in [3, 5, 6] {
        client.clone().lookup().await.expect_err("nobody");
        assert_eq!(relay.asked(), asked, "1 + 2 retries, 1 + 1, 1 + 0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_waited_for_if_it_ends_before_the_time_limit() {
    let house = house().await;
    let (key, email) = spent(house).await;
    // Midnight may be far: the wait is shortened on the way, and what heals the key is a larger plan.
    let shorten = |text: String| match text.split_once("\r\nretry-after: ") {
        Some((head, tail)) => {
            format!("{head}\r\nretry-after: 2{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text,
    };
    let relay = Relay::start(vec![house.nodes[0].http()], shorten).await;
    let start = Instant::now();
    let hasty = client(&relay, &key.key).timeout(Duration::from_millis(1_500));
    let told = hasty.lookup().await.expect_err("a spent day");
    assert!(matches!(told, Error::Refused(refusal) if refusal.retry_after == Some(Duration::from_secs(2))));
    assert_eq!(relay.asked(), 1);

    let patient = client(&relay, &key.key);
    let lookup = tokio::spawn(async move { patient.lookup().await });
    testkit::eventually("the day is told to be spent", Duration::from_secs(10), async || relay.asked() == 2)
        .await
        .expect("asked");
    let plan = ["account", "plan", "--email", &email, "--plan", "free"];
    house.cli(&plan).await.and_then(CliOutput::success).expect("a larger plan");
    let answer = lookup.await.expect("a task").expect("an answer");
    assert_eq!((answer.limits.limit, relay.asked()), (10_000, 3));
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_limit_ends_a_lookup_which_is_then_not_sent_again() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let relay = relay(vec![silent.local_addr().expect("an address")]).await;
    let told = client(&relay, "ips_").timeout(Duration::from_millis(200)).lookup().await.expect_err("silence");
    assert!(matches!(told, Error::Timeout(limit) if limit == Duration::from_millis(200)), "{told}");
    assert_eq!(relay.asked(), 1);
}

#[test]
fn what_cannot_be_sent_is_told_when_the_client_is_made() {
    for (base_url, key) in [("no address", "ips_"), ("https://ip.example", "two\nlines")] {
        let told = Client::<Ip>::open(base_url, key).expect_err("no client");
        assert!(matches!(told, Error::Setup(_)) && !told.to_string().contains(key), "{told}");
    }
}

#[test]
fn a_client_does_not_show_its_key() {
    let client = Client::<Ip>::open("https://ip.example", "ips_secret").expect("a client");
    assert!(!format!("{client:?}").contains("ips_secret"));
}
