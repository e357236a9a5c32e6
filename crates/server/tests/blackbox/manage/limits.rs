//! Requests are limited per token, unknown tokens per network, and changes per account.

use http::Method;
use ipseity_domain::TokenScope;
use serde_json::{Value, json};

use super::fixture::{Program, insert_token};
use crate::portal::fixture::PortalFixture;

/// A well-formed token that does not exist.
fn unknown_token() -> String {
    ipseity_domain::PlaintextToken::generate(|| fastrand::u8(..)).expose().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_limited_per_token() {
    let fixture = PortalFixture::open(&[("IPSEITY__MANAGE__REQUESTS_PER_TOKEN_PER_MIN_MAX", "3")]).await;
    let member = fixture.create_member().await;
    let [first, second] = [
        insert_token(&fixture, member.id, &TokenScope::ALL, "null").await,
        insert_token(&fixture, member.id, &TokenScope::ALL, "null").await,
    ];
    let program = Program::new(&fixture, &first);
    for _ in 0..3 {
        program.get("/keys").await;
    }
    let limited = program.send(Method::GET, "/keys", &Value::Null).await;
    assert_eq!(limited.json().expect("valid JSON")["error"], "rate_limit_exceeded");
    let wait_s: u64 = limited.header("retry-after").expect("header").parse().expect("number");
    assert!(limited.status == 429 && (1..=60).contains(&wait_s), "{wait_s}");
    Program::new(&fixture, &second).get("/keys").await;
    // Somebody who knows only the ID does not use up its requests.
    let mut guess = second.clone();
    guess.replace_range(20..21, if &guess[20..21] == "x" { "y" } else { "x" });
    for _ in 0..5 {
        assert_eq!(Program::new(&fixture, &guess).send(Method::GET, "/keys", &Value::Null).await.status, 401);
    }
    Program::new(&fixture, &second).get("/keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_are_limited_per_network_and_known_ones_still_work() {
    let fixture = PortalFixture::open(&[("IPSEITY__MANAGE__UNKNOWN_TOKENS_PER_SUBNET_PER_MIN_MAX", "2")]).await;
    let member = fixture.create_member().await;
    let known = Program::new(&fixture, &insert_token(&fixture, member.id, &TokenScope::ALL, "null").await);
    known.get("/keys").await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(Program::new(&fixture, &unknown_token()).send(Method::GET, "/keys", &Value::Null).await.status);
    }
    assert_eq!(statuses, [401, 401, 429, 429]);
    known.get("/keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_limited_per_account_and_revocations_are_not() {
    let fixture = PortalFixture::open(&[("IPSEITY__PORTAL__KEY_ACTIONS_PER_ACCOUNT_MAX", "2")]).await;
    let member = fixture.create_member().await;
    let program = Program::new(&fixture, &insert_token(&fixture, member.id, &TokenScope::ALL, "null").await);
    let body = json!({ "name": "shop", "scope": "ip" });
    let first = program.expect(201, Method::POST, "/keys", &body).await;
    program.expect(201, Method::POST, "/keys", &body).await;
    program.expect(429, Method::POST, "/keys", &body).await;
    let path = format!("/keys/{}", first["key"]["id"].as_str().expect("text"));
    program.expect(429, Method::PATCH, &path, &json!({ "name": "other" })).await;
    program.expect(200, Method::PATCH, &path, &json!({ "is_active": false })).await;
    program.expect(429, Method::PATCH, &path, &json!({ "is_active": true })).await;
    program.expect(200, Method::DELETE, &path, &Value::Null).await;
}
