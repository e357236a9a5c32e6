//! Redis with Sentinels, which promote a replica.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::LEDGER_URL_ENV;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Redis, RedisOptions, RedisSentinels, eventually};

use crate::fixture::{fresh_key, lookup_status};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_follow_a_failover_of_sentinel_without_a_restart() {
    let redis = RedisOptions { appendonly: true, ..RedisOptions::default() };
    let options = DeploymentOptions { nodes: 0, redis: redis.clone(), ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("deployment starts");
    let replica = Redis::start(redis).await.expect("Redis starts");
    replica.replicate_from(&deployment.redis).await.expect("replica is in sync");
    let mut sentinels = RedisSentinels::start(&deployment.redis, Some("hidden-word")).await.expect("Sentinels start");
    let url = sentinels.url();
    let env = Env::from([(LEDGER_URL_ENV.to_owned(), url.clone())]);
    let nodes = [deployment.start_node(&env).await, deployment.start_node(&env).await];
    let nodes = nodes.map(|node| node.expect("node starts"));
    let run = async |deployment: &Deployment, arguments: &[&str]| {
        deployment.cli_with_env(&[(LEDGER_URL_ENV, &url)], arguments).await.expect("command runs")
    };
    let check = run(&deployment, &["check"]).await.ensure_success().expect("settings are valid").text();
    assert!(check.contains("redis+sentinel://127.0.0.1:") && !check.contains("hidden-word"), "{check}");
    let doctor = run(&deployment, &["doctor"]).await.text();
    let primary = format!("at {}", deployment.redis.address());
    assert!(doctor.contains("Sentinel names the primary") && doctor.contains(&primary), "{doctor}");

    let key = fresh_key(&deployment, Scope::Ip).await;
    for node in &nodes {
        assert_eq!(lookup_status(node, &key.key).await, 200);
    }
    deployment.redis.kill9();
    for node in &nodes {
        assert_eq!(lookup_status(node, &key.key).await, 200, "local limits apply meanwhile");
    }
    sentinels.await_promotion_of(&replica).await.expect("Sentinels promote the replica");
    for node in &nodes {
        let decides = async || {
            node.metrics().await.is_ok_and(|metrics| metrics.lines().any(|line| line == "ipseity_ledger_degraded 0"))
                && lookup_status(node, &key.key).await == 200
        };
        eventually("the promoted replica decides", RECOVERY_TIMEOUT, decides).await.expect("node follows");
    }
    run(&deployment, &["key", "deactivate", &key.id]).await.ensure_success().expect("command succeeds");
    for node in &nodes {
        assert_eq!(lookup_status(node, &key.key).await, 403, "the change reaches the promoted replica");
    }
    let doctor = run(&deployment, &["doctor"]).await.text();
    assert!(doctor.contains(&format!("at {}", replica.address())), "{doctor}");
}
