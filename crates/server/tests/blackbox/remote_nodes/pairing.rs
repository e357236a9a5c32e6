//! Tokens of pairing that home nodes and remote nodes issue, and the keys that they share.

use std::fs;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::{FaultConfig, Node, StreamTestClient, TestDir, eventually};
use serde_json::json;

use super::fixture::Sites;
use crate::fixture::fresh_key;
use crate::pairing::{LOOKUP_PATH, addresses_of, pairing_env, request_token};

const OLD_KEY: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NEW_KEY: &str = "2222222222222222222222222222222222222222222222222222222222222222";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_the_same_keys_open_tokens_of_each_other() {
    let sites = Sites::start(1).await;
    let (dir, key) = (TestDir::create().expect("directory"), fresh_key(&sites.deployment, Scope::Ip).await);
    let key_file = |number: usize| dir.path().join(format!("keys-{number}"));
    let write_keys = |number: usize, text: &str| fs::write(key_file(number), text).expect("write file");
    let shared_env = |number: usize, base_url: &str| {
        let file = key_file(number).display().to_string();
        pairing_env(&[("SEALING_KEY_FILE", &file), ("BASE_URL", base_url)])
    };
    for number in 0..2 {
        write_keys(number, &format!("seal {OLD_KEY}\n"));
    }
    let home = sites.deployment.start_node(&shared_env(0, "https://localhost")).await.expect("node starts");
    let site = sites.start_remote_node_with("syd", FaultConfig::none(), shared_env(1, "https://localhost")).await;
    let alone =
        sites.deployment.start_node(&pairing_env(&[("BASE_URL", "https://localhost")])).await.expect("node starts");
    let elsewhere = sites.deployment.start_node(&shared_env(0, "https://localhost:1")).await.expect("node starts");
    let bearer = key.bearer();
    let unused_at = async |from: &Node, at: &Node| {
        let token = request_token(&mut from.client(), &[]).await;
        let headers = [("authorization", &*bearer), ("ipseity-pair", &*token), ("x-forwarded-for", "2001:db8::7")];
        let mut client = StreamTestClient::new(at.http(), StreamProtocol::Http2, None).expect("client connects");
        let reply = client.get(LOOKUP_PATH, &headers).await.expect("response arrives");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let (ip, ipv6, unused) = addresses_of(&reply);
        assert_eq!((ip.is_null(), &ipv6), (unused.is_some(), &json!("2001:db8::7")));
        unused.map(str::to_owned)
    };
    for (from, at, unused) in [
        (&home, &site.node, None),
        (&site.node, &home, None),
        (&alone, &alone, None),
        (&alone, &home, Some("unreadable")),
        (&home, &alone, Some("unreadable")),
        (&home, &elsewhere, Some("unreadable")),
    ] {
        assert_eq!(unused_at(from, at).await.as_deref(), unused);
    }
    // Accept everywhere, then seal, then retire. A file that is invalid changes nothing.
    write_keys(1, &format!("seal {OLD_KEY}\naccept {NEW_KEY}\n"));
    let accepted = async || site.node.log().is_ok_and(|log| log.matches("sealing keys loaded").count() == 2);
    eventually("the site accepts the new key", Duration::from_secs(10), accepted).await.expect("keys are loaded");
    write_keys(0, &format!("seal {NEW_KEY}\n"));
    let sealed = async || home.log().is_ok_and(|log| log.matches("sealing keys loaded").count() == 2);
    eventually("home seals with the new key", Duration::from_secs(10), sealed).await.expect("keys are loaded");
    assert_eq!(unused_at(&home, &site.node).await, None);
    assert_eq!(unused_at(&site.node, &home).await.as_deref(), Some("unreadable"), "the old key is retired");
    write_keys(0, "seal 0123");
    let rejected = async || home.log().is_ok_and(|log| log.contains("sealing keys rejected"));
    eventually("home rejects the file", Duration::from_secs(10), rejected).await.expect("file is rejected");
    assert_eq!(unused_at(&home, &site.node).await, None);
    assert!([&home, &site.node].iter().all(|node| !node.log().expect("log").contains("0123")), "no key is logged");
}
