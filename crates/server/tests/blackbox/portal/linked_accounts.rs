//! Accounts of another provider: only a signed-in session links one, and only issuer and subject identify it.

use ipseity_testkit::TestResponse;
use serde_json::json;

use super::authenticator::Authenticator;
use super::fixture::{NEW_PASSWORD, PASSWORD, assert_redirects_to};
use super::oidc_provider::{link_to_provider, person, provider_fixture};
use super::two_factor::recovery_codes;

const PAGE: &str = "/account/sign-in";

#[track_caller]
fn assert_refused(reply: &TestResponse, status: u16, text: &str) {
    let page = reply.text();
    assert!(reply.status == status && page.contains(text), "expected {text}, got {}: {page}", reply.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_signs_in_after_it_is_linked() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let (mut member, mut browser) = (portal.create_member().await, portal.browser());
    assert!(browser.get("/signin").await.text().contains("Sign in with Company"));
    assert_refused(&fixture.sign_in(&mut browser, "ada").await, 403, "No account is linked");
    assert_redirects_to(&browser.get("/keys").await, "/signin");
    assert_eq!(portal.psql("select count(*) from identities").await, "0", "a sign-in links nothing");

    assert!(member.browser.get("/account").await.text().contains("Link an account"));
    let linked = fixture.link(&mut member, "ada").await;
    assert_eq!(linked.header("location"), Some("/account/sign-in?done=linked"), "{}", linked.text());
    let page = member.browser.get(PAGE).await.text();
    assert!(page.contains("Company: ada@example.com") && page.contains("not used yet"), "{page}");
    let email = portal.smtp.wait_for_email(&member.email, "An account was linked").await.expect("email arrives");
    assert!(
        email.text.contains("ada@example.com (http://127.0.0.1:") && email.text.contains("/forgot"),
        "{}",
        email.text
    );
    assert!(member.browser.get("/account").await.text().contains("Account of another provider linked"));

    let callback = fixture.begin_sign_in(&mut browser, "ada", "/account").await;
    assert_eq!(browser.get(&callback).await.header("location"), Some("/account"), "the page before the sign-in");
    assert!(browser.get("/account").await.text().contains(&member.email));
    assert!(member.browser.get(PAGE).await.text().contains("last used"));
    portal.smtp.wait_for_email(&member.email, "New sign-in").await.expect("email arrives");
    for next in ["//evil.example", "https://evil.example/keys", "/signout"] {
        let mut browser = portal.browser();
        let callback = fixture.begin_sign_in(&mut browser, "ada", next).await;
        assert_eq!(browser.get(&callback).await.header("location"), Some("/keys"), "{next}");
    }
    let again = fixture.link(&mut member, "ada").await;
    assert_eq!(again.header("location"), Some("/account/sign-in?done=linked-before"));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_is_its_subject_whatever_its_address() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let mut member = portal.create_member().await;
    fixture.link(&mut member, "ada").await;
    // Bob has the same address there, and eve that of the account here.
    let accounts = json!({
        "ada": person("lovelace@example.com"),
        "bob": person("ada@example.com"),
        "eve": person(&member.email),
    });
    fixture.change(json!({ "accounts": accounts })).await;
    let pages = ["bob", "eve", "carol"].map(async |login| {
        let reply = fixture.sign_in(&mut portal.browser(), login).await;
        assert_refused(&reply, 403, "No account is linked");
        let page = reply.text();
        assert!(!page.contains("example.com"), "{page}");
        page.split("name=\"csrf\"").next().unwrap_or_default().to_owned()
    });
    let [bob, eve, carol] = pages;
    let (bob, eve, carol) = (bob.await, eve.await, carol.await);
    assert!(bob == eve && eve == carol, "the page does not depend on the address");
    assert_redirects_to(&fixture.sign_in(&mut portal.browser(), "ada").await, "/keys");
    assert!(member.browser.get(PAGE).await.text().contains("ada@example.com"), "the address when it was linked");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_link_needs_the_password_and_the_session_that_began_it() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let (mut member, mut other) = (portal.create_member().await, portal.create_member().await);
    let wrong = member.browser.post("/account/sign-in/providers/0", &[("password", "not the password")]).await;
    assert_refused(&wrong, 200, "Incorrect password");
    assert_eq!(member.browser.post("/account/sign-in/providers/7", &[("password", PASSWORD)]).await.status, 404);

    let mut elsewhere = portal.browser();
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&elsewhere.post("/signin", &form).await, "/keys");
    let callback = fixture.begin_link(&mut member.browser, "ada").await;
    for browser in [&mut elsewhere, &mut other.browser, &mut portal.browser()] {
        assert_refused(&browser.get(&callback).await, 403, "begun in another browser");
    }
    // The session is that of another account when the provider sends the browser back.
    portal.psql(&format!("update sessions set account_id = {} where account_id = {}", other.id, member.id)).await;
    assert_redirects_to(&member.browser.get(&callback).await, "/signin");
    assert_eq!(portal.psql("select count(*) from identities").await, "0");
    assert_refused(&member.browser.get(&callback).await, 403, "begun in another browser");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_links_to_one_account_only() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let (mut member, mut other) = (portal.create_member().await, portal.create_member().await);
    fixture.link(&mut member, "ada").await;
    assert_refused(&fixture.link(&mut other, "ada").await, 409, "already signs in to another account");
    assert_redirects_to(&fixture.link(&mut other, "bob").await, PAGE);
    let mut browser = portal.browser();
    assert_redirects_to(&fixture.sign_in(&mut browser, "ada").await, "/keys");
    assert!(browser.get("/account").await.text().contains(&member.email));

    portal.psql("delete from identities").await;
    let insert = format!(
        "insert into identities (account_id, issuer, subject, label)
         select {}, 'https://idp.example', n, 'planted' from generate_series(1, 10) n",
        member.id
    );
    portal.psql(&insert).await;
    assert_refused(&fixture.link(&mut member, "ada").await, 409, "Limit reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_stops_signing_in_when_it_is_unlinked() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let mut member = portal.create_member().await;
    fixture.link(&mut member, "ada").await;
    let identity = async || portal.psql("select id from identities").await;
    let unlink = format!("{PAGE}/identities/{}/unlink", identity().await);
    let old =
        format!("update sessions set created_at = now() - interval '16 minutes' where account_id = {}", member.id);
    portal.psql(&old).await;
    assert_redirects_to(&member.browser.post(&unlink, &[]).await, "/account/confirm");
    let confirm = [("password", PASSWORD), ("next", PAGE)];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &confirm).await, PAGE);

    // Unlinked while the browser is at the provider.
    let mut browser = portal.browser();
    let callback = fixture.begin_sign_in(&mut browser, "ada", "").await;
    assert_redirects_to(&member.browser.post(&unlink, &[]).await, PAGE);
    assert_refused(&browser.get(&callback).await, 403, "No account is linked");
    assert_eq!(member.browser.post(&unlink, &[]).await.status, 404);
    portal.smtp.wait_for_email(&member.email, "An account was unlinked").await.expect("email arrives");
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&portal.browser().post("/signin", &form).await, "/keys");

    // A password reset, and a change of the password on request, unlink too.
    fixture.link(&mut member, "ada").await;
    let change = [("current", PASSWORD), ("password", NEW_PASSWORD), ("delete_credentials", "on")];
    assert_redirects_to(&member.browser.post("/account/password", &change).await, "/account");
    assert_refused(&fixture.sign_in(&mut portal.browser(), "ada").await, 403, "No account is linked");
    let change = [("current", NEW_PASSWORD), ("password", PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/password", &change).await, "/account");
    fixture.link(&mut member, "ada").await;
    let reset = portal.create_reset_link(&member.email).await;
    assert_redirects_to(&portal.browser().post(&reset, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_refused(&fixture.sign_in(&mut portal.browser(), "ada").await, 403, "No account is linked");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_of_a_deleted_account_signs_in_nowhere() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let mut member = portal.create_member().await;
    fixture.link(&mut member, "ada").await;
    let mut browser = portal.browser();
    let sign_in = fixture.begin_sign_in(&mut browser, "ada", "").await;
    let link = fixture.begin_link(&mut member.browser, "bob").await;
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/delete", &form).await, "/signin");
    assert_refused(&browser.get(&sign_in).await, 403, "No account is linked");
    assert_ne!(member.browser.get(&link).await.header("location"), Some("/account/sign-in?done=linked"));
    assert_eq!(portal.psql("select count(*) from identities").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_account_is_a_first_factor() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let (mut member, mut authenticator) = (portal.create_member().await, Authenticator::new(portal));
    fixture.link(&mut member, "ada").await;
    authenticator.register_for(&mut member, PASSWORD).await;
    let page = member.browser.post("/account/two-factor/passkeys", &[("password", PASSWORD)]).await;
    let codes = recovery_codes(&page);
    let mut browser = portal.browser();
    let callback = fixture.begin_sign_in(&mut browser, "ada", "/usage").await;
    assert_eq!(browser.get(&callback).await.header("location"), Some("/signin/verify?next=/usage"));
    assert_redirects_to(&browser.get("/keys").await, "/signin");
    assert!(browser.get("/signin/verify").await.text().contains("also needs a second factor"));
    let code = [("code", codes[0].as_str()), ("next", "/usage")];
    assert_redirects_to(&browser.post("/signin/verify", &code).await, "/usage");
    assert_eq!(browser.get("/usage").await.status, 200);
    // A link needs a confirmation with the second factor, not only the password.
    let reply = browser.post("/account/sign-in/providers/0", &[("password", PASSWORD)]).await;
    assert_redirects_to(&reply, "/account/confirm");

    // Two-factor authentication is turned on while the browser is at the provider.
    let mut other = portal.create_member().await;
    fixture.link(&mut other, "bob").await;
    let mut browser = portal.browser();
    let callback = fixture.begin_sign_in(&mut browser, "bob", "").await;
    portal.psql(&format!("update accounts set two_factor_since = now() where id = {}", other.id)).await;
    assert_redirects_to(&browser.get(&callback).await, "/signin/verify");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_response_that_was_not_begun_here_is_refused() {
    const ANOTHER: &str = "begun in another browser";
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let mut member = portal.create_member().await;
    fixture.link(&mut member, "ada").await;
    let mut thief = portal.browser();
    thief.csrf_token().await;
    // The attacker's response in the browser of the victim, and the other way around.
    let mut victim = portal.browser();
    let (of_thief, of_victim) =
        (fixture.begin_sign_in(&mut thief, "bob", "").await, fixture.begin_sign_in(&mut victim, "ada", "").await);
    assert_refused(&victim.get(&of_thief).await, 403, "did not confirm who you are");
    assert_refused(&victim.get(&of_victim).await, 403, ANOTHER);
    assert_refused(&thief.get(&of_victim).await, 403, "did not confirm who you are");
    for path in ["/signin/callback/oidc", "/signin/callback/oidc?state=x&code=y", "/signin/callback/unknown"] {
        assert_refused(&portal.browser().get(path).await, 403, ANOTHER);
    }
    for change in ["&state=x", "&code=other", "&iss=https://evil.example"] {
        let mut browser = portal.browser();
        let callback = fixture.begin_sign_in(&mut browser, "ada", "").await;
        assert_refused(&browser.get(&format!("{callback}{change}")).await, 403, "did not confirm who you are");
        assert_refused(&browser.get(&callback).await, 403, ANOTHER);
    }
    // The path of another provider.
    let mut browser = portal.browser();
    let callback = fixture.begin_sign_in(&mut browser, "ada", "").await;
    assert_eq!(browser.get(&callback.replace("/oidc", "/github")).await.status, 404);
    assert_refused(&browser.get(&callback).await, 403, ANOTHER);
    // Replayed, and too late.
    let callback = fixture.begin_sign_in(&mut browser, "ada", "").await;
    assert_redirects_to(&browser.get(&callback).await, "/keys");
    for browser in [&mut browser, &mut portal.browser()] {
        assert_refused(&browser.get(&callback).await, 403, ANOTHER);
    }
    let mut late = portal.browser();
    let callback = fixture.begin_sign_in(&mut late, "ada", "").await;
    portal.psql("update ceremonies set expires_at = now()").await;
    assert_refused(&late.get(&callback).await, 403, "longer than five minutes");
    assert_redirects_to(&late.get("/keys").await, "/signin");
    assert_eq!(portal.psql("select count(*) from identities").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_that_lies_or_changes_its_keys_signs_in_only_the_right_person() {
    let Some((fixture, _turn)) = provider_fixture().await else { return };
    let portal = &fixture.portal;
    let mut member = portal.create_member().await;
    fixture.link(&mut member, "ada").await;
    for claims in [
        json!({ "nonce": "other" }),
        json!({ "iss": "https://idp.example" }),
        json!({ "aud": "other" }),
        json!({ "exp": 1_700_000_000 }),
    ] {
        fixture.change(json!({ "claims": claims })).await;
        let reply = fixture.sign_in(&mut portal.browser(), "ada").await;
        assert_refused(&reply, 403, "did not confirm who you are");
    }
    fixture.change(json!({ "claims": {} })).await;
    let mut browser = portal.browser();
    let callback = fixture.begin_sign_in(&mut browser, "ada", "").await;
    fixture.change(json!({ "rotate": true })).await;
    assert_redirects_to(&browser.get(&callback).await, "/keys");

    let mut browser = portal.browser();
    let page = browser.post("/signin/provider/0", &[]).await;
    let canceled = fixture.visit(&page, None).await;
    assert_refused(&browser.get(&canceled).await, 403, "was canceled");
    let page = member.browser.post("/account/sign-in/providers/0", &[("password", PASSWORD)]).await;
    assert!(link_to_provider(&page).as_str().contains("code_challenge_method=S256"));
    let canceled = fixture.visit(&page, None).await;
    let reply = member.browser.get(&canceled).await;
    assert_refused(&reply, 403, r#"href="/account/sign-in""#);
    let log = portal.node().log().expect("log is read");
    for secret in ["ada@example.com", "a secret of the portal", "code="] {
        assert!(!log.contains(secret), "the log contains {secret}");
    }
}
