//! Forms are accepted only with the CSRF token of the same session and from the same origin.

use super::browser::{Browser, SAME_ORIGIN};
use super::fixture::{PASSWORD, PortalFixture, assert_redirects_to, fresh_secret, shared_fixture};
use super::routes::{AccountFixture, ROUTE_CASES, RouteCase};

/// Headers of a form that another site submitted.
const CROSS_SITE_HEADERS: [&[(&str, &str)]; 4] = [
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("origin", "https://evil.example")],
    &[("origin", "null")],
];

/// An account, a browser that signed in, out and in again, and its earlier CSRF tokens.
async fn sign_in_and_out(fixture: &PortalFixture) -> (AccountFixture, Browser, Vec<String>) {
    let (owner, _) = AccountFixture::create(fixture).await;
    let credentials = [("email", owner.email.as_str()), ("password", PASSWORD)];
    let mut browser = fixture.browser();
    let mut stale = vec![browser.csrf_token().await];
    assert_redirects_to(&browser.post("/signin", &credentials).await, "/keys");
    stale.push(browser.csrf_token().await);
    assert_redirects_to(&browser.post("/signout", &[]).await, "/signin");
    stale.push(browser.csrf_token().await);
    assert_redirects_to(&browser.post("/signin", &credentials).await, "/keys");
    (owner, browser, stale)
}

/// Submits a form in every invalid way and asserts that each is rejected.
async fn assert_form_rejected(browser: &mut Browser, row: &RouteCase, owner: &AccountFixture, wrong_tokens: &[String]) {
    let (name, path, fields) = (row.name(), owner.path_for(row), owner.fields_for(row));
    let token = browser.csrf_token().await;
    let without_token = browser.post_with(&path, &[SAME_ORIGIN], &fields).await;
    assert_eq!(without_token.status, 403, "{name} without a token: {}", without_token.text());
    for bad in wrong_tokens {
        let reply = browser.post_with(&path, &[SAME_ORIGIN], &[&fields[..], &[("csrf", bad)]].concat()).await;
        assert_eq!(reply.status, 403, "{name} with another token: {}", reply.text());
    }
    let with_token = [&fields[..], &[("csrf", &token)]].concat();
    for headers in CROSS_SITE_HEADERS {
        let reply = browser.post_with(&path, headers, &with_token).await;
        assert_eq!(reply.status, 403, "{name} with {headers:?}: {}", reply.text());
    }
    let token_in_query = browser.post_with(&format!("{path}?csrf={token}"), &[SAME_ORIGIN], &fields).await;
    assert_eq!(token_in_query.status, 403, "{name} with its token in the URL");
    for kind in ["text/plain", "application/json"] {
        let reply = browser.post_body(&path, kind, format!("csrf={token}")).await;
        assert_eq!(reply.status, 403, "{name} as {kind}");
    }
}

fn form_cases(for_members: bool) -> impl Iterator<Item = &'static RouteCase> {
    ROUTE_CASES.iter().filter(move |row| row.is_form() && row.is_for_members() == for_members)
}

#[tokio::test(flavor = "multi_thread")]
async fn member_form_requires_the_token_of_its_session() {
    let fixture = shared_fixture().await;
    let (owner, mut browser, stale) = sign_in_and_out(fixture).await;
    let mut other = fixture.create_member().await;
    let wrong_tokens = [stale, vec![String::new(), "0".repeat(32), other.browser.csrf_token().await]].concat();
    let before = fixture.snapshot(&owner.email, &browser).await;
    for row in form_cases(true) {
        assert_form_rejected(&mut browser, row, &owner, &wrong_tokens).await;
        assert_eq!(fixture.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
    assert_eq!(browser.get("/keys").await.status, 200, "the session continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_form_requires_the_token_of_its_session() {
    let fixture = shared_fixture().await;
    let (owner, mut browser, mut wrong_tokens) = sign_in_and_out(fixture).await;
    wrong_tokens.extend([browser.csrf_token().await, fixture.browser().csrf_token().await, String::new()]);
    assert_redirects_to(&browser.post("/signout", &[]).await, "/signin");
    let before = fixture.snapshot(&owner.email, &browser).await;
    for row in form_cases(false) {
        assert_form_rejected(&mut browser, row, &owner, &wrong_tokens).await;
        // Without a cookie no token is valid.
        let token = browser.csrf_token().await;
        let with_token = [&owner.fields_for(row)[..], &[("csrf", &token)]].concat();
        let reply = fixture.browser().post_with(&owner.path_for(row), &[SAME_ORIGIN], &with_token).await;
        assert_eq!(reply.status, 403, "{} without a cookie", row.name());
        assert_eq!(fixture.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_with_valid_token_and_origin_is_accepted() {
    let fixture = shared_fixture().await;
    for row in ROUTE_CASES.iter().filter(|row| row.is_form()) {
        let (owner, mut browser) = AccountFixture::create(fixture).await;
        let rejected = browser.post_with(&owner.path_for(row), &[SAME_ORIGIN], &owner.fields_for(row)).await;
        let reply = owner.visit(&mut browser, row).await;
        assert_eq!(reply.status, row.status, "{}: {}", row.name(), reply.text());
        // Some are rejected for another reason, with another page.
        assert_ne!(reply.body, rejected.body, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_with_only_an_origin_header_is_accepted() {
    let fixture = shared_fixture().await;
    let (_, mut browser) = AccountFixture::create(fixture).await;
    let token = browser.csrf_token().await;
    let own = format!("https://{}", fixture.node().http());
    for headers in [&[("origin", own.as_str())][..], &[]] {
        let form_token = fresh_secret();
        let fields = [("name", "by its origin"), ("scope", "ip"), ("csrf", &token), ("form", &form_token)];
        assert_eq!(browser.post_with("/keys", headers, &fields).await.status, 200, "{headers:?}");
    }
}
