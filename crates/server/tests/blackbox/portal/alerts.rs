//! Mails about a key: each kind once a day and key, none that is switched off, none lost while the mail server is away.

use std::time::Duration;

use domain::Scope;
use testkit::{CliOutput, Issued, Mail, eventually};

use super::stage::{Member, PASSWORD, Stage, arrives, fresh_email, stage};
use crate::lookup::ask;

const PATIENCE: Duration = Duration::from_secs(20);
/// Requests a day of the small plan: 80 % are 8.
const DAY: usize = 10;

/// Makes so many requests; gives the last status.
async fn spend(stage: &Stage, key: &Issued, times: usize) -> u16 {
    let mut caller = stage.node().caller();
    let mut status = 0;
    for _ in 0..times {
        status = ask(&mut caller, key).await.status;
    }
    status
}

async fn until(stage: &Stage, sql: &str, expected: &str) {
    eventually(sql, PATIENCE, async || stage.psql(sql).await == expected).await.expect("rows");
}

/// The kinds of alerts of a key, each with whether it was mailed.
async fn alerts(stage: &Stage, key: &Issued) -> String {
    let sql = "select string_agg(kind || ' ' || (mailed_at is not null), ', ' order by kind) from alerts where key_id";
    stage.psql(&format!("{sql} = '{}'", key.id)).await
}

async fn small_plan(stage: &Stage, member: &Member) {
    // Whoever comes first adds it.
    drop(stage.house.cli(&["plan", "add", "small", "--daily-limit", &DAY.to_string()]).await);
    let moved = stage.house.cli(&["account", "plan", "--email", &member.email, "--plan", "small"]).await;
    moved.and_then(CliOutput::success).expect("another plan");
}

fn about<'a>(mails: &'a [Mail], key: &Issued) -> Vec<&'a str> {
    mails.iter().filter(|mail| mail.text.contains(&key.id)).map(|mail| mail.subject.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_mailed_once_a_day_and_key() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    let (first, second) = (member.make_key("first", Scope::Ip).await, member.make_key("second", Scope::Ip).await);
    assert_eq!(spend(stage, &first, 301).await, 429);
    let mail = stage.mailbox.wait_for(&member.email, "first").await.expect("a mail");
    let page = format!("/keys/{}", first.id);
    assert!(mail.links().iter().any(|link| link.ends_with(&page)), "{}", mail.text);
    assert!(mail.links().iter().any(|link| link.ends_with("/account")), "how to switch it off: {}", mail.text);

    arrives(&member.browser.post(&format!("{page}/resume"), &[]).await, &page);
    assert_eq!(spend(stage, &first, 301).await, 429);
    until(stage, &format!("select count(*) from pauses where key_id = '{}'", first.id), "2").await;
    assert_eq!(alerts(stage, &first).await, "paused true");
    assert_eq!(spend(stage, &second, 301).await, 429);
    stage.mailbox.wait_for(&member.email, "second").await.expect("another key's mail");
    assert_eq!(about(&stage.mailbox.mails_to(&member.email), &first), [""; 0], "a second mail of one day");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_fifths_and_the_whole_of_a_day_are_mailed_once_each() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    small_plan(stage, &member).await;
    let key = member.make_key("shop", Scope::Ip).await;
    let used = |count: usize| (format!("select admitted from usage where key_id = '{}'", key.id), count.to_string());
    assert_eq!(spend(stage, &key, 7).await, 200);
    let (sql, count) = used(7);
    until(stage, &sql, &count).await;
    assert_eq!(alerts(stage, &key).await, "");
    assert_eq!(spend(stage, &key, 1).await, 200);
    let near = stage.mailbox.wait_for(&member.email, "80").await.expect("a mail");
    assert!(near.text.contains("8 of") && near.text.contains(&key.id), "{}", near.text);
    assert_eq!(spend(stage, &key, DAY - 8).await, 200);
    let spent = stage.mailbox.wait_for(&member.email, "shop").await.expect("a mail");
    assert!(
        spent.text.contains(&key.id) && spent.links().iter().any(|link| link.ends_with("/enterprise")),
        "{}",
        spent.text
    );
    assert_eq!(spend(stage, &key, 5).await, 429);
    until(stage, &format!("select count from refusals where key_id = '{}'", key.id), "5").await;
    until(stage, &format!("select count(*) from alerts where key_id = '{}' and mailed_at is not null", key.id), "2")
        .await;
    assert_eq!(alerts(stage, &key).await, "near true, spent true");
    assert_eq!(about(&stage.mailbox.mails_to(&member.email), &key), [""; 0], "no further mail");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_switched_off_is_not_mailed() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    small_plan(stage, &member).await;
    let key = member.make_key("quiet", Scope::Ip).await;
    arrives(&member.browser.post("/account/alerts", &[("spent", "on")]).await, "/account");
    assert_eq!(spend(stage, &key, DAY).await, 200);
    stage.mailbox.wait_for(&member.email, "quiet").await.expect("the one that is wanted");
    assert_eq!(spend(stage, &key, 301 - DAY).await, 429);
    until(stage, &format!("select count(*) from pauses where key_id = '{}'", key.id), "1").await;
    until(stage, &format!("select count(*) from alerts where key_id = '{}' and mailed_at is not null", key.id), "1")
        .await;
    assert_eq!(alerts(stage, &key).await, "spent true");
    assert_eq!(about(&stage.mailbox.mails_to(&member.email), &key), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_sent_is_sent_when_the_mail_server_is_back() {
    let stage = Stage::open(&[]).await;
    let mut member = stage.plant_member().await;
    let key = member.make_key("patient", Scope::Ip).await;
    stage.mailbox.set_away(true);
    let newcomer = fresh_email();
    let mut browser = stage.browser();
    assert_eq!(browser.post("/signup", &[("email", &newcomer), ("password", PASSWORD)]).await.status, 200);
    assert_eq!(spend(&stage, &key, 301).await, 429);
    let tried = "select (select min(tries) from tickets where mailed_at is null) || ' ' || (select min(tries) from alerts where mailed_at is null)";
    until(&stage, tried, "1 1").await;

    stage.mailbox.set_away(false);
    // The next try is a minute away.
    stage.psql("update tickets set try_at = now() where mailed_at is null; update alerts set try_at = now()").await;
    stage.mailbox.wait_for(&member.email, "patient").await.expect("the alert");
    let link = stage.mailed_link(&newcomer, "Confirm").await;
    arrives(&browser.post(&link, &[]).await, "/keys");
    assert_eq!(alerts(&stage, &key).await, "paused true");
    let log = stage.node().log().expect("a log");
    assert!(!log.contains(&newcomer) && !log.contains(&member.email), "a log names nobody");
}
