//! Limits of attempts to sign in on a node, and of forms per operator.

use ipseity_store::OperatorRole;
use ipseity_testkit::deployment::node::CONSOLE_ENTRY;
use ipseity_testkit::{Node, TestResponse};

use super::fixture::{ConsoleFixture, TestOperator, shared_fixture};
use crate::portal::authenticator::Authenticator;
use crate::portal::browser::{Browser, CONSOLE_COOKIE};
use crate::portal::fixture::assert_redirects_to;

async fn start_node(fixture: &ConsoleFixture, name: &str, max: &str) -> Node {
    let settings = [(CONSOLE_ENTRY, ""), (name, max)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    fixture.portal.deployment.start_node(&settings.into()).await.expect("node starts")
}

#[track_caller]
fn assert_throttled(reply: &TestResponse) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    let wait_s: u64 = reply.header("retry-after").and_then(|value| value.parse().ok()).expect("seconds");
    assert!((500..=600).contains(&wait_s), "{wait_s}");
    assert!(reply.text().contains("Try again in 10 minutes. Nothing changed."), "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_to_sign_in_are_limited() {
    let fixture = shared_fixture().await;
    let node = start_node(fixture, "IPSEITY__ADMIN__SIGN_IN_ATTEMPTS_PER_10_MIN_MAX", "3").await;
    let (target, mut authenticator) = (fixture.create_target().await, Authenticator::for_origin(&node.console_url()));
    let path = format!("/join/{}/passkey", target.link_token);
    let attempt = async || Browser::open_console(&node).post("/signin/passkey", &[]).await;
    for _ in 0..2 {
        assert_eq!(attempt().await.status, 200);
    }
    // A success is no failed attempt.
    let mut browser = Browser::open_console(&node);
    assert_redirects_to(&authenticator.create_at(&mut browser, &path, &[], &format!("{path}/finish")).await, "/");
    for _ in 0..2 {
        assert_eq!(attempt().await.status, 200);
    }
    assert_redirects_to(&authenticator.sign_in(&mut Browser::open_console(&node)).await, "/");
    for _ in 0..3 {
        assert_eq!(attempt().await.status, 200);
    }
    assert_throttled(&attempt().await);
    assert_throttled(&Browser::open_console(&node).post(&path, &[]).await);
    assert_eq!(browser.get("/").await.status, 200, "sessions stay");
    assert_eq!(Browser::open_console(&node).get("/signin").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_per_operator_are_limited() {
    let fixture = shared_fixture().await;
    let node = start_node(fixture, "IPSEITY__ADMIN__ACTIONS_PER_OPERATOR_PER_10_MIN_MAX", "4").await;
    let on_node = async || {
        let TestOperator { browser, id, name, passkey } = fixture.sign_in(OperatorRole::Admin).await;
        let mut on_node = Browser::open_console(&node);
        on_node.set_cookie(CONSOLE_COOKIE, browser.cookie(CONSOLE_COOKIE).expect("browser has the cookie"));
        TestOperator { browser: on_node, id, name, passkey }
    };
    let (mut operator, mut other, target) = (on_node().await, on_node().await, fixture.create_target().await);
    let form = format!("/accounts/{}/limits", target.account);
    for limit in ["1", "2", "3", "4"] {
        assert_eq!(operator.browser.post(&form, &[("daily_limit", limit)]).await.status, 303);
    }
    let before = fixture.snapshot(&target, &[&operator]).await;
    assert_throttled(&operator.browser.post(&form, &[("daily_limit", "5")]).await);
    assert_throttled(&operator.browser.post(&format!("/operators/{}/remove", target.operator), &[]).await);
    assert_eq!(fixture.snapshot(&target, &[&operator]).await, before);
    assert_eq!(operator.browser.get(&format!("/accounts/{}", target.account)).await.status, 200);
    assert_eq!(other.browser.post(&form, &[("daily_limit", "6")]).await.status, 303, "another operator");
}
