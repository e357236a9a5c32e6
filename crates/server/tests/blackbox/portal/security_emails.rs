//! Security events: each is logged and sends one email, also when a node is killed in between.

use std::collections::BTreeMap;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, eventually};

use super::authenticator::Authenticator;
use super::fixture::{
    NEW_PASSWORD, PASSWORD, PortalFixture, TestMember, assert_redirects_to, fresh_email, shared_fixture,
};

const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// How many emails to an address have each subject.
fn count_subjects(fixture: &PortalFixture, email: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for message in fixture.smtp.emails_to(email) {
        *counts.entry(message.subject).or_default() += 1;
    }
    counts
}

async fn wait_until_sent(fixture: &PortalFixture, account_id: i64) {
    let unsent = format!("select count(*) from notices where account_id = {account_id} and mailed_at is null");
    let is_empty = async || fixture.psql(&unsent).await == "0";
    eventually("the queue is empty", ARRIVAL_TIMEOUT, is_empty).await.expect("emails are sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_security_event_sends_one_email() {
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    let email = member.email.clone();
    let sign_in = [("email", email.as_str()), ("password", PASSWORD)];
    let mut browser = fixture.browser();
    for _ in 0..2 {
        // The second time, the browser is known.
        assert_redirects_to(&browser.post("/signin", &sign_in).await, "/keys");
    }
    let key = member.create_key("my key", Scope::Ip).await;
    assert_eq!(
        member
            .browser
            .post(&format!("/keys/{}/rotate", key.id), &[("overlap_s", "0"), ("confirmed", "yes")])
            .await
            .status,
        200
    );
    assert_redirects_to(
        &member.browser.post(&format!("/keys/{}/delete", key.id), &[("typed", "my key")]).await,
        "/keys",
    );
    authenticator.register_for(&mut member, PASSWORD).await;
    let codes_page = member.browser.post("/account/two-factor/passkeys", &[("password", PASSWORD)]).await;
    assert_eq!(codes_page.status, 200);
    assert_redirects_to(&authenticator.confirm(&mut member.browser).await, "/account");
    assert_eq!(member.browser.post("/account/two-factor/codes", &[]).await.status, 200);
    assert_redirects_to(&member.browser.post("/account/two-factor/off", &[]).await, "/account/two-factor");
    let passkey = fixture.psql(&format!("select id from passkeys where account_id = {}", member.id)).await;
    assert_redirects_to(&member.browser.post(&format!("/account/passkeys/{passkey}/delete"), &[]).await, "/account");
    assert_redirects_to(&member.browser.post("/account/password", &[("password", NEW_PASSWORD)]).await, "/account");
    let new_email = fresh_email();
    let change = [("email", new_email.as_str()), ("password", NEW_PASSWORD)];
    assert_eq!(member.browser.post("/account/email", &change).await.status, 200);
    let link = fixture.emailed_link_path(&new_email, "Confirm").await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");

    wait_until_sent(fixture, member.id).await;
    let expected = [
        "A passkey was added to your Ipseity account",
        "A passkey was removed from your Ipseity account",
        "An Ipseity key was created",
        "An Ipseity key was deleted",
        "An Ipseity key was rotated",
        "New sign-in to your Ipseity account",
        "The email of your Ipseity account was changed",
        "The password of your Ipseity account was changed",
        "Two-factor authentication is off for your Ipseity account",
        "Two-factor authentication is on for your Ipseity account",
        "Your Ipseity recovery codes were replaced",
    ];
    let expected = expected.map(|subject| (subject.to_owned(), 1)).into();
    assert_eq!(count_subjects(fixture, &email), expected);
    assert_eq!(count_subjects(fixture, &new_email), BTreeMap::new());
    let logged = fixture.psql(&format!("select count(*) from security_events where account_id = {}", member.id)).await;
    assert_eq!(logged, "13", "eleven emails and two sign-ins");
    let page = member.browser.get("/account").await;
    assert!(page.text().contains("Two-factor authentication turned on"), "{}", page.text());
    let text = fixture.smtp.emails_to(&email).iter().map(|message| message.text.clone()).collect::<String>();
    assert!(text.contains(&format!("my key (ips_{})", key.id)) && !text.contains(&key.key), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_sends_its_queued_emails_and_one_about_the_deletion() {
    let fixture = &PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    let (email, new_email) = (member.email.clone(), fresh_email());
    let change = [("email", new_email.as_str()), ("password", PASSWORD)];
    assert_eq!(member.browser.post("/account/email", &change).await.status, 200);
    let link = fixture.emailed_link_path(&new_email, "Confirm").await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");
    let restore_link = fixture.emailed_link_path(&email, "changed").await;
    fixture.smtp.set_offline(true);
    member.create_key("my key", Scope::Ip).await;
    let form = [("email", new_email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/delete", &form).await, "/signin");
    fixture.smtp.set_offline(false);
    fixture.psql("update notices set try_at = now()").await;
    wait_until_sent(fixture, member.id).await;
    let deleted = ("Your Ipseity account was deleted".to_owned(), 1);
    assert_eq!(count_subjects(fixture, &email), BTreeMap::from([deleted.clone()]), "the previous address");
    let created = ("An Ipseity key was created".to_owned(), 1);
    assert_eq!(count_subjects(fixture, &new_email), BTreeMap::from([created, deleted]));
    assert_eq!(fixture.psql("select count(*) from notices").await, "0", "no address is left");
    assert_eq!(fixture.browser().get(&restore_link).await.status, 410, "the link no longer works");
}

/// Creates a key on a node, and returns its owner.
async fn create_key_on(fixture: &PortalFixture, node: &Node) -> TestMember {
    let mut member = fixture.create_member().await;
    member.browser = member.browser.on_node(node);
    member.create_key("one", Scope::Ip).await;
    member
}

#[tokio::test(flavor = "multi_thread")]
async fn node_killed_before_sending_sends_each_email_once() {
    let fixture = &PortalFixture::open(&[]).await;
    // The first member signs up by email.
    fixture.password_hash().await;
    fixture.smtp.set_offline(true);
    let mut doomed = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
    let mut members = Vec::new();
    for _ in 0..10 {
        members.push(create_key_on(fixture, &doomed).await);
    }
    doomed.kill9();
    fixture.smtp.set_offline(false);
    // The next attempt after a failure is a minute later.
    fixture.psql("update notices set try_at = now()").await;
    for member in &members {
        wait_until_sent(fixture, member.id).await;
        let expected = BTreeMap::from([("An Ipseity key was created".to_owned(), 1)]);
        assert_eq!(count_subjects(fixture, &member.email), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn security_events_cannot_be_changed_by_a_node() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    member.create_key("one", Scope::Ip).await;
    let as_node = async |sql: &str| {
        let statement = format!("set role ipseity_node; {sql}");
        fixture.deployment.postgres.psql("ipseity", &statement).await
    };
    let of_member = format!("where account_id = {}", member.id);
    assert!(as_node(&format!("select kind from security_events {of_member}")).await.is_ok());
    for sql in [
        format!("update security_events set kind = 'x' {of_member}"),
        format!("delete from security_events {of_member}"),
        "truncate security_events".to_owned(),
    ] {
        let error = as_node(&sql).await.expect_err("statement is rejected").to_string();
        assert!(error.contains("permission denied"), "{sql}: {error}");
    }
    as_node("select delete_security_events(0, 1000)").await.expect("function is called");
    let count = format!("select count(*) from security_events {of_member}");
    assert_eq!(fixture.psql(&count).await, "1", "younger than 30 days");
    let columns = "select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns
                   where table_name = 'security_events'";
    assert_eq!(fixture.psql(columns).await, "id account_id kind key_id at", "no address is stored");
}
