//! PostgreSQL fails over to a streaming replica that had not received the last commits. Redis keeps its data.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, DeploymentOptions, FaultConfig, FaultProxy, IssuedKey, TestClient, eventually};

use crate::fixture::{fresh_key, relaxed_timeouts};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

async fn status(client: &mut TestClient, key: &IssuedKey) -> u16 {
    client.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives").status
}

async fn change_key(deployment: &Deployment, arguments: &[&str]) {
    let output = deployment.cli(&[&["key"], arguments].concat()).await.expect("command runs");
    assert!(output.is_success() && output.stderr.is_empty(), "{arguments:?}: {}", output.stderr);
}

async fn pause(client: &mut TestClient, key: &IssuedKey) {
    for _ in 0..301 {
        if status(client, key).await == 429 {
            return;
        }
    }
    panic!("301 requests did not pause the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_after_a_failover_that_lost_commits_are_in_effect_on_the_next_request() {
    let options = DeploymentOptions { fault_proxies: true, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let mut deployment = Deployment::start(options).await.expect("deployment starts");
    let mut client = deployment.nodes[0].client();
    let mut keys = Vec::new();
    for _ in 0..4 {
        let key = fresh_key(&deployment, Scope::Ip).await;
        assert_eq!(status(&mut client, &key).await, 200);
        keys.push(key);
    }
    let [paused, resumed, rotated, revoked] = keys.try_into().ok().expect("four keys");

    let link = FaultProxy::open(deployment.postgres.address()).expect("proxy opens");
    let replica = deployment.postgres.start_replica(link.address()).await.expect("replica starts");
    let count = "select count(*) from keys";
    let has_keys = async || replica.psql("ipseity", count).await.is_ok_and(|count| count == "4");
    eventually("the replica has all keys", RECOVERY_TIMEOUT, has_keys).await.expect("replica is up to date");

    // None of these commits reaches the replica.
    link.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
    pause(&mut client, &paused).await;
    pause(&mut client, &resumed).await;
    change_key(&deployment, &["rotate", &rotated.id, "--overlap-s", "3600"]).await;
    change_key(&deployment, &["deactivate", &revoked.id]).await;
    assert_eq!(status(&mut client, &paused).await, 403);
    assert_eq!(status(&mut client, &rotated).await, 200, "the previous secret is still valid");
    assert_eq!(status(&mut client, &revoked).await, 403);
    deployment.postgres.kill9();
    link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    replica.promote().await.expect("replica is promoted");
    let generations = "select string_agg(generation::text, '') from keys";
    assert_eq!(replica.psql("ipseity", generations).await.expect("query succeeds"), "1111", "the commits are lost");
    deployment.replace_postgres(replica);

    // The generations of these changes are those that Redis already has.
    change_key(&deployment, &["deactivate", &rotated.id]).await;
    assert_eq!(status(&mut client, &rotated).await, 403, "a revocation after the failover");
    change_key(&deployment, &["resume", &resumed.id]).await;
    assert_eq!(status(&mut client, &resumed).await, 200, "a resume after the failover");

    // What only Redis has is given up, without a change of the key.
    let is_active = async || status(&mut deployment.nodes[0].client(), &revoked).await == 200;
    eventually("the lost revocation", RECOVERY_TIMEOUT, is_active).await.expect("the key has the state of PostgreSQL");
    // The burst window still has 300 requests, so the next one pauses the key again. That pause is recorded.
    let is_recorded = async || {
        let refused = status(&mut deployment.nodes[0].client(), &paused).await;
        assert!([403, 429].contains(&refused), "{refused}");
        let query = format!("select paused_at is not null from keys where id = '{}'", paused.id);
        deployment.postgres.psql("ipseity", &query).await.is_ok_and(|is_paused| is_paused == "t")
    };
    eventually("the pause is recorded again", RECOVERY_TIMEOUT, is_recorded).await.expect("pause is recorded");
    change_key(&deployment, &["resume", &paused.id]).await;
    assert_eq!(status(&mut client, &paused).await, 200);
    change_key(&deployment, &["deactivate", &revoked.id]).await;
    assert_eq!(status(&mut client, &revoked).await, 403);
}
