//! Tokens resume paused keys only if the owner allows it.

use http::Method;
use ipseity_domain::{Scope, TokenScope};
use serde_json::Value;

use super::fixture::{Program, create_token};
use crate::fixture::lookup_status;
use crate::portal::alert_emails::send_lookups;
use crate::portal::fixture::{PortalFixture, assert_redirects_to};

#[tokio::test(flavor = "multi_thread")]
async fn paused_key_is_resumed_only_if_the_owner_allows_it() {
    let fixture = PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    let scopes = [TokenScope::KeysRead, TokenScope::KeysResume];
    let program = Program::new(&fixture, &create_token(&mut member, "robot", &scopes).await);
    assert_eq!(send_lookups(&fixture, &key, 301).await, 429);
    let path = format!("/keys/{}", key.id);
    let paused = program.get(&path).await["key"].clone();
    assert_eq!((&paused["state"], &paused["key_status"]), (&"paused".into(), &"paused".into()));
    assert!(paused["pause"]["requests"].as_u64() >= Some(301), "{paused}");

    let resume = format!("{path}/resume");
    let refused = program.expect(403, Method::POST, &resume, &Value::Null).await;
    assert_eq!(refused["error"], "resume_not_allowed", "off by default");
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 403);
    let reply = member.browser.post("/account/tokens/resume", &[("may_resume", "on")]).await;
    assert_redirects_to(&reply, "/account/tokens");
    let resumed = program.expect(200, Method::POST, &resume, &Value::Null).await;
    assert_eq!((&resumed["key"]["state"], &resumed["key"]["pause"]), (&"active".into(), &Value::Null));
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 200);
    let pauses = program.get(&format!("{path}/pauses")).await["pauses"].clone();
    let pause = &pauses[0];
    assert_eq!((pauses.as_array().map(Vec::len), &pause["is_current"]), (Some(1), &false.into()));
    assert_eq!(
        (&pause["resumed_by"], pause["requests_per_second"].as_array().map(Vec::len)),
        (&"owner".into(), Some(60))
    );

    // Once a minute, like the owner.
    assert_eq!(send_lookups(&fixture, &key, 300).await, 429);
    let early = program.send(Method::POST, &resume, &Value::Null).await;
    assert_eq!(early.status, 429, "{}", early.text());
    let wait_s: u64 = early.header("retry-after").expect("header").parse().expect("number");
    assert!((1..=60).contains(&wait_s), "{wait_s}");

    let reply = member.browser.post("/account/tokens/resume", &[]).await;
    assert_redirects_to(&reply, "/account/tokens");
    program.expect(403, Method::POST, &resume, &Value::Null).await;
    let events = "select string_agg(action, ', ' order by id) from audit_events where action like 'token%'";
    assert_eq!(fixture.psql(events).await, "token_created, token_resume_allowed, token_resume_forbidden");
    let resumed_with = format!("select token from audit_events where action = 'resumed' and key_id = '{}'", key.id);
    assert_eq!(fixture.psql(&resumed_with).await, "robot");
    fixture.smtp.wait_for_email(&member.email, "personal tokens").await.expect("email arrives");
}
