//! Forms are accepted only with the CSRF token of the same session and from the same origin.

use ipseity_store::OperatorRole;

use super::fixture::{ConsoleFixture, ConsoleTarget, shared_fixture};
use super::routes::{ROUTE_CASES, RouteCase};
use crate::portal::browser::{Browser, CONSOLE_COOKIE, SAME_ORIGIN, SESSION_COOKIE};

/// Headers of a form that another site submitted. Another port of the same host is the same site.
const CROSS_SITE_HEADERS: [&[(&str, &str)]; 6] = [
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("origin", "http://evil.example")],
    &[("origin", "http://localhost:1")],
    &[("origin", "null")],
    &[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
];

fn form_cases(is_public: bool) -> impl Iterator<Item = &'static RouteCase> {
    let is_for_visitors = |case: &RouteCase| case.path.starts_with("/signin") || case.path.starts_with("/join/");
    ROUTE_CASES.iter().filter(move |case| case.is_form() && is_for_visitors(case) == is_public)
}

/// Submits a form in every invalid way and asserts that each is rejected.
async fn assert_form_rejected(
    browser: &mut Browser,
    (case, path): (&RouteCase, &str),
    target: &ConsoleTarget,
    wrong_tokens: &[String],
) {
    let (name, token, fields) = (case.name(), browser.csrf_token().await, case.fields_for(target));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let without_token = browser.post_with(path, &[SAME_ORIGIN], &fields).await;
    assert_eq!(without_token.status, 403, "{name} without a token: {}", without_token.text());
    assert!(without_token.text().contains("Session expired"), "{name}: {}", without_token.text());
    for wrong in wrong_tokens {
        let reply = browser.post_with(path, &[SAME_ORIGIN], &[&fields[..], &[("csrf", wrong)]].concat()).await;
        assert_eq!(reply.status, 403, "{name} with another token: {}", reply.text());
    }
    let with_token = [&fields[..], &[("csrf", &token)]].concat();
    for headers in CROSS_SITE_HEADERS {
        let reply = browser.post_with(path, headers, &with_token).await;
        assert_eq!(reply.status, 403, "{name} with {headers:?}: {}", reply.text());
        assert!(reply.text().contains("Request blocked"), "{name} with {headers:?}: {}", reply.text());
    }
    let token_in_query = browser.post_with(&format!("{path}?csrf={token}"), &[SAME_ORIGIN], &fields).await;
    assert_eq!(token_in_query.status, 403, "{name} with its token in the URL");
    for kind in ["text/plain", "application/json"] {
        let reply = browser.post_body(path, kind, format!("csrf={token}")).await;
        assert_eq!(reply.status, 403, "{name} as {kind}");
    }
}

/// Tokens of other sessions: of a visitor, another operator and the portal.
async fn tokens_of_others(fixture: &ConsoleFixture) -> Vec<String> {
    let mut other = fixture.sign_in(OperatorRole::Admin).await;
    let tokens = [
        fixture.browser().csrf_token().await,
        other.browser.csrf_token().await,
        fixture.portal.browser().csrf_token().await,
    ];
    [&tokens[..], &[String::new(), "0".repeat(32)]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn form_requires_the_token_of_its_session() {
    let fixture = shared_fixture().await;
    let (target, wrong_tokens) = (fixture.create_target().await, tokens_of_others(fixture).await);
    for case in form_cases(false) {
        let mut admin = fixture.sign_in(OperatorRole::Admin).await;
        let before = fixture.snapshot(&target, &[&admin]).await;
        let path = case.path_for(&target, Some(&admin));
        assert_form_rejected(&mut admin.browser, (case, &path), &target, &wrong_tokens).await;
        assert_eq!(fixture.snapshot(&target, &[&admin]).await, before, "{}", case.name());
        assert_eq!(admin.browser.get("/profile").await.status, 200, "the session continues");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_visitors_requires_the_token_of_its_browser() {
    let fixture = shared_fixture().await;
    let (target, wrong_tokens) = (fixture.create_target().await, tokens_of_others(fixture).await);
    let mut browser = fixture.browser();
    let before = fixture.snapshot(&target, &[]).await;
    for case in form_cases(true) {
        let path = case.path_for(&target, None);
        assert_form_rejected(&mut browser, (case, &path), &target, &wrong_tokens).await;
        // Without a cookie no token is valid.
        let token = browser.csrf_token().await;
        let reply = fixture.browser().post_with(&path, &[SAME_ORIGIN], &[("csrf", &token)]).await;
        assert_eq!(reply.status, 403, "{} without a cookie", case.name());
    }
    assert_eq!(fixture.snapshot(&target, &[]).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_of_the_portal_and_the_console_are_separate() {
    let fixture = shared_fixture().await;
    let mut admin = fixture.sign_in(OperatorRole::Admin).await;
    let cookie = admin.browser.cookie(CONSOLE_COOKIE).expect("browser has the cookie").to_owned();
    let (mut portal, mut console) = (fixture.portal.browser(), fixture.browser());
    portal.set_cookie(SESSION_COOKIE, &cookie);
    assert_eq!(portal.get("/account").await.status, 303, "an operator is no member");
    let member = fixture.portal.create_member().await;
    let cookie = member.browser.cookie(SESSION_COOKIE).expect("browser has the cookie").to_owned();
    console.set_cookie(CONSOLE_COOKIE, &cookie);
    assert_eq!(console.get("/").await.status, 303, "a member is no operator");
    // A browser sends both cookies to both ports.
    admin.browser.set_cookie(SESSION_COOKIE, &cookie);
    assert_eq!(admin.browser.get("/").await.status, 200);
    let origin = fixture.node().console_url();
    let token = admin.browser.csrf_token().await;
    for headers in [&[("origin", origin.as_str())][..], &[]] {
        let reply = admin.browser.post_with("/profile/sessions/end-others", headers, &[("csrf", &token)]).await;
        assert_eq!(reply.status, 303, "{headers:?}");
    }
}
