//! API keys: where they are read, which are rejected, and their three states.

use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, KeyId, PlaintextKey, Scope};
use ipseity_testkit::deployment::node::{Env, FAILED_ATTEMPTS_ENV};
use ipseity_testkit::{Deployment, IssuedKey, TestClient, TestResponse};
use serde_json::Value;

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::{frozen_clock, rate_limit_headers};
use crate::lookup::{IP_FIELDS, field_names, lookup_with_key};

/// Looks up with these Authorization headers and this query.
async fn lookup_with_credentials(caller: &mut TestClient, header_values: &[&str], query: &str) -> TestResponse {
    let headers: Vec<_> = header_values.iter().map(|value| ("authorization", *value)).collect();
    caller.get(&format!("/api/v1/ip{query}"), &headers).await.expect("response arrives")
}

async fn run_cli(deployment: &Deployment, arguments: &[&str]) -> ipseity_testkit::CommandOutput {
    deployment.cli(arguments).await.and_then(ipseity_testkit::CommandOutput::ensure_success).expect("command succeeds")
}

async fn rotate_key(deployment: &Deployment, key: &IssuedKey, overlap_s: &str) -> IssuedKey {
    let rotated = run_cli(deployment, &["key", "rotate", &key.id, "--overlap-s", overlap_s, "--json"]).await;
    serde_json::from_slice(&rotated.stdout).expect("issue a key")
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_key_error_names_both_ways_to_send_one() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for query in ["", "?", "?scope=ip", "?Key=x", "?token=x"] {
        let message = ExpectedError::MISSING_KEY
            .assert_matches(&lookup_with_credentials(&mut caller, &[], query).await)["message"]
            .to_string();
        assert!(message.contains("Authorization: Bearer <API_KEY>") && message.contains("key=<API_KEY>"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_accepted_in_header_or_query() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let (bearer, encoded) = (key.bearer(), key.key.replacen('i', "%69", 1));
    let (plain, last_in_query) = (format!("?key={}", key.key), format!("?scope=ip&x=&key={encoded}"));
    let placements: [(&[&str], &str); 3] = [(&[&bearer], ""), (&[], &plain), (&[], &last_in_query)];
    for (header_values, query) in placements {
        let reply = lookup_with_credentials(&mut caller, header_values, query).await;
        assert_eq!(
            (reply.status, field_names(&reply.json().expect("valid JSON"))),
            (200, IP_FIELDS.into()),
            "{header_values:?} {query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bearer_scheme_is_case_insensitive() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    for scheme in ["bearer", "BEARER", "bEaReR", "Bearer  "] {
        assert_eq!(
            lookup_with_credentials(&mut caller, &[&format!("{scheme} {}", key.key)], "").await.status,
            200,
            "{scheme}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_key_takes_precedence_over_query_even_if_invalid() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    let (narrow, wide) = (fresh_key(deployment, Scope::Ip).await, fresh_key(deployment, Scope::Full).await);
    let wide_query = format!("?key={}", wide.key);
    let reply = lookup_with_credentials(&mut caller, &[&narrow.bearer()], &wide_query).await;
    assert_eq!(field_names(&reply.json().expect("valid JSON")), IP_FIELDS.into());
    ExpectedError::INVALID_KEY
        .assert_matches(&lookup_with_credentials(&mut caller, &["Bearer nonsense"], &wide_query).await);
    assert_eq!(lookup_with_credentials(&mut caller, &[&narrow.bearer()], "?key=nonsense").await.status, 200);
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &wide).await).remaining,
        9_999,
        "the query's key was charged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_scheme_or_empty_key_counts_as_missing() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let query = format!("?key={}", key.key);
    for value in ["Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "Token x", "", "Digest a=b", &key.key] {
        assert_eq!(lookup_with_credentials(&mut caller, &[value], &query).await.status, 200, "{value:?}");
        ExpectedError::MISSING_KEY.assert_matches(&lookup_with_credentials(&mut caller, &[value], "").await);
    }
    for query in ["?key=", "?key", "?key=&scope=ip"] {
        ExpectedError::MISSING_KEY.assert_matches(&lookup_with_credentials(&mut caller, &[], query).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_without_bearer_scheme_gets_an_error_that_names_the_scheme() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    for prefix in ["", "Bearer\t", "Token ", "Basic "] {
        let value = format!("{prefix}{}", key.key);
        let reply = lookup_with_credentials(&mut caller, &[&value], "").await;
        let body = ExpectedError::MISSING_KEY.assert_matches(&reply).to_string();
        assert!(body.contains("Scheme `Bearer` missing") && body.contains("key=<API_KEY>"), "{body}");
        assert!(!body.contains(&key.key), "the response repeats the key");
    }
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining, 9_999, "a refusal was charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_several_credentials_is_used() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let (good, bearer) = (&key.key, key.bearer());
    assert_eq!(lookup_with_credentials(&mut caller, &[], &format!("?key={good}&key=nonsense")).await.status, 200);
    ExpectedError::INVALID_KEY
        .assert_matches(&lookup_with_credentials(&mut caller, &[], &format!("?key=nonsense&key={good}")).await);
    ExpectedError::MISSING_KEY
        .assert_matches(&lookup_with_credentials(&mut caller, &[], &format!("?key=&key={good}")).await);
    assert_eq!(lookup_with_credentials(&mut caller, &[&bearer, "Bearer nonsense"], "").await.status, 200);
    ExpectedError::INVALID_KEY
        .assert_matches(&lookup_with_credentials(&mut caller, &["Bearer nonsense", &bearer], "").await);
    ExpectedError::MISSING_KEY.assert_matches(&lookup_with_credentials(&mut caller, &["Basic x", &bearer], "").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_unknown_keys_wait_unless_a_proxy_sends_them() {
    let env = Env::from([(FAILED_ATTEMPTS_ENV.to_owned(), "20".to_owned())]);
    let node = shared_deployment().await.start_node(&env).await.expect("node starts");
    let unknown_key = PlaintextKey::generate(|| fastrand::u8(..));
    let path = format!("/api/v1/ip?key={}", unknown_key.expose());
    let through_proxy = [("x-forwarded-for", "203.0.113.9")];
    for (headers, waits) in [(&[][..], true), (&through_proxy, false)] {
        let mut caller = node.client();
        let start = Instant::now();
        for _ in 0..24 {
            ExpectedError::INVALID_KEY.assert_matches(&caller.get(&path, headers).await.expect("response arrives"));
        }
        // 20 do not wait, four wait for a second each.
        assert_eq!(start.elapsed() > Duration::from_secs(3), waits, "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_key_is_invalid() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let known = KeyId::parse(&key.id).expect("valid ID");
    let unknown_key = PlaintextKey::generate(|| fastrand::u8(..));
    let wrong_secret = PlaintextKey::rotate(known, || fastrand::u8(..));
    for invalid in [
        unknown_key.expose(),
        wrong_secret.expose(),
        "x",
        "ips_",
        &key.id,
        &key.key[..51],
        &format!("{}0", key.key),
        &key.key.to_uppercase(),
        &key.key.replacen("ips_", "ipx_", 1),
        "%FF%FE%00",
        "%E2%9C%93",
        &"0".repeat(1_000),
    ] {
        let reply = lookup_with_credentials(&mut caller, &[], &format!("?key={invalid}")).await;
        let body = ExpectedError::INVALID_KEY.assert_matches(&reply);
        assert!(!body.to_string().contains(&key.key[14..46]), "the response repeats a secret");
        if !invalid.contains('%') {
            ExpectedError::INVALID_KEY
                .assert_matches(&lookup_with_credentials(&mut caller, &[&format!("Bearer {invalid}")], "").await);
        }
    }
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining,
        9_999,
        "requests with a wrong secret were charged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secret_cannot_pause_a_key() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let wrong = PlaintextKey::rotate(KeyId::parse(&key.id).expect("valid ID"), || fastrand::u8(..));
    let bearer = format!("Bearer {}", wrong.expose());
    for _ in 0..320 {
        ExpectedError::INVALID_KEY.assert_matches(&lookup_with_credentials(&mut caller, &[&bearer], "").await);
    }
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining, 9_999);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_of_a_rotated_key_share_one_quota() {
    let deployment = shared_deployment().await;
    let (mut caller, old) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let first = rate_limit_headers(&lookup_with_key(&mut caller, &old).await).remaining;
    let new = rotate_key(deployment, &old, "3600").await;
    assert_eq!((&new.id, new.key == old.key), (&old.id, false));
    for (key, remaining) in [(&old, first - 1), (&new, first - 2)] {
        assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, key).await).remaining, remaining);
    }
    let newest = rotate_key(deployment, &old, "0").await;
    for revoked in [&old, &new] {
        ExpectedError::INVALID_KEY.assert_matches(&lookup_with_key(&mut caller, revoked).await);
    }
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &newest).await).remaining, first - 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_secret_expires_exactly_after_the_overlap() {
    let fixture = frozen_clock().await;
    fixture.clock.set_offset_ms(0);
    let (mut caller, old) = (fixture.deployment.nodes[0].client(), fresh_key(&fixture.deployment, Scope::Ip).await);
    let new = rotate_key(&fixture.deployment, &old, "3600").await;
    for (later_ms, old_status) in [(0, 200), (3_500_000, 200), (3_601_000, 401)] {
        fixture.clock.set_offset_ms(later_ms);
        assert_eq!(lookup_with_key(&mut caller, &old).await.status, old_status, "after {later_ms} ms");
        assert_eq!(lookup_with_key(&mut caller, &new).await.status, 200, "after {later_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_key_is_invalid() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    run_cli(deployment, &["key", "delete", &key.id, "--yes"]).await;
    ExpectedError::INVALID_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn deactivated_key_is_rejected_and_not_charged() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let before = rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining;
    run_cli(deployment, &["key", "deactivate", &key.id]).await;
    for _ in 0..3 {
        let message = ExpectedError::INACTIVE_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await)["message"]
            .to_string();
        assert!(message.contains("deactivated"), "{message}");
    }
    run_cli(deployment, &["key", "reactivate", &key.id]).await;
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining, before - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inactive_state_takes_precedence_over_paused() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    let pause = format!("update keys set paused_at = now() where id = '{}'", key.id);
    deployment.postgres.psql("ipseity", &pause).await.expect("pause the key");
    let state = async || {
        let owner =
            format!("select email from accounts a join keys k on k.account_id = a.id where k.id = '{}'", key.id);
        let owner = deployment.postgres.psql("ipseity", &owner).await.expect("key has an owner");
        let listed = run_cli(deployment, &["key", "list", "--account", &owner, "--json"]).await.json_lines();
        listed.expect("valid JSON")[0]["state"].clone()
    };
    ExpectedError::PAUSED_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
    assert_eq!(state().await, "paused");
    run_cli(deployment, &["key", "deactivate", &key.id]).await;
    ExpectedError::INACTIVE_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
    assert_eq!(state().await, "inactive");
    run_cli(deployment, &["key", "reactivate", &key.id]).await;
    ExpectedError::PAUSED_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
    run_cli(deployment, &["key", "deactivate", &key.id]).await;
    run_cli(deployment, &["key", "resume", &key.id]).await;
    ExpectedError::INACTIVE_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
    run_cli(deployment, &["key", "reactivate", &key.id]).await;
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining,
        9_999,
        "a rejected request was charged"
    );
    assert_eq!(state().await, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_has_the_documented_format() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let rest = key.key.strip_prefix("ips_").expect("prefix exists");
    assert!(rest.len() == 48 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(&rest[..10], key.id);
    assert!(ApiKey::parse(&key.key).is_some(), "the checksum");
    let page = deployment.nodes[0].client().get("/docs/authentication", &[]).await.expect("page loads").text();
    assert!(page.contains("ips_[0-9A-Za-z]{48}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_stored_as_a_digest_and_listed_by_id() {
    let deployment = shared_deployment().await;
    deployment.create_account("digest@example.com").await.expect("create an account");
    let key = deployment.issue_key("digest@example.com", Scope::Geo).await.expect("issue a key");
    let digest_query = format!("select digest = sha256('{}') from keys where id = '{}'", key.key, key.id);
    assert_eq!(deployment.postgres.psql("ipseity", &digest_query).await.expect("query returns a row"), "t");
    let row = format!("select keys::text from keys where id = '{}'", key.id);
    assert!(!deployment.postgres.psql("ipseity", &row).await.expect("query returns a row").contains(&key.key[14..]));
    let listed = run_cli(deployment, &["key", "list", "--account", "digest@example.com", "--json"])
        .await
        .json()
        .expect("one line of JSON");
    assert_eq!((&listed["id"], &listed["scope"]), (&Value::from(key.id.as_str()), &Value::from("geo")));
    assert_eq!(listed["state"], "active");
    assert!(!listed.to_string().contains(&key.key[14..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_body_is_ignored() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let url = format!("http://{}/api/v1/ip", deployment.nodes[0].http());
    let bearer = format!("authorization: {}", key.bearer());
    let plain = deployment.curl(&["-H", &bearer, &url]).await.expect("response arrives").json().expect("valid JSON");
    assert_eq!(field_names(&plain), IP_FIELDS.into());
    for kind in ["content-type: application/json", "content-type: nonsense", "transfer-encoding: chunked"] {
        let sent = ["-X", "GET", "-H", kind, "--data-binary", "{\"key\":\"x\",\"scope\":\"full\"}"];
        let with_body = deployment.curl(&[&sent[..], &["-H", &bearer, &url]].concat()).await.expect("response arrives");
        assert_eq!(with_body.json().expect("valid JSON"), plain, "{kind}");
    }
    let demo = format!("{url}/demo");
    let response = deployment
        .curl(&["-X", "GET", "--data-binary", "{}", &demo])
        .await
        .expect("response arrives")
        .json()
        .expect("valid JSON");
    assert_eq!(response["status"], "success");
    let in_body = format!("key={}", key.key);
    let keyless = deployment.curl(&["-X", "GET", "--data-binary", &in_body, &url]).await.expect("response arrives");
    assert_eq!(keyless.json().expect("valid JSON")["error"], "missing_api_key");
}
