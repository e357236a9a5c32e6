//! Heartbeats: PostgreSQL lists home nodes and connected sites.

use std::time::Duration;

use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, curl, eventually};

use super::fixture::{Sites, delayed};
use crate::fixture::relaxed_timeouts;

/// Home nodes with version and state, then sites.
const LIST: &str =
    "select string_agg(concat_ws(' ', role, coalesce(version, site), is_draining), ', ' order by role, is_draining)
     from nodes";

async fn wait_for_nodes(sites: &Sites, expected: &str) {
    let postgres = &sites.deployment.postgres;
    let is_listed = async || postgres.psql("ipseity", LIST).await.is_ok_and(|rows| rows == expected);
    eventually(expected, Duration::from_secs(30), is_listed).await.expect("rows change");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_connected_sites_are_listed_with_their_state() {
    let settings = Env::from([("IPSEITY__OPS__HEARTBEAT_INTERVAL_S".to_owned(), "1".to_owned())]);
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let sites = Sites::start_at(deployment, 1, &settings).await;
    let _remote = sites.start_remote_node("syd", delayed(0)).await;
    let mut other = sites.deployment.start_node(&settings).await.expect("node starts");
    let version = env!("CARGO_PKG_VERSION");
    wait_for_nodes(&sites, &format!("home {version} f, home {version} f, remote syd f")).await;
    let connected = serde_json::json!([{ "name": "syd", "status": "operational", "message": "Connected." }]);
    eventually("the status page of home shows the site", Duration::from_secs(30), async || {
        let reply = sites.deployment.nodes[0].client().get("/status.json", &[]).await;
        reply.is_ok_and(|reply| reply.json().is_ok_and(|status| status["sites"] == connected))
    })
    .await
    .expect("the site is shown");

    let url = format!("http://{}/drain", other.ops());
    curl(&["--silent", "--request", "PUT", "--data", "draining=true", &url]).await.expect("drain is set");
    wait_for_nodes(&sites, &format!("home {version} f, home {version} t, remote syd f")).await;
    other.terminate().await.expect("node stops");
    wait_for_nodes(&sites, &format!("home {version} f, remote syd f")).await;
}
