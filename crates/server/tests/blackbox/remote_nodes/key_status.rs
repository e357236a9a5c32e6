//! The status of a key at a remote node, which asks home.

use std::time::Duration;

use ipseity_domain::{KeyId, PlaintextKey, Scope};
use ipseity_testkit::eventually;
use serde_json::json;

use super::fixture::{Sites, delayed};
use crate::errors::ExpectedError;
use crate::fixture::fresh_key;
use crate::lookup::lookup_with_key;

#[tokio::test(flavor = "multi_thread")]
async fn remote_node_gets_the_status_of_a_key_from_home() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("ams", delayed(1)).await;
    let (mut caller, key) = (remote.node.client(), fresh_key(&sites.deployment, Scope::Geo).await);
    for _ in 0..2 {
        assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    }
    let reply = caller.get("/api/v1/key", &[("authorization", &key.bearer())]).await.expect("response arrives");
    let body = reply.json().expect("valid JSON");
    assert_eq!((reply.status, &body["scope"], &body["state"]), (200, &json!("geo"), &json!("active")), "{body}");
    assert_eq!(body["usage"], json!({ "day": 2, "burst": 2 }));
    let wrong = PlaintextKey::rotate(KeyId::parse(&key.id).expect("valid id"), || fastrand::u8(..));
    for invalid in [wrong, PlaintextKey::generate(|| fastrand::u8(..))] {
        let bearer = format!("Bearer {}", invalid.expose());
        let reply = caller.get("/api/v1/key", &[("authorization", &bearer)]).await.expect("response arrives");
        ExpectedError::INVALID_KEY.assert_matches(&reply);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_a_remote_node_raise_the_alert_about_the_burst_limit() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("ams", delayed(1)).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    // Half at home.
    for node in [&remote.node, &sites.deployment.nodes[0]] {
        let mut caller = node.client();
        for _ in 0..120 {
            assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
        }
    }
    let mut caller = remote.node.client();
    let reply = caller.get("/api/v1/key", &[("authorization", &key.bearer())]).await.expect("response arrives");
    assert_eq!(reply.json().expect("valid JSON")["key_status"], "near_burst_limit");
    let alerts = format!("select count(*) from alerts where kind = 'near_burst_limit' and key_id = '{}'", key.id);
    eventually("the alert is raised", Duration::from_secs(20), async || {
        sites.deployment.postgres.psql("ipseity", &alerts).await.expect("PostgreSQL answers") == "1"
    })
    .await
    .expect("happens in time");
}
