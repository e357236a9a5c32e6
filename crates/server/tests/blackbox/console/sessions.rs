//! Sessions of operators: limits, sign-out, and changes that take effect on the next request.

use ipseity_store::OperatorRole;

use super::fixture::{ConsoleFixture, TestOperator, shared_fixture};
use crate::portal::browser::{Browser, CONSOLE_COOKIE};
use crate::portal::fixture::assert_redirects_to;

/// Another browser with the cookies of this one.
fn copy_of(operator: &TestOperator, mut browser: Browser) -> Browser {
    browser.set_cookie(CONSOLE_COOKIE, operator.browser.cookie(CONSOLE_COOKIE).expect("browser has the cookie"));
    browser
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_when_idle_and_after_its_longest_time() {
    let fixture = shared_fixture().await;
    for (column, within, after) in
        [("seen_at", "59 minutes", "60 minutes 1 second"), ("created_at", "11 hours 59 minutes", "12 hours 1 second")]
    {
        let mut operator = fixture.sign_in(OperatorRole::Viewer).await;
        let set = async |age: &str| {
            let sql = format!("update operator_sessions set {column} = now() - interval '{age}' where operator_id");
            fixture.psql(&format!("{sql} = {}", operator.id)).await
        };
        set(within).await;
        assert_eq!(operator.browser.get("/").await.status, 200, "{column}");
        let is_seen = "select seen_at > now() - interval '1 minute' from operator_sessions where operator_id";
        assert_eq!(fixture.psql(&format!("{is_seen} = {}", operator.id)).await, "t", "{column}");
        set(after).await;
        assert_redirects_to(&operator.browser.get("/").await, "/signin");
        assert_redirects_to(&operator.browser.post("/profile/sessions/end-others", &[]).await, "/signin");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_out_ends_the_session_and_replaces_the_cookie() {
    let fixture = shared_fixture().await;
    let mut operator = fixture.sign_in(OperatorRole::Viewer).await;
    let mut copy = copy_of(&operator, fixture.browser());
    assert_eq!(copy.get("/").await.status, 200);
    let before = operator.browser.cookie(CONSOLE_COOKIE).map(str::to_owned);
    assert_redirects_to(&operator.browser.post("/signout", &[]).await, "/signin");
    assert_ne!(operator.browser.cookie(CONSOLE_COOKIE).map(str::to_owned), before);
    for browser in [&mut operator.browser, &mut copy] {
        assert_redirects_to(&browser.get("/").await, "/signin");
    }
    let sessions = format!("select count(*) from operator_sessions where operator_id = {}", operator.id);
    assert_eq!(fixture.psql(&sessions).await, "0");
    assert_eq!(count_events(fixture, &operator.name, "operator_signed_out").await, "1");
}

/// The number of an operator's own events in the audit log.
async fn count_events(fixture: &ConsoleFixture, name: &str, action: &str) -> String {
    let sql = "select count(*) from audit_events where operator = subject";
    fixture.psql(&format!("{sql} and operator = '{name}' and action = '{action}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_ends_other_sessions() {
    let fixture = shared_fixture().await;
    let (mut operator, mut bystander) =
        tokio::join!(fixture.sign_in(OperatorRole::Viewer), fixture.sign_in(OperatorRole::Viewer));
    let other = format!("{:064x}", fastrand::u128(..));
    let insert = "insert into operator_sessions (operator_id, digest, label) values";
    fixture.psql(&format!("{insert} ({}, sha256('{other}'), 'other')", operator.id)).await;
    let mut elsewhere = fixture.browser();
    elsewhere.set_cookie(CONSOLE_COOKIE, &other);
    assert_eq!(elsewhere.get("/").await.status, 200);
    assert_redirects_to(&operator.browser.post("/profile/sessions/end-others", &[]).await, "/profile");
    assert_redirects_to(&elsewhere.get("/").await, "/signin");
    for browser in [&mut operator.browser, &mut bystander.browser] {
        assert_eq!(browser.get("/").await.status, 200);
    }
    operator.browser.post("/profile/sessions/end-others", &[]).await;
    assert_eq!(count_events(fixture, &operator.name, "operator_sessions_ended").await, "1", "none for no session");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_role_takes_effect_on_the_next_request() {
    let fixture = shared_fixture().await;
    let (mut admin, mut operator, target) = tokio::join!(
        fixture.sign_in(OperatorRole::Admin),
        fixture.sign_in(OperatorRole::Support),
        fixture.create_target()
    );
    let (page, form) = (format!("/keys/{}", target.key), format!("/keys/{}/deactivate", target.key));
    assert!(operator.browser.get(&page).await.text().contains(&form));
    for (role, status) in [("viewer", 403), ("admin", 303), ("viewer", 403), ("support", 303)] {
        let changed = admin.browser.post(&format!("/operators/{}/role", operator.id), &[("role", role)]).await;
        assert_redirects_to(&changed, "/operators");
        assert_eq!(operator.browser.get("/operators").await.status, if role == "admin" { 200 } else { 403 }, "{role}");
        assert_eq!(operator.browser.get(&page).await.text().contains(&form), role != "viewer", "{role}");
        assert_eq!(operator.browser.post(&form, &[]).await.status, status, "{role}");
        fixture.psql(&format!("update keys set deactivated_at = null where id = '{}'", target.key)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_operator_is_signed_out() {
    let fixture = shared_fixture().await;
    let (mut admin, mut operator) =
        tokio::join!(fixture.sign_in(OperatorRole::Admin), fixture.sign_in(OperatorRole::Admin));
    assert_eq!(operator.browser.get("/").await.status, 200);
    assert_redirects_to(&admin.browser.post(&format!("/operators/{}/remove", operator.id), &[]).await, "/operators");
    assert_redirects_to(&operator.browser.get("/").await, "/signin");
    assert_redirects_to(&operator.browser.post("/operators", &[("name", "x"), ("role", "admin")]).await, "/signin");
    let rows =
        "select count(*) from operator_sessions full join operator_passkeys using (operator_id) where operator_id";
    assert_eq!(fixture.psql(&format!("{rows} = {}", operator.id)).await, "0");
    // Admins can also remove themselves, unless they are the only one.
    assert_redirects_to(&admin.browser.post(&format!("/operators/{}/remove", admin.id), &[]).await, "/operators");
    assert_redirects_to(&admin.browser.get("/").await, "/signin");
}
