//! Sessions: how they start and end, and what is stored.

use std::time::Duration;

use ipseity_testkit::{Needle, PrivacySearch, eventually};

use super::browser::{Browser, DEVICE_COOKIE, SESSION_COOKIE};
use super::fixture::{
    NEW_PASSWORD, PASSWORD, PortalFixture, TestMember, assert_redirects_to, digest_sql, fresh_email, fresh_secret,
    shared_fixture,
};

/// A hash of `PASSWORD` with lower parameters than new hashes have.
const OUTDATED_HASH: &str =
    "$argon2id$v=19$m=4096,t=1,p=1$c2FsdCBvZiBhIG1lbWJlcg$Cktu9pLjdVW8bq0Xupbp+H7B6JK+Yen6nvZaAAcnDxg";
const CURRENT_PARAMS: &str = "$argon2id$v=19$m=19456,t=2,p=1$";
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(20);

async fn sign_in(browser: &mut Browser, email: &str, password: &str) {
    assert_redirects_to(&browser.post("/signin", &[("email", email), ("password", password)]).await, "/keys");
}

/// Asserts that a cookie is invalid: a browser with it is redirected to sign in.
async fn assert_cookie_invalid(fixture: &PortalFixture, value: &str, why: &str) {
    let mut thief = fixture.browser();
    thief.set_cookie(SESSION_COOKIE, value);
    for path in ["/keys", "/account", "/events", "/usage.csv"] {
        let reply = thief.get(path).await;
        let location = reply.header("location").unwrap_or_default();
        assert_eq!((reply.status, location.starts_with("/signin")), (303, true), "{why}: {path}");
    }
}

fn session_cookie(browser: &Browser) -> String {
    browser.cookie(SESSION_COOKIE).expect("browser has a session cookie").to_owned()
}

/// The ID of a browser's session.
async fn session_id(fixture: &PortalFixture, browser: &Browser) -> String {
    fixture.psql(&format!("select id from sessions where digest = sha256('{}')", session_cookie(browser))).await
}

/// A member with a second browser that is also signed in.
async fn member_with_two_sessions(fixture: &PortalFixture) -> (TestMember, Browser) {
    let member = fixture.create_member().await;
    let mut second = fixture.browser();
    sign_in(&mut second, &member.email, PASSWORD).await;
    (member, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn session_cookie_changes_at_sign_in() {
    let fixture = shared_fixture().await;
    let member = fixture.create_member().await;
    let (planted_cookie, device) = (fresh_secret(), fresh_secret());
    let mut victim = fixture.browser();
    victim.set_cookie(SESSION_COOKIE, &planted_cookie);
    sign_in(&mut victim, &member.email, PASSWORD).await;
    assert_ne!(victim.cookie(SESSION_COOKIE), Some(planted_cookie.as_str()));
    assert_cookie_invalid(fixture, &planted_cookie, "planted before a sign-in").await;

    let first = session_cookie(&victim);
    victim.set_cookie(DEVICE_COOKIE, &device);
    sign_in(&mut victim, &member.email, PASSWORD).await;
    assert_cookie_invalid(fixture, &first, "of an earlier sign-in").await;

    let second = session_cookie(&victim);
    let link = fixture.create_reset_link(&member.email).await;
    assert_redirects_to(&victim.post(&link, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_cookie_invalid(fixture, &second, "from before a password reset").await;
    assert_eq!(victim.get("/keys").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_out_invalidates_the_session_cookie() {
    let fixture = shared_fixture().await;
    let (mut member, mut second) = member_with_two_sessions(fixture).await;
    let ended = session_cookie(&second);
    let device = second.cookie(DEVICE_COOKIE).expect("browser has a device cookie").to_owned();
    let reply = second.post("/signout", &[]).await;
    assert_redirects_to(&reply, "/signin");
    assert_eq!(reply.header("clear-site-data"), Some("\"cache\", \"storage\""), "the device cookie stays");
    let known = format!("select count(*) from devices where digest = {}", digest_sql(&device));
    assert_eq!(fixture.psql(&known).await, "1", "the browser is still known");
    assert_ne!(second.cookie(SESSION_COOKIE), Some(ended.as_str()), "the browser gets a new cookie");
    assert_cookie_invalid(fixture, &ended, "signed out").await;
    assert_eq!(member.browser.get("/keys").await.status, 200, "other sessions continue");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_can_be_ended_from_another_session() {
    let fixture = shared_fixture().await;
    let (mut member, second) = member_with_two_sessions(fixture).await;
    let path = format!("/account/sessions/{}/end", session_id(fixture, &second).await);
    assert_redirects_to(&member.browser.post(&path, &[]).await, "/account");
    assert_cookie_invalid(fixture, &session_cookie(&second), "ended from another").await;
    assert_eq!(member.browser.post(&path, &[]).await.status, 404, "it has already ended");

    let mut third = fixture.browser();
    sign_in(&mut third, &member.email, PASSWORD).await;
    assert_redirects_to(&member.browser.post("/account/sessions/end-others", &[]).await, "/account");
    assert_cookie_invalid(fixture, &session_cookie(&third), "ended with all others").await;

    let (own, path) = (session_cookie(&member.browser), session_id(fixture, &member.browser).await);
    assert_redirects_to(&member.browser.post(&format!("/account/sessions/{path}/end"), &[]).await, "/signin");
    assert_cookie_invalid(fixture, &own, "ended by itself").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_change_ends_other_sessions() {
    let fixture = shared_fixture().await;
    let (mut member, second) = member_with_two_sessions(fixture).await;
    let wrong = [("current", "not the password"), ("password", NEW_PASSWORD)];
    assert_eq!(member.browser.post("/account/password", &wrong).await.status, 200);
    let right = [("current", PASSWORD), ("password", NEW_PASSWORD)];
    let stolen_cookie = session_cookie(&member.browser);
    assert_redirects_to(&member.browser.post("/account/password", &right).await, "/account");
    assert_cookie_invalid(fixture, &stolen_cookie, "a copy from before a new password").await;
    assert_cookie_invalid(fixture, &session_cookie(&second), "from before a new password").await;
    assert_eq!(member.browser.get("/keys").await.status, 200, "the session that changed it continues");
    let mut again = fixture.browser();
    let old = again.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await;
    assert_eq!(old.status, 200, "the old password is rejected");
    sign_in(&mut again, &member.email, NEW_PASSWORD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_that_is_easy_to_guess_is_rejected() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (link, email) = (fixture.create_reset_link(&member.email).await, member.email.clone());
    let local_part = email.split('@').next().expect("email has a local part");
    for easy in ["1234567890", "Password2026!", "1q2w3e4r5t", "B4sketb@ll-98", local_part] {
        for (path, fields) in [
            ("/signup", &[("email", email.as_str()), ("password", easy)][..]),
            ("/account/password", &[("current", PASSWORD), ("password", easy)]),
            (&link, &[("password", easy)]),
        ] {
            let reply = member.browser.post(path, fields).await;
            assert_eq!(reply.status, 200, "{easy} at {path}");
            assert!(reply.text().contains("This password is easy to guess."), "{easy} at {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn correct_password_upgrades_an_outdated_hash_once() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let stored_hash = format!("select password_hash from accounts where id = {}", member.id);
    let store_outdated = format!("update accounts set password_hash = '{OUTDATED_HASH}' where id = {}", member.id);
    let wait_for_upgrade = async || {
        let is_upgraded = async || fixture.psql(&stored_hash).await.starts_with(CURRENT_PARAMS);
        eventually("hash is upgraded", UPGRADE_TIMEOUT, is_upgraded).await.expect("hash is upgraded in time");
        fixture.psql(&stored_hash).await
    };
    let mut browser = fixture.browser();
    for visitor in ["stranger", "known browser"] {
        fixture.psql(&store_outdated).await;
        let wrong = browser.post("/signin", &[("email", &member.email), ("password", "not the password")]).await;
        assert_eq!(wrong.status, 200, "{visitor}");
        assert_eq!(fixture.psql(&stored_hash).await, OUTDATED_HASH, "{visitor} with a wrong password");
        sign_in(&mut browser, &member.email, PASSWORD).await;
        let upgraded = wait_for_upgrade().await;
        assert_eq!(browser.get("/keys").await.status, 200, "{visitor}: the new session continues");
        sign_in(&mut browser, &member.email, PASSWORD).await;
        sign_in(&mut browser, &member.email, PASSWORD).await;
        assert_eq!(fixture.psql(&stored_hash).await, upgraded, "{visitor}: a current hash stays");
    }

    fixture.psql(&store_outdated).await;
    let link = fixture.create_reset_link(&member.email).await;
    let confirmed = member.browser.post("/account/email", &[("email", &fresh_email()), ("password", PASSWORD)]).await;
    assert_eq!(confirmed.status, 200);
    wait_for_upgrade().await;
    assert_eq!(member.browser.get("/keys").await.status, 200, "earlier sessions continue");
    assert_eq!(fixture.browser().get(&link).await.status, 200, "links stay valid");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_leaves_no_sessions_or_rows() {
    let fixture = shared_fixture().await;
    let (mut member, mut second) = member_with_two_sessions(fixture).await;
    let key = member.create_key("short-lived", ipseity_domain::Scope::Ip).await;
    let link = fixture.create_reset_link(&member.email).await;
    assert_eq!(member.browser.post("/account/delete", &[("password", "not the password")]).await.status, 200);
    assert_eq!(second.get("/keys").await.status, 200);
    for email in ["", "other@example.com"] {
        let reply = member.browser.post("/account/delete", &[("email", email), ("password", PASSWORD)]).await;
        assert!(reply.status == 200 && reply.text().contains("isn’t the email address of your account"), "{email}");
    }
    assert_eq!(second.get("/keys").await.status, 200);
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/delete", &form).await, "/signin");
    assert_cookie_invalid(fixture, &session_cookie(&second), "of a deleted account").await;
    assert_eq!(second.get(&link).await.status, 410);
    assert_eq!(fixture.snapshot(&member.email, &second).await, "", "rows are left after deletion");
    assert_eq!(fixture.psql(&format!("select count(*) from keys where account_id = {}", member.id)).await, "0");
    let response = fixture.node().client().get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
    assert_eq!(response.expect("response arrives").status, 401, "its key is rejected on the next request");
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_session_expires() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let idle = |days: u32| {
        format!("update sessions set seen_at = now() - interval '{days} days' where account_id = {}", member.id)
    };
    fixture.psql(&idle(29)).await;
    assert_eq!(member.browser.get("/keys").await.status, 200);
    fixture.psql(&idle(30)).await;
    assert_cookie_invalid(fixture, &session_cookie(&member.browser), "idle for 30 days").await;
    assert_redirects_to(&member.browser.get("/keys").await, "/signin");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_secrets_are_never_stored_in_plaintext() {
    let fixture = shared_fixture().await;
    let mut member = fixture.sign_up().await;
    let email = member.email.clone();
    let key = member.create_key("secret", ipseity_domain::Scope::Ip).await;
    assert_eq!(fixture.browser().post("/forgot", &[("email", &email)]).await.status, 200);
    let link = fixture.emailed_link_path(&email, "password").await;
    let token = link.trim_start_matches("/link/").to_owned();
    let form = member.browser.csrf_token().await;
    let device = member.browser.cookie(DEVICE_COOKIE).expect("browser has a device cookie").to_owned();
    let secrets = [session_cookie(&member.browser), device, token, form, key.key, PASSWORD.to_owned()];

    let known = |secret: &str| format!("select count(*) from sessions where digest = sha256('{secret}')");
    assert_eq!(fixture.psql(&known(&secrets[0])).await, "1", "the session is stored by its digest");
    let search = PrivacySearch::new(secrets.clone().map(Needle::Text)).expect("search is valid");
    let dump = fixture.deployment.postgres.dump("ipseity").await.expect("dump succeeds");
    assert_eq!(search.search_bytes("the database", &dump), []);
    let log_search = PrivacySearch::new(secrets.into_iter().chain([email]).map(Needle::Text)).expect("search is valid");
    for (source, log) in
        [("the node's log", fixture.node().log()), ("PostgreSQL's log", fixture.deployment.postgres.log())]
    {
        assert_eq!(log_search.search_bytes(source, log.expect("log is readable").as_bytes()), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn public_pages_need_no_postgres_even_with_a_session() {
    let mut fixture = PortalFixture::open(&[("IPSEITY__PORTAL__QUERY_TIMEOUT_MS", "1000")]).await;
    let mut member = fixture.create_member().await;
    assert_eq!(member.browser.get("/keys").await.status, 200);
    fixture.deployment.postgres.kill9();
    for path in ["/", "/docs", "/signin"] {
        assert_eq!(member.browser.get(path).await.status, 200, "{path}");
    }
    assert_eq!(member.browser.get("/keys").await.status, 503, "not signed out");
    fixture.deployment.postgres.restart().await.expect("PostgreSQL restarts");
    let is_back = async || member.browser.get("/keys").await.status == 200;
    eventually("the session works again", Duration::from_secs(20), is_back).await.expect("session works");
}
