//! Changes of the email address: only the owner can confirm one, and the previous address can undo it.

use super::browser::Browser;
use super::fixture::{
    NEW_PASSWORD, PASSWORD, PortalFixture, TestMember, assert_redirects_to, fresh_email, shared_fixture,
};

const ATTACKER_PASSWORD: &str = "a password of the attacker";

/// Requests a change, and returns the path of the confirmation link.
async fn request_change(fixture: &PortalFixture, browser: &mut Browser, email: &str, password: &str) -> String {
    let reply = browser.post("/account/email", &[("email", email), ("password", password)]).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    fixture.emailed_link_path(email, "Confirm").await
}

/// Changes the email of a signed-in member. Returns the path of the link that undoes it.
async fn change_email(
    fixture: &PortalFixture,
    browser: &mut Browser,
    [previous, email]: [&str; 2],
    password: &str,
) -> String {
    let link = request_change(fixture, browser, email, password).await;
    assert_redirects_to(&browser.post(&link, &[]).await, "/account");
    fixture.emailed_link_path(previous, "The email of").await
}

async fn email_of(fixture: &PortalFixture, account_id: i64) -> String {
    fixture.psql(&format!("select email from accounts where id = {account_id}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_at_a_mistyped_address_cannot_confirm_it() {
    let fixture = shared_fixture().await;
    let (mut member, mistyped, intended) = (fixture.create_member().await, fresh_email(), fresh_email());
    let link = request_change(fixture, &mut member.browser, &mistyped, PASSWORD).await;
    let mut another_member = fixture.create_member().await.browser;
    for stranger in [&mut fixture.browser(), &mut another_member] {
        let page = stranger.get(&link).await;
        assert!(page.text().contains("name=\"password\"") && !page.text().contains(&member.email), "{}", page.text());
        for fields in [&[][..], &[("password", "not the password")]] {
            assert_eq!(stranger.post(&link, fields).await.status, 200, "{fields:?}");
        }
        assert_eq!(stranger.post("/forgot", &[("email", &mistyped)]).await.status, 200);
    }
    assert_eq!(email_of(fixture, member.id).await, member.email);
    assert_eq!(fixture.smtp.emails_to(&member.email).len(), 0, "nothing changed");

    let link = request_change(fixture, &mut member.browser, &intended, PASSWORD).await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");
    assert_eq!(email_of(fixture, member.id).await, intended);
    assert_eq!(fixture.smtp.emails_to(&mistyped).len(), 0, "the stranger got no reset link");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_email_is_confirmed_in_another_browser_with_the_password() {
    let fixture = shared_fixture().await;
    let (mut member, email, mut phone) = (fixture.create_member().await, fresh_email(), fixture.browser());
    let link = request_change(fixture, &mut member.browser, &email, PASSWORD).await;
    assert_redirects_to(&phone.post(&link, &[("password", PASSWORD)]).await, "/keys");
    assert_eq!(email_of(fixture, member.id).await, email);
    assert_eq!(phone.get("/keys").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_on_a_confirmation_page_count_like_sign_ins() {
    let fixture = PortalFixture::open(&[("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_ACCOUNT_MAX", "3")]).await;
    let (mut member, mut stranger) = (fixture.create_member().await, fixture.browser());
    let link = request_change(&fixture, &mut member.browser, &fresh_email(), PASSWORD).await;
    for _ in 0..3 {
        assert_eq!(stranger.post(&link, &[("password", "not the password")]).await.status, 200);
    }
    assert_eq!(stranger.post(&link, &[("password", PASSWORD)]).await.status, 429);
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_eq!(stranger.post("/signin", &form).await.status, 429);
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_undoes_a_takeover_from_the_previous_address() {
    let fixture = shared_fixture().await;
    let (TestMember { browser: mut attacker, email, id }, bystander) =
        (fixture.create_member().await, fixture.create_member().await);
    let [first, second, third] = [(); 3].map(|()| fresh_email());
    let undo = change_email(fixture, &mut attacker, [&email, &first], PASSWORD).await;
    let new_password = [("current", PASSWORD), ("password", ATTACKER_PASSWORD)];
    assert_redirects_to(&attacker.post("/account/password", &new_password).await, "/account");
    let attackers_undo = change_email(fixture, &mut attacker, [&first, &second], ATTACKER_PASSWORD).await;
    let pending = request_change(fixture, &mut attacker, &third, ATTACKER_PASSWORD).await;
    let before_bystander = fixture.snapshot(&bystander.email, &bystander.browser).await;

    let mut owner = fixture.browser();
    let page = owner.get(&undo).await;
    assert!(page.text().contains("Restore your email") && page.text().contains(&email), "{}", page.text());
    assert_eq!(email_of(fixture, id).await, second, "opening the link changes nothing");
    assert_redirects_to(&owner.post(&undo, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_eq!(email_of(fixture, id).await, email);
    assert_eq!(owner.get("/keys").await.status, 200);

    assert_redirects_to(&attacker.get("/keys").await, "/signin");
    for address in [&email, &first, &second] {
        let reply = fixture.browser().post("/signin", &[("email", address), ("password", ATTACKER_PASSWORD)]).await;
        assert_eq!(reply.status, 200, "the attacker signs in as {address}");
    }
    for link in [&undo, &attackers_undo, &pending] {
        assert_eq!(attacker.post(link, &[("password", ATTACKER_PASSWORD)]).await.status, 410);
    }
    assert_eq!(email_of(fixture, id).await, email);
    let form = [("email", email.as_str()), ("password", NEW_PASSWORD)];
    assert_redirects_to(&fixture.browser().post("/signin", &form).await, "/keys");
    assert_eq!(fixture.snapshot(&bystander.email, &bystander.browser).await, before_bystander);
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_waits_until_the_address_is_free_again() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let undo = change_email(fixture, &mut member.browser, [&member.email, &fresh_email()], PASSWORD).await;
    let mut second = fixture.create_member_with_email(member.email.clone()).await;
    let mut owner = fixture.browser();
    let reply = owner.post(&undo, &[("password", NEW_PASSWORD)]).await;
    assert!(reply.status == 200 && reply.text().contains("already exists"), "{}", reply.text());
    assert_eq!(member.browser.get("/keys").await.status, 200, "nothing changed");
    let form = [("email", second.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&second.browser.post("/account/delete", &form).await, "/signin");
    assert_redirects_to(&owner.post(&undo, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_eq!(email_of(fixture, member.id).await, member.email);
}
