//! Changes of keys by a program take effect with the next request, and the audit log names the token.

use http::Method;
use ipseity_domain::TokenScope;
use serde_json::{Value, json};

use super::fixture::{Program, create_token};
use crate::fixture::lookup_status;
use crate::portal::fixture::{PortalFixture, shared_fixture};

const SCOPES: [TokenScope; 3] = [TokenScope::KeysRead, TokenScope::KeysWrite, TokenScope::UsageRead];

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_take_effect_with_the_next_request_and_the_audit_log_names_the_token() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let program = Program::new(fixture, &create_token(&mut member, "build server", &SCOPES).await);
    let created = program.expect(201, Method::POST, "/keys", &json!({ "name": "shop", "scope": "geo" })).await;
    let (id, first) = (text(&created["key"]["id"]).to_owned(), text(&created["secret"]).to_owned());
    assert_eq!(lookup_status(fixture.node(), &first).await, 200);
    let path = format!("/keys/{id}");
    for reads in [program.get("/keys").await, program.get(&path).await, program.get("/usage").await] {
        assert!(!reads.to_string().contains(&first[14..]), "a secret is returned once: {reads}");
    }
    let key = program.get(&path).await["key"].clone();
    assert_eq!((&key["name"], &key["scope"], &key["state"]), (&"shop".into(), &"geo".into(), &"active".into()));
    assert_eq!((&key["used_today"], &key["limits"]["burst"]), (&1.into(), &300.into()));

    let patch = async |body: Value| program.expect(200, Method::PATCH, &path, &body).await;
    assert_eq!(patch(json!({ "is_active": false })).await["key"]["state"], "inactive");
    assert_eq!(lookup_status(fixture.node(), &first).await, 403);
    let changed = patch(json!({ "is_active": true, "name": "store" })).await;
    assert_eq!((&changed["key"]["name"], &changed["applied"]), (&"store".into(), &true.into()));
    assert_eq!(lookup_status(fixture.node(), &first).await, 200);

    let rotated = program.expect(200, Method::POST, &format!("{path}/rotate"), &json!({ "overlap_s": 3600 })).await;
    let second = text(&rotated["secret"]).to_owned();
    assert!(rotated["key"]["previous_secret_until"].is_string());
    for secret in [&first, &second] {
        assert_eq!(lookup_status(fixture.node(), secret).await, 200);
    }
    program.expect(200, Method::POST, &format!("{path}/revoke-previous"), &Value::Null).await;
    assert_eq!(lookup_status(fixture.node(), &first).await, 401);

    let usage = program.get(&format!("/usage?key={id}")).await;
    assert_eq!((&usage["days"][0]["admitted"], &usage["days"][0]["key"]), (&4.into(), &id.as_str().into()));
    program.expect(200, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(lookup_status(fixture.node(), &second).await, 401);
    program.expect(404, Method::GET, &path, &Value::Null).await;

    let events = format!(
        "select string_agg(action || ' ' || actor || ' ' || token, ', ' order by id) from audit_events where key_id = '{id}'"
    );
    let actions = ["issued", "deactivated", "renamed", "reactivated", "rotated", "previous_revoked", "deleted"];
    let expected = actions.map(|action| format!("{action} owner build server")).join(", ");
    assert_eq!(fixture.psql(&events).await, expected);
    let audit = fixture.deployment.cli(&["audit", "--key", &id, "--limit", "1"]).await.expect("command runs").text();
    assert!(audit.contains("owner (token build server)"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restrictions_are_set_replaced_and_checked() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let program = Program::new(fixture, &create_token(&mut member, "robot", &SCOPES).await);
    let body =
        json!({ "name": "shop", "scope": "ip", "restrictions": { "networks": ["192.0.2.0/24"], "daily_limit": 30.0 } });
    let created = program.expect(201, Method::POST, "/keys", &body).await;
    let (path, secret) = (format!("/keys/{}", text(&created["key"]["id"])), text(&created["secret"]).to_owned());
    assert_eq!(created["key"]["limits"]["day"], 30);
    assert_eq!(lookup_status(fixture.node(), &secret).await, 403);
    let changed = program.expect(200, Method::PATCH, &path, &json!({ "restrictions": {} })).await;
    assert_eq!(changed["key"]["restrictions"]["networks"], json!([]));
    assert_eq!(lookup_status(fixture.node(), &secret).await, 200);
    for invalid in [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "a\u{0}b" }),
        json!({ "owner": "me" }),
        json!({ "restrictions": { "origins": ["example.com"] } }),
        json!({ "restrictions": { "networks": vec!["192.0.2.1"; 51] } }),
        json!({ "restrictions": { "expires_at": "2020-01-01T00:00:00Z" } }),
        json!({ "restrictions": { "caller_limit": 0 } }),
        json!({ "restrictions": { "caller_limit": 4_294_967_297_u64 } }),
        json!({ "restrictions": { "daily_limit": -1 } }),
        json!({ "restrictions": { "tickets_only": true, "origins": ["https://example.com"] } }),
        // Nothing changes, also not the valid part.
        json!({ "name": "valid", "restrictions": { "caller_limit": 1.5 } }),
    ] {
        let reply = program.expect(400, Method::PATCH, &path, &invalid).await;
        assert_eq!(reply["error"], "bad_request", "{invalid}");
    }
    assert_eq!(program.get(&path).await["key"]["name"], "shop");
    for (target, invalid) in [
        ("/keys".to_owned(), json!({ "name": "shop" })),
        ("/keys".to_owned(), json!({ "name": "shop", "scope": "all" })),
        ("/keys".to_owned(), json!([])),
        (format!("{path}/rotate"), json!({})),
        (format!("{path}/rotate"), json!({ "overlap_s": 604_801 })),
    ] {
        program.expect(400, Method::POST, &target, &invalid).await;
    }
    let large = json!({ "name": "x".repeat(100_000), "scope": "ip" });
    program.expect(400, Method::POST, "/keys", &large).await;
    for unknown in ["/keys/0000000000", "/keys/%ff", "/keys/x", "/usage?key=0000000000"] {
        program.expect(404, Method::GET, unknown, &Value::Null).await;
    }
    assert_eq!(lookup_status(fixture.node(), &secret).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limit_of_the_account_is_exact_for_concurrent_programs() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let token = create_token(&mut member, "robot", &SCOPES).await;
    let body = json!({ "name": "shop", "scope": "ip" });
    let create = async || Program::new(fixture, &token).send(Method::POST, "/keys", &body).await.status;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (first, second, third, fourth) = tokio::join!(create(), create(), create(), create());
        statuses.extend([first, second, third, fourth]);
    }
    let created = statuses.iter().filter(|status| **status == 201).count();
    let rejected = statuses.iter().filter(|status| **status == 409).count();
    assert_eq!((created, rejected), (10, 2), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_with_a_part_that_is_refused_changes_nothing() {
    let fixture = PortalFixture::open(&[]).await;
    fixture.psql("update deployment set restrictions_enabled = false").await;
    let mut member = fixture.create_member().await;
    let program = Program::new(&fixture, &create_token(&mut member, "build server", &SCOPES).await);
    let created = program.expect(201, Method::POST, "/keys", &json!({ "name": "shop", "scope": "ip" })).await;
    let path = format!("/keys/{}", text(&created["key"]["id"]));
    let change = json!({ "is_active": false, "restrictions": { "daily_limit": 7 } });
    program.expect(409, Method::PATCH, &path, &change).await;
    assert_eq!(program.get(&path).await["key"]["state"], "active");
}
