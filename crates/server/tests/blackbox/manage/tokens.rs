//! The page of personal tokens: a token is shown once, and creating, revoking and allowing more needs a recent sign-in.

use http::Method;
use ipseity_domain::TokenScope;
use ipseity_testkit::eventually;
use serde_json::Value;
use std::time::Duration;

use super::fixture::{Program, create_token, token_shown_on};
use crate::portal::fixture::{PortalFixture, assert_redirects_to, fresh_secret, shared_fixture};

const PAGE: &str = "/account/tokens";

#[tokio::test(flavor = "multi_thread")]
async fn token_is_shown_once_listed_with_its_use_and_revoked_immediately() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let token = create_token(&mut member, "build <server>", &[TokenScope::KeysRead, TokenScope::UsageRead]).await;
    fixture.smtp.wait_for_email(&member.email, "personal token").await.expect("email arrives");
    let page = member.browser.get(PAGE).await.text();
    let id = &token[4..14];
    assert!(page.contains("build &#60;server&#62;") && page.contains(&format!("ipm_{id}…")), "{page}");
    assert!(page.contains("keys:read, usage:read") && page.contains("Not used yet") && !page.contains(&token[14..]));
    let stored = fixture.psql(&format!("select t::text from personal_tokens t where id = '{id}'")).await;
    assert!(!stored.contains(&token[14..]), "only a hash is stored: {stored}");

    let account = member.browser.get("/account").await.text();
    assert!(account.contains("delete_credentials"), "a new password can revoke it: {account}");
    let program = Program::new(fixture, &token);
    program.get("/keys").await;
    let last_used = format!("select last_used_at from personal_tokens where id = '{id}'");
    eventually("the use", Duration::from_secs(10), async || !fixture.psql(&last_used).await.is_empty())
        .await
        .expect("the use is recorded");
    let first_use = fixture.psql(&last_used).await;
    program.get("/keys").await;
    assert_eq!(fixture.psql(&last_used).await, first_use, "at most once per hour");
    assert!(member.browser.get(PAGE).await.text().contains("Last used"));

    assert_redirects_to(&member.browser.post(&format!("{PAGE}/{id}/revoke"), &[]).await, PAGE);
    program.expect(401, Method::GET, "/keys", &Value::Null).await;
    let log = member.browser.get("/account").await.text();
    assert!(!log.contains("delete_credentials"), "nothing else to remove with the password: {log}");
    assert!(log.contains("Personal token created") && log.contains("Personal token revoked"), "{log}");
    let events = format!(
        "select string_agg(action || ' ' || subject, ', ' order by id) from audit_events where account_id = {} and action like 'token%'",
        member.id
    );
    assert_eq!(fixture.psql(&events).await, "token_created build <server>, token_revoked build <server>");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_tokens_need_a_recent_sign_in() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let token = create_token(&mut member, "robot", &[TokenScope::KeysRead]).await;
    let age = format!("update sessions set created_at = now() - interval '1 hour' where account_id = {}", member.id);
    fixture.psql(&age).await;
    let revoke = format!("{PAGE}/{}/revoke", &token[4..14]);
    for (path, field) in [(PAGE, "keys:write"), (&*revoke, "x"), ("/account/tokens/resume", "may_resume")] {
        let reply = member.browser.post(path, &[("name", "another"), (field, "on")]).await;
        assert_redirects_to(&reply, "/account/confirm");
    }
    assert_eq!(
        fixture.psql(&format!("select count(*) from personal_tokens where account_id = {}", member.id)).await,
        "1"
    );
    Program::new(fixture, &token).get("/keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_needs_a_name_and_a_scope_and_an_account_has_a_limit() {
    let fixture = PortalFixture::open(&[("IPSEITY__MANAGE__TOKENS_PER_ACCOUNT_MAX", "2")]).await;
    let mut member = fixture.create_member().await;
    for fields in [&[("name", "robot")][..], &[("name", " "), ("keys:read", "on")], &[("name", "robot"), ("all", "on")]]
    {
        let page = member.browser.post(PAGE, fields).await;
        assert!(page.status == 200 && page.text().contains("error-message"), "{}", page.text());
        assert_eq!(token_shown_on(&page), None);
    }
    let (csrf_page, form) = (member.browser.get(PAGE).await, fresh_secret());
    assert_eq!(csrf_page.status, 200);
    let fields = [("name", "robot"), ("keys:read", "on"), ("lifetime_days", "0"), ("form", form.as_str())];
    let again = [member.browser.post(PAGE, &fields).await, member.browser.post(PAGE, &fields).await];
    assert!(again[0].text().contains("ipm_"), "{}", again[0].text());
    let expiries =
        format!("select count(*) from personal_tokens where account_id = {} and expires_at is null", member.id);
    assert!(fixture.psql(&expiries).await.parse::<u32>().expect("number") >= 1);
    let fill = format!("delete from personal_tokens where account_id = {}", member.id);
    fixture.psql(&fill).await;
    for _ in 0..2 {
        create_token(&mut member, "robot", &[TokenScope::KeysRead]).await;
    }
    let reply = member.browser.post(PAGE, &[("name", "third"), ("keys:read", "on")]).await;
    assert_redirects_to(&reply, PAGE);
    assert_eq!(
        fixture.psql(&format!("select count(*) from personal_tokens where account_id = {}", member.id)).await,
        "2"
    );
}
