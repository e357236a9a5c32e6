//! Requests with made-up key ids.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use ipseity_testkit::{FaultConfig, eventually};

use crate::fixture::{ApiFixture, UNKNOWN_LOOKUPS_MAX, UNKNOWN_TTL, generate_key};

#[tokio::test]
async fn unknown_keys_do_not_delay_known_ones_or_cause_errors() {
    let fixture = ApiFixture::open().await;
    let known = fixture.create_known_key().await;
    let new = fixture.create_key().await;
    // All records have to be read from a slow PostgreSQL.
    fixture.redis.flushall().await.expect("Redis answers");
    fixture.postgres_link.set_faults(FaultConfig { delay: Duration::from_millis(20), ..FaultConfig::none() });
    let unknown: Vec<_> = (0..20 * UNKNOWN_LOOKUPS_MAX).map(|_| generate_key()).collect();
    let requests: FuturesUnordered<_> =
        unknown.iter().chain([&new, &known]).map(async |key| (key.expose(), fixture.node.request(key).await)).collect();
    let finished: Vec<(&str, u16)> = requests.collect().await;
    let position = |key: &ipseity_domain::PlaintextKey| {
        finished.iter().position(|(text, _)| *text == key.expose()).expect("request finished")
    };
    for (text, status) in &finished {
        let expected = if *text == known.expose() || *text == new.expose() { 200 } else { 401 };
        assert_eq!(*status, expected);
    }
    assert!(position(&known) < finished.len() / 2, "the known key waited for unknown ones: {}", position(&known));
}

#[tokio::test]
async fn repeated_unknown_key_costs_nothing() {
    let fixture = ApiFixture::open().await;
    let unknown = generate_key();
    assert_eq!(fixture.node.request(&unknown).await, 401);
    let evalsha = async || fixture.redis.command_calls().await.expect("Redis answers").get("evalsha").copied();
    let before = evalsha().await;
    for _ in 0..10 {
        assert_eq!(fixture.node.request(&unknown).await, 401);
    }
    assert_eq!(evalsha().await, before);
}

#[tokio::test]
async fn key_that_postgres_did_not_have_is_looked_up_again() {
    let fixture = ApiFixture::open().await;
    let key = generate_key();
    assert_eq!(fixture.node.request(&key).await, 401);
    // Like a commit that a promoted replica had not received yet.
    fixture.insert_key(&key).await;
    eventually("the key is looked up again", 2 * UNKNOWN_TTL, async || fixture.node.request(&key).await == 200)
        .await
        .expect("key is admitted");
}
