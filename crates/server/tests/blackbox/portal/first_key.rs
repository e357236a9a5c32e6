//! The first key: confirming the email creates it, and its pages show when it is used.

use std::time::{Duration, Instant};

use super::fixture::{
    PASSWORD, PortalFixture, TestMember, assert_redirects_to, fresh_email, key_shown_on, shared_fixture,
};
use crate::lookup::lookup_with_key;

const WAITING: &str = "Waiting for the first request";
const RECEIVED: &str = "First request received";
/// From a request until an open page shows it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// Signs up, and returns the path of the link in the email.
async fn request_account(fixture: &PortalFixture) -> (TestMember, String) {
    let email = fresh_email();
    let mut browser = fixture.browser();
    assert_eq!(browser.post("/signup", &[("email", &email), ("password", PASSWORD)]).await.status, 200);
    let link = fixture.emailed_link_path(&email, "Confirm").await;
    (TestMember { browser, email, id: 0 }, link)
}

async fn key_count(fixture: &PortalFixture, email: &str) -> String {
    let accounts = format!("select id from accounts where email = '{email}'");
    fixture.psql(&format!("select count(*) from keys where account_id in ({accounts})")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn confirming_the_email_creates_the_first_key_once() {
    let fixture = shared_fixture().await;
    let (mut member, link) = request_account(fixture).await;
    let form = member.browser.get(&link).await.text();
    assert!(form.contains("Confirm and create key") && form.contains("name=\"preset\""), "{form}");

    let page = member.browser.post(&link, &[("preset", "trial")]).await;
    let key = key_shown_on(&page).unwrap_or_else(|| panic!("no key: {}", page.text()));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert_eq!(lookup_with_key(&mut fixture.node().client(), &key).await.status, 200);
    let saved = fixture.psql(&format!("select name, scope, own_daily_limit from keys where id = '{}'", key.id)).await;
    assert_eq!(saved, "First key|full|1000");
    let list = member.browser.get("/keys").await;
    assert!(list.status == 200 && list.text().contains("First key"), "the member is signed in: {}", list.text());

    // As if the page was reloaded.
    let again = member.browser.post(&link, &[("preset", "trial")]).await;
    assert!(again.status == 410 && key_shown_on(&again).is_none(), "{}: {}", again.status, again.text());
    assert_eq!(key_count(fixture, &member.email).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_choice_creates_neither_account_nor_key() {
    let fixture = shared_fixture().await;
    let (mut member, link) = request_account(fixture).await;
    for (fields, reason) in [
        (&[("preset", "web")][..], "Enter the origin of your page."),
        (&[("preset", "web"), ("origins", "shop.example")], "<code>shop.example</code> is not an origin."),
        (&[("preset", "unknown")], "Nothing was created."),
    ] {
        let page = member.browser.post(&link, fields).await;
        assert!(page.status == 200 && page.text().contains(reason), "{fields:?}: {}", page.text());
        assert_eq!(fixture.account_id(&member.email).await, None, "{fields:?}");
    }
    let web = [("preset", "web"), ("origins", "https://shop.example")];
    let page = member.browser.post(&link, &web).await.text();
    assert!(page.contains("Origin: https://shop.example") && !page.contains("Send test request"), "{page}");
    assert_eq!(key_count(fixture, &member.email).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_key_is_refused_while_restrictions_are_not_enabled() {
    let fixture = PortalFixture::open(&[]).await;
    fixture.psql("update deployment set restrictions_enabled = false").await;
    let (mut member, link) = request_account(&fixture).await;
    let page = member.browser.post(&link, &[("preset", "trial")]).await.text();
    assert!(page.contains("has not enabled restrictions") && page.contains("value=\"trial\" checked"), "{page}");
    assert_eq!(fixture.account_id(&member.email).await, None);
    assert!(key_shown_on(&member.browser.post(&link, &[("preset", "unrestricted")]).await).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_browser_needs_the_password_and_keeps_its_choice() {
    let fixture = shared_fixture().await;
    let (member, link) = request_account(fixture).await;
    let mut other = fixture.browser();
    let rejected = other.post(&link, &[("preset", "trial"), ("password", "not the password")]).await.text();
    assert!(rejected.contains("value=\"trial\" checked") && rejected.contains("Incorrect password"), "{rejected}");
    assert_eq!(fixture.account_id(&member.email).await, None);
    let page = other.post(&link, &[("preset", "trial"), ("password", PASSWORD)]).await;
    assert!(key_shown_on(&page).is_some(), "{}", page.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn form_without_a_choice_creates_only_the_account() {
    let fixture = shared_fixture().await;
    let (mut member, link) = request_account(fixture).await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/keys");
    assert_eq!(key_count(fixture, &member.email).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_shows_the_first_request_within_two_seconds() {
    let fixture = shared_fixture().await;
    let (mut member, link) = request_account(fixture).await;
    let page = member.browser.post(&link, &[("preset", "unrestricted")]).await;
    let key = key_shown_on(&page).unwrap_or_else(|| panic!("no key: {}", page.text()));
    let key_path = format!("/keys/{}", key.id);
    let waiting = member.browser.get(&key_path).await.text();
    assert!(waiting.contains(WAITING) && waiting.contains(&format!("ips_{}…", key.id)), "{waiting}");

    let mut stream = member.browser.open_stream(fixture.node(), "/events").await;
    assert_eq!(lookup_with_key(&mut fixture.node().client(), &key).await.status, 200);
    let sent_at = Instant::now();
    // Like the script of the page: it loads the page again after each event.
    loop {
        let chunk = tokio::time::timeout(SHOWN_WITHIN, stream.next_chunk()).await.expect("an event arrives in time");
        assert!(chunk.expect("stream is open").is_some());
        if member.browser.get(&key_path).await.text().contains(RECEIVED) {
            break;
        }
    }
    let took = sent_at.elapsed();
    assert!(took < SHOWN_WITHIN, "shown after {took:?}");
    fixture.psql(&format!("update keys set created_at = created_at - interval '1 day' where id = '{}'", key.id)).await;
    let later = member.browser.get(&key_path).await.text();
    assert!(!later.contains(RECEIVED) && !later.contains(WAITING), "{later}");
}
