//! Channels of alerts: a program creates one, gets its secret once, and tests it.

use http::Method;
use ipseity_domain::TokenScope;
use ipseity_testkit::{ReceiverReply, WebhookReceiver};
use serde_json::{Value, json};

use super::fixture::{Program, create_token};
use crate::portal::fixture::PortalFixture;

#[tokio::test(flavor = "multi_thread")]
async fn channel_is_created_tested_changed_and_deleted() {
    let fixture = PortalFixture::open(&[("IPSEITY__ALERTS__ALLOWED_NETWORKS", "127.0.0.0/8")]).await;
    let mut member = fixture.create_member().await;
    let scopes = [TokenScope::AlertsRead, TokenScope::AlertsWrite];
    let program = Program::new(&fixture, &create_token(&mut member, "robot", &scopes).await);
    let hook = WebhookReceiver::start(|_| ReceiverReply::Status(204)).expect("receiver starts");
    let body = json!({ "kind": "webhook", "url": hook.url(), "alerts": ["paused", "paused"] });
    let created = program.expect(201, Method::POST, "/channels", &body).await;
    let secret = created["secret"].as_str().expect("text").to_owned();
    assert!(secret.starts_with("whsec_") && created["channel"]["alerts"] == json!(["paused"]), "{created}");
    fixture.smtp.wait_for_email(&member.email, "Alerts about your Ipseity keys").await.expect("email arrives");
    let path = format!("/channels/{}", created["channel"]["id"]);
    assert!(!program.get(&path).await.to_string().contains(&secret));
    assert!(!program.get("/channels").await.to_string().contains(&secret));
    program.expect(200, Method::POST, &format!("{path}/test"), &Value::Null).await;
    assert_eq!(hook.wait_for(1).await.expect("test arrives")[0].json()["type"], "test");
    let rotated = program.expect(200, Method::POST, &format!("{path}/rotate-secret"), &Value::Null).await;
    assert_ne!(rotated["secret"], secret.as_str());
    assert!(rotated["channel"]["previous_secret_until"].is_string());
    let changed = program.expect(200, Method::PATCH, &path, &json!({ "alerts": ["resumed", "created"] })).await;
    assert_eq!(
        (&changed["channel"]["alerts"], &changed["channel"]["url"]),
        (&json!(["resumed", "created"]), &json!(hook.url()))
    );
    for (method, target, invalid) in [
        (Method::PATCH, path.as_str(), json!({})),
        (Method::PATCH, &path, json!({ "alerts": [] })),
        (Method::PATCH, &path, json!({ "url": "https://169.254.169.254/" })),
        (Method::POST, "/channels", json!({ "kind": "email", "url": hook.url(), "alerts": ["paused"] })),
        (Method::POST, "/channels", json!({ "kind": "slack", "url": "ftp://example.com/", "alerts": ["paused"] })),
    ] {
        program.expect(400, method, target, &invalid).await;
    }
    program.expect(200, Method::DELETE, &path, &Value::Null).await;
    program.expect(404, Method::GET, &path, &Value::Null).await;
    program.expect(404, Method::GET, "/channels/x", &Value::Null).await;
    program.expect(404, Method::DELETE, &path, &Value::Null).await;
    let events = "select string_agg(action || ' ' || token || ' ' || subject, ', ' order by id) from audit_events
                  where action like 'channel%'";
    let origin = hook.url().splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let expected = ["created", "tested", "secret_rotated", "changed", "deleted"];
    assert_eq!(
        fixture.psql(events).await,
        expected.map(|action| format!("channel_{action} robot {origin}")).join(", ")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_that_is_off_says_so_and_a_new_url_turns_it_on() {
    let fixture = PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    let scopes = [TokenScope::AlertsRead, TokenScope::AlertsWrite];
    let program = Program::new(&fixture, &create_token(&mut member, "robot", &scopes).await);
    let body = json!({ "kind": "slack", "url": "https://hooks.example/services/SECRET", "alerts": ["paused"] });
    let created = program.expect(201, Method::POST, "/channels", &body).await["channel"].clone();
    assert_eq!((&created["url"], &created["off_since"]), (&json!("https://hooks.example"), &Value::Null));
    fixture.psql("update alert_channels set off_since = now()").await;
    let path = format!("/channels/{}", created["id"]);
    assert!(program.get(&path).await["channel"]["off_since"].is_string());
    let url = json!({ "url": "https://hooks.example/services/OTHER" });
    let changed = program.expect(200, Method::PATCH, &path, &url).await["channel"].clone();
    let alerts = program.expect(200, Method::PATCH, &path, &json!({ "alerts": ["resumed"] })).await["channel"].clone();
    assert_eq!(alerts["alerts"], json!(["resumed"]));
    assert_eq!(fixture.psql("select url from alert_channels").await, "https://hooks.example/services/OTHER");
    assert!(
        changed["off_since"].is_null() && !program.get("/channels").await.to_string().contains("OTHER"),
        "{changed}"
    );
}
