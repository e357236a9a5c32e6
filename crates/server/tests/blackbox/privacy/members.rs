//! Members of the portal: sign up and sign in every way, create and change keys, read their pages, and make mistakes.

use std::time::Duration;

use ipseity_domain::Scope;

use super::fixture::{PrivacyFixture, extra_node_env};
use crate::manage::fixture::token_shown_on;
use crate::portal::browser::{Browser, DEVICE_COOKIE, SESSION_COOKIE};
use crate::portal::fixture::{PASSWORD, assert_redirects_to, fresh_email, fresh_secret, key_shown_on};
use crate::portal::routes::{AccountFixture, ROUTE_CASES};

const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPTS_MAX: usize = 5;

pub(crate) async fn run_member_actions(fixture: &PrivacyFixture) {
    let mut browser = sign_up(fixture).await;
    create_and_use_keys(fixture, &mut browser).await;
    use_personal_tokens(fixture, &mut browser).await;
    receive_event(fixture, &browser).await;
    visit_every_route(fixture).await;
    submit_invalid_forms(fixture, &mut browser).await;
    exceed_signin_attempts(fixture).await;
}

/// Changes the client headers of the browser's next request.
fn change_client_headers(fixture: &PrivacyFixture, browser: &mut Browser) {
    let mut lines = fixture.canaries.client_headers();
    lines.push(("authorization".to_owned(), format!("Bearer {}", fixture.keys[0])));
    browser.set_extra_headers(lines);
}

/// Session cookies are secrets too.
fn register_cookies(fixture: &PrivacyFixture, browser: &Browser) {
    for cookie in [SESSION_COOKIE, DEVICE_COOKIE].into_iter().filter_map(|name| browser.cookie(name)) {
        fixture.canaries.register_secret(cookie);
    }
}

/// Signs up with a password that is a canary.
async fn sign_up(fixture: &PrivacyFixture) -> Browser {
    let (portal, email, password) = (&fixture.portal, fresh_email(), fixture.canaries.register_secret(&fresh_secret()));
    let mut browser = portal.browser();
    change_client_headers(fixture, &mut browser);
    let form = [("email", email.as_str()), ("password", password.as_str())];
    assert_eq!(browser.post("/signup", &form).await.status, 200);
    let link = portal.emailed_link_path(&email, "Confirm").await;
    change_client_headers(fixture, &mut browser);
    assert_redirects_to(&browser.post(&link, &[]).await, "/keys");
    register_cookies(fixture, &browser);
    let mut elsewhere = portal.browser();
    for (password, status) in [("not the password", 200), (&*password, 303)] {
        change_client_headers(fixture, &mut elsewhere);
        let reply = elsewhere.post("/signin", &[("email", &email), ("password", password)]).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    register_cookies(fixture, &elsewhere);
    // A key instead of a password, and instead of a link.
    change_client_headers(fixture, &mut elsewhere);
    fixture.record_status(elsewhere.post("/signin", &[("email", &email), ("password", &fixture.keys[0])]).await.status);
    fixture
        .record_status(elsewhere.post(&format!("/link/{}", fixture.keys[0]), &[("password", &password)]).await.status);
    browser
}

/// Keys that pages show once: created, rotated, used.
async fn create_and_use_keys(fixture: &PrivacyFixture, browser: &mut Browser) {
    for scope in [Scope::Ip, Scope::Geo, Scope::Full] {
        change_client_headers(fixture, browser);
        let page = browser.post("/keys", &[("name", scope.name()), ("scope", scope.name())]).await;
        let made = key_shown_on(&page).expect("page shows the key");
        fixture.canaries.register_key(&made.key);
        let path = format!("/api/v1/ip?key={}", made.key);
        let mut caller = fixture.deployment().nodes[0].client();
        let address = fixture.canaries.next_address().to_string();
        let reply = caller.get(&path, &[("x-forwarded-for", &address)]).await.expect("response arrives");
        assert!(
            reply.status == 200 && reply.json().expect("valid JSON").to_string().contains(&address),
            "{}",
            reply.text()
        );
        change_client_headers(fixture, browser);
        let page = browser.post(&format!("/keys/{}/rotate", made.id), &[("overlap_s", "3600")]).await;
        fixture.canaries.register_key(&key_shown_on(&page).expect("page shows the key").key);
    }
}

/// Programs use tokens that a page shows once, in the right place and in wrong ones.
async fn use_personal_tokens(fixture: &PrivacyFixture, browser: &mut Browser) {
    change_client_headers(fixture, browser);
    let fields = [("name", "robot"), ("keys:read", "on"), ("keys:write", "on"), ("lifetime_days", "30")];
    let page = browser.post("/account/tokens", &fields).await;
    let token = token_shown_on(&page).expect("page shows the token");
    fixture.canaries.register_secret(&token);
    let mut program = fixture.deployment().nodes[0].client();
    let address = fixture.canaries.next_address().to_string();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", &address)];
    let body = serde_json::json!({ "name": "made by a robot", "scope": "ip" });
    let reply = program.send_json(http::Method::POST, "/api/v1/manage/keys", &headers, &body).await;
    let reply = reply.expect("response arrives");
    assert_eq!(reply.status, 201, "{}", reply.text());
    fixture.canaries.register_key(reply.json().expect("valid JSON")["secret"].as_str().expect("text"));
    for path in ["/api/v1/ip".to_owned(), format!("/api/v1/ip?key={token}"), format!("/api/v1/manage/keys?key={token}")]
    {
        fixture.record_status(program.get(&path, &headers).await.expect("response arrives").status);
    }
}

/// An open page receives an event.
async fn receive_event(fixture: &PrivacyFixture, browser: &Browser) {
    let node = fixture.portal.node();
    let mut events = browser.open_stream(node, &format!("/events?key={}", fixture.keys[0])).await;
    assert_eq!(events.status, 200);
    let mut other = browser.on_node(node);
    let page = other.post("/keys", &[("name", "heard"), ("scope", "ip")]).await;
    fixture.canaries.register_key(&key_shown_on(&page).expect("page shows the key").key);
    let event = tokio::time::timeout(EVENT_TIMEOUT, events.next_chunk()).await;
    event.expect("event arrives in time").expect("stream is open").expect("event arrives");
}

/// Every route as the owner, as another member and without a session.
async fn visit_every_route(fixture: &PrivacyFixture) {
    fixture.canaries.register_secret(PASSWORD);
    let (bystander, _) = AccountFixture::create(&fixture.portal).await;
    for row in ROUTE_CASES.iter().filter(|row| !row.is_stream()) {
        let (owner, mut browser) = AccountFixture::create(&fixture.portal).await;
        for owner in [&bystander, &owner] {
            change_client_headers(fixture, &mut browser);
            let reply = owner.visit(&mut browser, row).await;
            key_shown_on(&reply).into_iter().for_each(|made| drop(fixture.canaries.register_key(&made.key)));
            fixture.record_status(reply.status);
        }
        let mut stranger = fixture.portal.browser();
        change_client_headers(fixture, &mut stranger);
        fixture.record_status(owner.visit(&mut stranger, row).await.status);
    }
}

/// Forms that are cross-site, stale, too long or invalid.
async fn submit_invalid_forms(fixture: &PrivacyFixture, browser: &mut Browser) {
    for row in ROUTE_CASES.iter().filter(|row| row.is_form()) {
        let path = row.path.replace("{id}", &fixture.keys[3]).replace("{token}", &fixture.keys[3]);
        let path = format!("{path}?key={}", fixture.keys[0]);
        change_client_headers(fixture, browser);
        for headers in [&[("sec-fetch-site", "cross-site")][..], &[("origin", "https://example.org")], &[]] {
            fixture.record_status(browser.post_with(&path, headers, &[("csrf", &fixture.keys[0])]).await.status);
        }
        let address = fixture.canaries.next_address();
        for (kind, body) in [
            ("application/json", format!("{{\"key\": \"{}\", \"ip\": \"{address}\"}}", fixture.keys[0])),
            ("application/x-www-form-urlencoded", format!("csrf=%zz&{}={address}", fixture.keys[0])),
            ("application/x-www-form-urlencoded", format!("csrf={}&{}", fixture.keys[0], "x".repeat(40_000))),
        ] {
            fixture.record_status(browser.post_body(&path, kind, body).await.status);
        }
    }
}

/// One network makes too many sign-in attempts.
async fn exceed_signin_attempts(fixture: &PrivacyFixture) {
    let max = ATTEMPTS_MAX.to_string();
    let settings = extra_node_env(&[("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_SUBNET_MAX", &max)]);
    let mut node = fixture.deployment().start_node(&settings).await.expect("node starts");
    let mut browser = Browser::open(&node);
    change_client_headers(fixture, &mut browser);
    let mut last = 0;
    for _ in 0..=ATTEMPTS_MAX {
        last =
            browser.post("/signin", &[("email", "missing@example.com"), ("password", &fixture.keys[0])]).await.status;
    }
    assert_eq!(last, 429);
    fixture.record_status(last);
    node.kill9();
    fixture.retain_node(node);
}
