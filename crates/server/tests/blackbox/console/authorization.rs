//! Every route with every role: exactly the roles of the table get through, and others change nothing.

use std::collections::BTreeSet;

use http::Method;
use ipseity_portal::{CONSOLE_ROUTES, ConsoleAccess, ConsoleRoute};
use ipseity_store::OperatorRole;
use ipseity_testkit::TestResponse;

use super::fixture::{ConsoleFixture, ConsoleTarget, TestOperator, shared_fixture};
use super::routes::{ROUTE_CASES, RouteCase};
use crate::portal::fixture::assert_redirects_to;

fn case_of(route: &ConsoleRoute) -> &'static RouteCase {
    let case = ROUTE_CASES.iter().find(|case| case.method == route.method && case.path == route.path);
    case.unwrap_or_else(|| panic!("{} {} has no test case", route.method, route.path))
}

fn is_allowed(route: &ConsoleRoute, role: Option<OperatorRole>) -> bool {
    route.access.role() <= role
}

#[test]
fn every_console_route_has_a_test_case() {
    let routes: BTreeSet<_> = CONSOLE_ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let cases: BTreeSet<_> = ROUTE_CASES.iter().map(RouteCase::name).collect();
    assert_eq!(cases.len(), ROUTE_CASES.len(), "a route is listed twice");
    assert_eq!(cases, routes);
}

/// The table itself: viewers change only their own sign-in, and only admins see operators.
#[test]
fn viewers_change_nothing_of_others() {
    for route in CONSOLE_ROUTES.iter().filter(|route| route.method == "post") {
        let is_own = route.path.starts_with("/profile/") || route.path == "/signout";
        let (own, changing) = (route.access == ConsoleAccess::Viewer, route.access.role() > Some(OperatorRole::Viewer));
        assert!(if is_own { own } else { changing || route.access == ConsoleAccess::Public }, "{}", route.path);
    }
    let of_operators = CONSOLE_ROUTES.iter().filter(|route| route.path.starts_with("/operators"));
    assert!(of_operators.clone().count() > 0 && of_operators.clone().all(|route| route.access == ConsoleAccess::Admin));
    let public: Vec<_> = CONSOLE_ROUTES.iter().filter(|route| route.access == ConsoleAccess::Public).collect();
    assert!(public.iter().all(|route| route.path.starts_with("/signin") || route.path.starts_with("/join/")));
}

#[track_caller]
fn assert_refused(reply: &TestResponse, route: &ConsoleRoute, role: Option<OperatorRole>, target: &ConsoleTarget) {
    let (name, needed) = (format!("{} {} as {role:?}", route.method, route.path), route.access.role());
    match role {
        None => assert_redirects_to(reply, "/signin"),
        Some(_) => {
            assert_eq!(reply.status, 403, "{name}: {}", reply.text());
            let needed = needed.map_or("", OperatorRole::name);
            assert!(reply.text().contains(&format!("This needs the role {needed}.")), "{name}: {}", reply.text());
        }
    }
    // The path of a form may contain the ID of the key.
    assert!(!reply.text().contains(&target.email), "{name} discloses the account");
}

/// One signed-in operator of each role.
async fn operators(fixture: &ConsoleFixture) -> [TestOperator; 3] {
    let [viewer, support, admin] = OperatorRole::ALL.map(|role| fixture.sign_in(role));
    tokio::join!(viewer, support, admin).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_roles_change_nothing() {
    let fixture = shared_fixture().await;
    let (mut operators, target) = (operators(fixture).await, fixture.create_target().await);
    let before = fixture.snapshot(&target, &operators.each_ref()).await;
    for route in CONSOLE_ROUTES {
        let case = case_of(route);
        if !is_allowed(route, None) {
            let path = case.path_for(&target, None);
            assert_refused(&case.visit(&mut fixture.browser(), &path, &target).await, route, None, &target);
        }
        for (operator, role) in operators.iter_mut().zip(OperatorRole::ALL) {
            if !is_allowed(route, Some(role)) {
                let path = case.path_for(&target, Some(operator));
                let reply = case.visit(&mut operator.browser, &path, &target).await;
                assert_refused(&reply, route, Some(role), &target);
            }
        }
        if case.is_form() {
            assert_eq!(fixture.snapshot(&target, &operators.each_ref()).await, before, "{}", case.name());
        }
    }
    assert_eq!(fixture.snapshot(&target, &operators.each_ref()).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_the_table_see_every_page() {
    let fixture = shared_fixture().await;
    let (mut operators, target) = (operators(fixture).await, fixture.create_target().await);
    let before = fixture.snapshot(&target, &operators.each_ref()).await;
    for route in CONSOLE_ROUTES.iter().filter(|route| route.method == "get") {
        let case = case_of(route);
        if is_allowed(route, None) {
            let reply = case.visit(&mut fixture.browser(), &case.path_for(&target, None), &target).await;
            let status = if case.path == "/signin" { 200 } else { case.status };
            assert_eq!(reply.status, status, "{}: {}", case.name(), reply.text());
        }
        for (operator, role) in operators.iter_mut().zip(OperatorRole::ALL) {
            if is_allowed(route, Some(role)) {
                let path = case.path_for(&target, Some(operator));
                let reply = case.visit(&mut operator.browser, &path, &target).await;
                assert_eq!(reply.status, case.status, "{} as {role:?}: {}", case.name(), reply.text());
                let head = operator.browser.send(Method::HEAD, &path).await;
                assert_eq!((head.status, head.body.len()), (case.status, 0), "HEAD {path}");
            }
        }
    }
    assert_eq!(fixture.snapshot(&target, &operators.each_ref()).await, before, "pages change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_the_table_can_submit_every_form() {
    let fixture = shared_fixture().await;
    for route in CONSOLE_ROUTES.iter().filter(|route| route.method == "post") {
        let case = case_of(route);
        if is_allowed(route, None) {
            let target = fixture.create_target().await;
            let reply = case.visit(&mut fixture.browser(), &case.path_for(&target, None), &target).await;
            assert_eq!(reply.status, case.status, "{}: {}", case.name(), reply.text());
        }
        for role in OperatorRole::ALL.into_iter().filter(|role| is_allowed(route, Some(*role))) {
            let (mut operator, target) = tokio::join!(fixture.sign_in(role), fixture.create_target());
            let path = case.path_for(&target, Some(&operator));
            let reply = case.visit(&mut operator.browser, &path, &target).await;
            assert_eq!(reply.status, case.status, "{} as {role:?}: {}", case.name(), reply.text());
            assert!(!reply.text().contains("Not allowed"), "{} as {role:?}", case.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_and_methods_are_rejected() {
    let fixture = shared_fixture().await;
    let (mut admin, target) = tokio::join!(fixture.sign_in(OperatorRole::Admin), fixture.create_target());
    let before = fixture.snapshot(&target, &[&admin]).await;
    let missing = [
        "/nothing".to_owned(),
        "/accounts".to_owned(),
        "/keys".to_owned(),
        "/api/v1/ip".to_owned(),
        "/metrics".to_owned(),
        format!("/keys/{}/rotate", target.key),
        format!("/keys/{}/delete", target.key),
        format!("/accounts/{}/", target.account),
        format!("/accounts/{}/sign-in", target.account),
        "/keys/0000000000".to_owned(),
        "/accounts/999999999".to_owned(),
        "/accounts/x".to_owned(),
        "/accounts/99999999999999999999".to_owned(),
    ];
    for path in &missing {
        let reply = admin.browser.get(path).await;
        assert!(reply.status == 404 && reply.text().contains("Page not found"), "{path}: {}", reply.text());
    }
    for path in &missing[..9] {
        assert_eq!(admin.browser.post(path, &[]).await.status, 404, "{path}");
        assert_eq!(fixture.browser().get(path).await.status, 404, "{path} without a session");
    }
    for (form, field) in
        [("accounts/999999999", "plan"), ("keys/0000000000", "limits"), ("operators/999999999", "remove")]
    {
        let path = format!("/{form}/{field}");
        assert_eq!(admin.browser.post(&path, &[("plan", "free")]).await.status, 404, "{path}");
    }
    for two_factor in ["999999999", "x"] {
        let path = format!("/accounts/{two_factor}/two-factor-off");
        assert_eq!(admin.browser.post(&path, &[]).await.status, 404, "{path}");
    }
    for case in ROUTE_CASES {
        let path = case.path_for(&target, Some(&admin));
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let is_listed = CONSOLE_ROUTES.iter().any(|route| route.path == case.path && route.method == "get");
            if method == Method::GET && is_listed {
                continue;
            }
            let reply = admin.browser.send(method.clone(), &path).await;
            assert!(matches!(reply.status, 403 | 405), "{method} {path}: {}", reply.status);
        }
    }
    assert_eq!(fixture.snapshot(&target, &[&admin]).await, before);
}
