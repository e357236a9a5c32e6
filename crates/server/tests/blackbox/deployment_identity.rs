//! Two Redis servers under one PostgreSQL, and a Redis of another deployment: they are detected and not trusted.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::LEDGER_URL_ENV;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, Redis, RedisOptions, TestClient, eventually};
use serde_json::Value;

use crate::fixture::{fresh_key, relaxed_timeouts};

/// Longer than a claim of a node that was killed counts.
const TRUST_TIMEOUT: Duration = Duration::from_secs(30);

async fn status(node: &Node, key: &IssuedKey) -> u16 {
    node.client().get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives").status
}

async fn readiness(node: &Node) -> Value {
    let reply = TestClient::new(node.ops()).get("/ready", &[]).await.expect("response arrives");
    serde_json::from_str(&reply.text()).expect("valid JSON")
}

async fn has_mismatch(node: &Node, reason: &str) -> bool {
    let metrics = node.metrics().await.expect("metrics are read");
    metrics.contains(&format!("ipseity_deployment_mismatch{{reason=\"{reason}\"}} 1"))
}

fn env_with_redis(redis: &Redis) -> Env {
    Env::from([(LEDGER_URL_ENV.to_owned(), redis.url())])
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_a_second_redis_is_degraded_until_it_is_alone() {
    let options = DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("deployment starts");
    let second_redis = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    let second = deployment.start_live_node(&env_with_redis(&second_redis)).await.expect("node starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!((status(&deployment.nodes[0], &key).await, status(&second, &key).await), (200, 200));
    let is_degraded = async || readiness(&second).await["degraded"] == true;
    eventually("the node is degraded", TRUST_TIMEOUT, is_degraded).await.expect("mismatch is noticed");
    let ready = readiness(&second).await;
    assert!(ready["ledger"].as_str().is_some_and(|text| text.contains("other nodes use another Redis")), "{ready}");
    assert!(has_mismatch(&second, "split_redis").await && !has_mismatch(&deployment.nodes[0], "split_redis").await);
    assert_eq!(readiness(&deployment.nodes[0]).await["degraded"], false);

    // A change reaches both nodes, although Redis of one has never seen it.
    deployment.cli(&["key", "deactivate", &key.id]).await.expect("command runs").ensure_success().expect("deactivated");
    assert_eq!(status(&deployment.nodes[0], &key).await, 403);
    let is_refused = async || status(&second, &key).await == 403;
    eventually("the other node refuses the key", Duration::from_secs(5), is_refused).await.expect("key is refused");

    let wrong_url = second_redis.url();
    let settings = [(LEDGER_URL_ENV, wrong_url.as_str())];
    // A command with the wrong Redis leaves its change to the nodes.
    let other_key = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!(status(&deployment.nodes[0], &other_key).await, 200);
    let saved = deployment.cli_with_env(&settings, &["key", "deactivate", &other_key.id]).await.expect("command runs");
    assert!(saved.is_success() && saved.stderr.contains("saved, but not in effect yet"), "{}", saved.stderr);
    assert!(!saved.stderr.contains(".."), "{}", saved.stderr);
    let is_refused = async || status(&deployment.nodes[0], &other_key).await == 403;
    eventually("a node applies the change", Duration::from_secs(5), is_refused).await.expect("key is refused");
    let doctor = deployment.cli_with_env(&settings, &["doctor"]).await.expect("command runs");
    assert!(doctor.text().contains("Other nodes use another Redis."), "{}", doctor.text());
    assert_eq!(status(&deployment.nodes[0], &key).await, 403, "the key is still inactive");

    deployment.nodes[0].terminate().await.expect("node stops");
    let is_trusted = async || readiness(&second).await["degraded"] == false;
    eventually("the node trusts its Redis", TRUST_TIMEOUT, is_trusted).await.expect("node recovers");
    assert!(!has_mismatch(&second, "split_redis").await);
    assert_eq!(status(&second, &key).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_of_another_deployment_is_not_used() {
    let options = || DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let (deployment, other) = tokio::join!(Deployment::start(options()), Deployment::start(options()));
    let (deployment, other) = (deployment.expect("deployment starts"), other.expect("deployment starts"));
    let key = fresh_key(&deployment, Scope::Ip).await;
    // It is not ready if it notices before it is asked, because it knows no key.
    let stray = deployment.start_live_node(&env_with_redis(&other.redis)).await.expect("node starts");
    let is_noticed = async || has_mismatch(&stray, "foreign_redis").await;
    eventually("the node notices", TRUST_TIMEOUT, is_noticed).await.expect("mismatch is noticed");
    assert_eq!(status(&stray, &key).await, 200, "by the local limiter");
    let dump = other.redis.dump_all().await.expect("Redis answers");
    assert!(!String::from_utf8_lossy(&dump).contains(&key.id), "nothing of the key is in the other Redis");
    assert_eq!(readiness(&other.nodes[0]).await["ledger"], "ok");
    let url = other.redis.url();
    let refused = deployment.cli_with_env(&[(LEDGER_URL_ENV, &url)], &["key", "delete", &key.id, "--yes"]).await;
    let refused = refused.expect("command runs");
    assert!(refused.stderr.contains("Redis belongs to another deployment"), "{}", refused.stderr);
    assert_eq!(status(&deployment.nodes[0], &key).await, 200);
}
