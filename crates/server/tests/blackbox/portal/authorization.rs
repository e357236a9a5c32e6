//! Two accounts and an anonymous visitor on every route, with every method: no account can be read or changed by others.

use std::collections::BTreeSet;

use http::Method;
use ipseity_portal::PORTAL_ROUTES;

use super::browser::Browser;
use super::fixture::{PASSWORD, PortalFixture, assert_redirects_to, shared_fixture};
use super::routes::{AccountFixture, ROUTE_CASES, RouteCase};

#[test]
fn every_portal_route_has_a_test_case() {
    let routes: BTreeSet<_> = PORTAL_ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let rows: BTreeSet<_> = ROUTE_CASES.iter().map(RouteCase::name).collect();
    assert_eq!(rows.len(), ROUTE_CASES.len(), "a route is listed twice");
    let untested: Vec<_> = routes.difference(&rows).collect();
    assert!(untested.is_empty(), "routes without a row: {untested:?}");
    let unknown: Vec<_> = rows.difference(&routes).collect();
    assert!(unknown.is_empty(), "rows without a route: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn account_snapshot_covers_every_table() {
    let fixture = shared_fixture().await;
    let (owner, mut browser) = AccountFixture::create(fixture).await;
    assert_eq!(browser.post("/account/passkeys/begin", &[("password", PASSWORD)]).await.status, 200);
    let text = fixture.snapshot(&owner.email, &browser).await;
    let kinds: BTreeSet<_> = text.lines().filter_map(|line| line.split('|').next()).collect();
    let expected = [
        "account",
        "ceremony",
        "channel",
        "delivery",
        "device",
        "identity",
        "key",
        "passkey",
        "pause",
        "personal-token",
        "session",
        "ticket",
    ];
    assert_eq!(kinds, expected.into());
    assert_eq!(browser.post(&format!("/keys/{}/deactivate", owner.key), &[]).await.status, 303);
    assert_ne!(fixture.snapshot(&owner.email, &browser).await, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_visitor_is_redirected_and_changes_nothing() {
    let fixture = shared_fixture().await;
    let (owner, browser) = AccountFixture::create(fixture).await;
    let before = fixture.snapshot(&owner.email, &browser).await;
    for row in ROUTE_CASES.iter().filter(|row| row.is_for_members()) {
        let reply = owner.visit(&mut fixture.browser(), row).await;
        assert_redirects_to(&reply, "/signin");
        owner.assert_not_disclosed(&reply, &row.name());
        assert_eq!(fixture.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
}

/// Requests every route on resources of another account, with a valid CSRF token.
async fn access_as_other_member(fixture: &PortalFixture, intruder: &mut Browser, owner: &AccountFixture) {
    let before = fixture.snapshot(&owner.email, intruder).await;
    for row in ROUTE_CASES.iter().filter(|row| row.is_for_members() && row.has_id()) {
        let reply = owner.visit(intruder, row).await;
        assert_eq!(reply.status, 404, "{}: {}", row.name(), reply.text());
        owner.assert_not_disclosed(&reply, &row.name());
        assert_eq!(fixture.snapshot(&owner.email, intruder).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_other_members_return_404() {
    let fixture = shared_fixture().await;
    let ((one, mut browser_of_one), (other, mut browser_of_other)) =
        (AccountFixture::create(fixture).await, AccountFixture::create(fixture).await);
    access_as_other_member(fixture, &mut browser_of_other, &one).await;
    access_as_other_member(fixture, &mut browser_of_one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn member_routes_affect_only_that_account() {
    let fixture = shared_fixture().await;
    let (bystander, bystander_browser) = AccountFixture::create(fixture).await;
    let before = fixture.snapshot(&bystander.email, &bystander_browser).await;
    for row in ROUTE_CASES.iter().filter(|row| row.is_for_members() && !row.is_stream()) {
        // A new account for each route: many of them end a session or delete an account.
        let (owner, mut browser) = AccountFixture::create(fixture).await;
        let reply = owner.visit(&mut browser, row).await;
        assert_eq!(reply.status, row.status, "{}: {}", row.name(), reply.text());
        bystander.assert_not_disclosed(&reply, &row.name());
        assert_eq!(fixture.snapshot(&bystander.email, &bystander_browser).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_method_is_rejected_and_changes_nothing() {
    let fixture = shared_fixture().await;
    let (owner, mut browser) = AccountFixture::create(fixture).await;
    let before = fixture.snapshot(&owner.email, &browser).await;
    let mut tried = BTreeSet::new();
    for row in ROUTE_CASES.iter().filter(|row| tried.insert(row.path)) {
        let path = owner.path_for(row);
        for method in
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        {
            if has_method(row.path, &method) {
                continue;
            }
            let reply = match method {
                Method::POST => browser.post(&path, &[]).await,
                _ => browser.send(method.clone(), &path).await,
            };
            // Every path answers a CORS preflight.
            let expected = if method == Method::OPTIONS { &[204][..] } else { &[404, 405] };
            assert!(expected.contains(&reply.status), "{method} {path}: {}", reply.status);
        }
        assert_eq!(fixture.snapshot(&owner.email, &browser).await, before, "{}", row.path);
    }
}

fn has_method(path: &str, method: &Method) -> bool {
    let method = if *method == Method::HEAD { "get" } else { &method.as_str().to_lowercase() };
    ROUTE_CASES.iter().any(|row| row.path == path && row.method == method)
}
