//! Passkeys of operators: the whole ceremony, from the link to the next sign-in.

use ipseity_store::OperatorRole;
use ipseity_testkit::TestResponse;

use super::fixture::{ConsoleFixture, ConsoleTarget, shared_fixture};
use crate::portal::authenticator::Authenticator;
use crate::portal::browser::{Browser, CONSOLE_COOKIE};
use crate::portal::fixture::{PASSWORD, assert_redirects_to, fresh_secret};

/// Uses the link of the target.
async fn join(target: &ConsoleTarget, authenticator: &mut Authenticator, browser: &mut Browser) -> TestResponse {
    let path = format!("/join/{}/passkey", target.link_token);
    authenticator.create_at(browser, &path, &[], &format!("{path}/finish")).await
}

/// A passkey of the target's operator.
async fn joined(fixture: &ConsoleFixture) -> (ConsoleTarget, Authenticator, Browser) {
    let (target, mut browser) = (fixture.create_target().await, fixture.browser());
    let mut authenticator = Authenticator::for_origin(&fixture.node().console_url());
    assert_redirects_to(&join(&target, &mut authenticator, &mut browser).await, "/");
    (target, authenticator, browser)
}

#[track_caller]
fn assert_new_cookie(reply: &TestResponse) {
    let lines: Vec<_> = reply.headers.get_all("set-cookie").iter().map(|line| line.to_str().expect("text")).collect();
    let [line] = lines[..] else { panic!("one cookie, not {lines:?}") };
    assert!(line.starts_with(&format!("{CONSOLE_COOKIE}=")), "{line}");
    assert!(line.ends_with("; Path=/; Max-Age=43200; Secure; HttpOnly; SameSite=Lax"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_joins_by_a_link_and_signs_in_with_the_passkey() {
    let fixture = shared_fixture().await;
    let (target, mut browser) = (fixture.create_target().await, fixture.browser());
    let mut authenticator = Authenticator::for_origin(&fixture.node().console_url());
    let page = browser.get(&format!("/join/{}", target.link_token)).await;
    assert_new_cookie(&page);
    assert!(page.text().contains(&target.operator_name) && page.text().contains("with the role viewer"));
    let before_join = browser.cookie(CONSOLE_COOKIE).map(str::to_owned);
    let stale_token = browser.csrf_token().await;
    let joined = join(&target, &mut authenticator, &mut browser).await;
    assert_redirects_to(&joined, "/");
    assert_new_cookie(&joined);
    assert_ne!(browser.cookie(CONSOLE_COOKIE).map(str::to_owned), before_join);
    let page = browser.get("/").await;
    assert!(page.status == 200 && page.text().contains(&target.operator_name), "{}", page.text());
    let stale = browser.post_with("/signout", &[], &[("csrf", &stale_token)]).await;
    assert_eq!(stale.status, 403, "a form from before the sign-in");

    // The link works once, also for its operator.
    for browser in [&mut browser, &mut fixture.browser()] {
        assert_eq!(browser.get(&format!("/join/{}", target.link_token)).await.status, 410);
        let another = &mut Authenticator::for_origin(&fixture.node().console_url());
        assert_eq!(join(&target, another, browser).await.status, 410);
    }
    assert_redirects_to(&browser.post("/signout", &[]).await, "/signin");
    assert_redirects_to(&browser.get("/").await, "/signin");

    // Somebody gave the browser this cookie.
    let fixed = fresh_secret();
    browser.set_cookie(CONSOLE_COOKIE, &fixed);
    let signed_in = authenticator.sign_in(&mut browser).await;
    assert_redirects_to(&signed_in, "/");
    assert_new_cookie(&signed_in);
    assert_eq!(browser.get("/").await.status, 200);
    let mut attacker = fixture.browser();
    attacker.set_cookie(CONSOLE_COOKIE, &fixed);
    assert_redirects_to(&attacker.get("/").await, "/signin");
    let actions: Vec<_> = fixture.audit_events(&["--limit", "1000"]).await.into_iter().rev().collect();
    let actions = actions.iter().filter(|event| event["operator"] == target.operator_name);
    let actions: Vec<_> = actions.filter_map(|event| event["action"].as_str()).collect();
    let expected = ["operator_passkey_added", "operator_signed_in", "operator_signed_out", "operator_signed_in"];
    let created = "operator_link_created";
    let found: Vec<_> = actions.into_iter().filter(|action| *action != created).collect();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn passkeys_of_others_are_refused() {
    let fixture = shared_fixture().await;
    let ((target, mut authenticator, _), (other, mut of_other, _)) = tokio::join!(joined(fixture), joined(fixture));
    let handle = async |target: &ConsoleTarget| {
        let hex = fixture.psql(&format!("select handle from operators where id = {}", target.operator)).await;
        Authenticator::encode_hex(&hex.replace('-', ""))
    };
    for (owner, status) in [(&target, 303), (&other, 403)] {
        authenticator.user_handle = Some(handle(owner).await);
        assert_eq!(authenticator.sign_in(&mut fixture.browser()).await.status, status);
    }
    authenticator.user_handle = None;
    authenticator.forged.origin = Some(fixture.node().env()["IPSEITY__PUBLIC__BASE_URL"].clone());
    let refused = authenticator.sign_in(&mut fixture.browser()).await;
    assert!(refused.status == 403 && refused.text().contains("Passkey not accepted"), "{}", refused.text());
    authenticator.forged.origin = None;

    // The passkey of a member, and one of a removed operator.
    let mut member = fixture.portal.create_member().await;
    let mut of_member = Authenticator::new(&fixture.portal);
    of_member.register_for(&mut member, PASSWORD).await;
    of_member.forged.origin = Some(fixture.node().console_url());
    assert_eq!(of_member.sign_in(&mut fixture.browser()).await.status, 403);
    authenticator.forged.origin = Some(fixture.node().env()["IPSEITY__PUBLIC__BASE_URL"].clone());
    assert_eq!(authenticator.sign_in(&mut fixture.portal.browser()).await.status, 403, "an operator is no member");
    fixture.psql(&format!("delete from operators where id = {}", other.operator)).await;
    assert_eq!(of_other.sign_in(&mut fixture.browser()).await.status, 403);

    // A response works once, in the browser that asked.
    authenticator.forged.origin = None;
    let (mut browser, mut elsewhere) = (fixture.browser(), fixture.browser());
    let credential = authenticator.answer_challenge(&mut browser, "/signin/passkey").await;
    authenticator.answer_challenge(&mut elsewhere, "/signin/passkey").await;
    let fields = [("credential", credential.as_str())];
    assert_eq!(elsewhere.post("/signin/passkey/finish", &fields).await.status, 403);
    assert_redirects_to(&browser.post("/signin/passkey/finish", &fields).await, "/");
    assert_eq!(browser.post("/signin/passkey/finish", &fields).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_adds_and_removes_passkeys() {
    let fixture = shared_fixture().await;
    let (target, mut first, mut browser) = joined(fixture).await;
    let mut second = Authenticator::for_origin(&fixture.node().console_url());
    let added = second.create_at(&mut browser, "/profile/passkeys", &[], "/profile/passkeys/finish").await;
    assert_redirects_to(&added, "/profile");
    let again = second.create_at(&mut browser, "/profile/passkeys", &[], "/profile/passkeys/finish").await;
    assert_eq!(again.status, 422, "the passkey exists: {}", again.text());
    assert_redirects_to(&second.sign_in(&mut fixture.browser()).await, "/");

    let ids = format!("select id from operator_passkeys where operator_id = {} order by id", target.operator);
    let ids: Vec<_> = fixture.psql(&ids).await.lines().map(str::to_owned).collect();
    let other = fixture.sign_in(OperatorRole::Viewer).await;
    let foreign = browser.post(&format!("/profile/passkeys/{}/remove", other.passkey), &[]).await;
    assert_eq!(foreign.status, 404, "the passkey of another operator");
    assert_redirects_to(&browser.post(&format!("/profile/passkeys/{}/remove", ids[0]), &[]).await, "/profile");
    assert_eq!(first.sign_in(&mut fixture.browser()).await.status, 403);
    let last = browser.post(&format!("/profile/passkeys/{}/remove", ids[1]), &[]).await;
    assert!(last.status == 422 && last.text().contains("only way to sign in"), "{}", last.text());
    assert_redirects_to(&second.sign_in(&mut fixture.browser()).await, "/");
}
