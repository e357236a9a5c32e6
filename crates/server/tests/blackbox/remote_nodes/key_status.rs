//! The status of a key at a remote node, which asks home.

use ipseity_domain::{KeyId, PlaintextKey, Scope};
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
