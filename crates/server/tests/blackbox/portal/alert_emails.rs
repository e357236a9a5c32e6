//! Alert emails: every pause, other kinds once per key per day, none that is turned off, none lost during an SMTP outage.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{CommandOutput, IssuedKey, ReceivedEmail, eventually};

use super::fixture::{PASSWORD, PortalFixture, TestMember, assert_redirects_to, fresh_email, shared_fixture};
use crate::lookup::lookup_with_key;

const ROW_TIMEOUT: Duration = Duration::from_secs(20);
/// Daily quota of the small plan; 80% are 8 requests.
pub(super) const DAILY_LIMIT: usize = 10;

/// Sends lookups. Returns the last status.
pub(crate) async fn send_lookups(fixture: &PortalFixture, key: &IssuedKey, times: usize) -> u16 {
    let mut caller = fixture.node().client();
    let mut status = 0;
    for _ in 0..times {
        status = lookup_with_key(&mut caller, key).await.status;
    }
    status
}

async fn wait_for_rows(fixture: &PortalFixture, sql: &str, expected: &str) {
    eventually(sql, ROW_TIMEOUT, async || fixture.psql(sql).await == expected).await.expect("rows appear in time");
}

/// The alerts of a key, each with whether it was sent.
async fn alerts_of(fixture: &PortalFixture, key: &IssuedKey) -> String {
    let sql = "select string_agg(substr(kind, 7) || ' ' || (mailed_at is not null), ', ' order by kind, mailed_at is not null) \
               from notices where channel_id = 0 and key_id";
    fixture.psql(&format!("{sql} = '{}'", key.id)).await
}

pub(super) async fn use_small_plan(fixture: &PortalFixture, member: &TestMember) {
    // Fails if another test has added it.
    drop(fixture.deployment.cli(&["plan", "add", "small", "--daily-limit", &DAILY_LIMIT.to_string()]).await);
    let output = fixture.deployment.cli(&["account", "plan", "--email", &member.email, "--plan", "small"]).await;
    output.and_then(CommandOutput::ensure_success).expect("plan is changed");
}

/// Subjects of alerts about a key.
fn subjects_about<'a>(emails: &'a [ReceivedEmail], key: &IssuedKey) -> Vec<&'a str> {
    let alerts = emails.iter().filter(|email| email.subject.starts_with("Ipseity key "));
    alerts.filter(|email| email.text.contains(&key.id)).map(|email| email.subject.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pause_is_emailed_at_most_once_per_minute() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    assert_redirects_to(&member.browser.post("/account/alerts", &[("paused", "on")]).await, "/account/alerts");
    let (first, second) = (member.create_key("first", Scope::Ip).await, member.create_key("second", Scope::Ip).await);
    assert_eq!(send_lookups(fixture, &first, 301).await, 429);
    let message = fixture.smtp.wait_for_email(&member.email, "first").await.expect("email arrives");
    let page = format!("/keys/{}", first.id);
    assert!(message.links().iter().any(|link| link.ends_with(&page)), "{}", message.text);
    assert!(
        message.links().iter().any(|link| link.ends_with("/account/alerts")),
        "a link to turn it off: {}",
        message.text
    );

    assert_redirects_to(&member.browser.post(&format!("{page}/resume"), &[]).await, &page);
    assert_eq!(send_lookups(fixture, &first, 301).await, 429);
    wait_for_rows(fixture, &format!("select count(*) from pauses where key_id = '{}'", first.id), "2").await;
    assert_eq!(alerts_of(fixture, &first).await, "paused false, paused true");
    assert_eq!(send_lookups(fixture, &second, 301).await, 429);
    fixture.smtp.wait_for_email(&member.email, "second").await.expect("email about the second key arrives");
    assert_eq!(
        subjects_about(&fixture.smtp.emails_to(&member.email), &first),
        [""; 0],
        "a second email within a minute"
    );
    let minute_passes = "update notices set mailed_at = mailed_at - interval '1 minute' where key_id";
    let lane_is_due = "update alert_lanes set try_at = now()";
    fixture.psql(&format!("{minute_passes} = '{}'; {lane_is_due}", first.id)).await;
    let second_message = fixture.smtp.wait_for_email(&member.email, "first").await.expect("second email arrives");
    assert_eq!(second_message.subject, message.subject);
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_emails_at_80_and_100_percent_are_sent_once() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    use_small_plan(fixture, &member).await;
    let key = member.create_key("shop", Scope::Ip).await;
    let used = |count: usize| (format!("select admitted from usage where key_id = '{}'", key.id), count.to_string());
    assert_eq!(send_lookups(fixture, &key, 7).await, 200);
    let (sql, count) = used(7);
    wait_for_rows(fixture, &sql, &count).await;
    assert_eq!(alerts_of(fixture, &key).await, "");
    assert_eq!(send_lookups(fixture, &key, 1).await, 200);
    let near_email = fixture.smtp.wait_for_email(&member.email, "Near daily limit").await.expect("email arrives");
    assert!(near_email.text.contains("8 of") && near_email.text.contains(&key.id), "{}", near_email.text);
    assert_eq!(send_lookups(fixture, &key, DAILY_LIMIT - 8).await, 200);
    let exhausted_email = fixture.smtp.wait_for_email(&member.email, "shop").await.expect("email arrives");
    assert!(
        exhausted_email.text.contains(&key.id)
            && exhausted_email.links().iter().any(|link| link.ends_with("/account/limits")),
        "{}",
        exhausted_email.text
    );
    assert_eq!(send_lookups(fixture, &key, 5).await, 429);
    wait_for_rows(fixture, &format!("select count from refusals where key_id = '{}'", key.id), "5").await;
    wait_for_rows(
        fixture,
        &format!("select count(*) from notices where key_id = '{}' and mailed_at is not null", key.id),
        "2",
    )
    .await;
    assert_eq!(alerts_of(fixture, &key).await, "daily_limit_reached true, near_daily_limit true");
    assert_eq!(subjects_about(&fixture.smtp.emails_to(&member.email), &key), [""; 0], "a further email");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_near_its_burst_limit_is_emailed_once_per_hour() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (key, busy) = (member.create_key("shop", Scope::Ip).await, member.create_key("busy", Scope::Ip).await);
    let flushed = format!("select admitted from usage where key_id = '{}'", key.id);
    assert_eq!(send_lookups(fixture, &key, 239).await, 200);
    wait_for_rows(fixture, &flushed, "239").await;
    assert_eq!(alerts_of(fixture, &key).await, "");
    assert_eq!(send_lookups(fixture, &key, 1).await, 200);
    let email = fixture.smtp.wait_for_email(&member.email, "shop: Near burst limit").await.expect("email arrives");
    assert!(email.text.contains("80% of its 300 requests") && email.text.contains(&key.id), "{}", email.text);
    assert_eq!(send_lookups(fixture, &key, 40).await, 200);
    wait_for_rows(fixture, &flushed, "280").await;
    assert_eq!(send_lookups(fixture, &key, 60).await, 403);
    fixture.smtp.wait_for_email(&member.email, "shop: Paused").await.expect("email arrives");
    // Paused before the first flush.
    assert_eq!(send_lookups(fixture, &busy, 301).await, 429);
    fixture.smtp.wait_for_email(&member.email, "busy: Near burst limit").await.expect("email arrives");
    fixture.smtp.wait_for_email(&member.email, "busy: Paused").await.expect("email arrives");
    for key in [&key, &busy] {
        assert_eq!(alerts_of(fixture, key).await, "near_burst_limit true, paused true");
    }
    assert_eq!(subjects_about(&fixture.smtp.emails_to(&member.email), &key), [""; 0], "a further email");
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_alert_is_not_emailed() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    use_small_plan(fixture, &member).await;
    let key = member.create_key("quiet", Scope::Ip).await;
    let saved = member.browser.post("/account/alerts", &[("daily_limit_reached", "on")]).await;
    assert_redirects_to(&saved, "/account/alerts");
    assert_eq!(send_lookups(fixture, &key, DAILY_LIMIT).await, 200);
    fixture.smtp.wait_for_email(&member.email, "quiet").await.expect("enabled alert arrives");
    assert_eq!(send_lookups(fixture, &key, 301 - DAILY_LIMIT).await, 429);
    wait_for_rows(fixture, &format!("select count(*) from pauses where key_id = '{}'", key.id), "1").await;
    wait_for_rows(
        fixture,
        &format!("select count(*) from notices where key_id = '{}' and mailed_at is not null", key.id),
        "1",
    )
    .await;
    assert_eq!(alerts_of(fixture, &key).await, "daily_limit_reached true");
    assert_eq!(subjects_about(&fixture.smtp.emails_to(&member.email), &key), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_emails_are_sent_when_the_smtp_server_returns() {
    let fixture = PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    assert_redirects_to(&member.browser.post("/account/alerts", &[("paused", "on")]).await, "/account/alerts");
    let key = member.create_key("patient", Scope::Ip).await;
    fixture.smtp.set_offline(true);
    let newcomer = fresh_email();
    let mut browser = fixture.browser();
    assert_eq!(browser.post("/signup", &[("email", &newcomer), ("password", PASSWORD)]).await.status, 200);
    assert_eq!(send_lookups(&fixture, &key, 301).await, 429);
    let attempts_query = "select (select min(tries) from tickets where mailed_at is null) || ' ' || (select min(tries) from notices where mailed_at is null and channel_id = 0)";
    wait_for_rows(&fixture, attempts_query, "1 1").await;

    fixture.smtp.set_offline(false);
    // The next attempt would be a minute later.
    fixture.psql("update tickets set try_at = now() where mailed_at is null; update notices set try_at = now(); update alert_lanes set try_at = now()").await;
    fixture.smtp.wait_for_email(&member.email, "patient").await.expect("alert arrives");
    let link = fixture.emailed_link_path(&newcomer, "Confirm").await;
    assert_redirects_to(&browser.post(&link, &[]).await, "/keys");
    assert_eq!(alerts_of(&fixture, &key).await, "paused true");
    let log = fixture.node().log().expect("log is readable");
    assert!(!log.contains(&newcomer) && !log.contains(&member.email), "a log contains an email address");
}
