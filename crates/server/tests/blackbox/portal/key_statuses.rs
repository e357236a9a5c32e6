//! The statuses of keys: pages, emails, the API and the command line say the same, and it is what the next request gets.

use ipseity_domain::{KeyStatus, Scope};
use ipseity_store::OperatorRole;
use ipseity_testkit::{CommandOutput, Deployment, IssuedKey, Node};
use serde_json::Value;

use super::alert_emails::{DAILY_LIMIT, send_lookups, use_small_plan};
use super::fixture::{PortalFixture, TestMember, shared_fixture};
use crate::console::fixture::shared_fixture as shared_console_fixture;
use crate::restrictions::restrict;

#[tokio::test(flavor = "multi_thread")]
async fn key_at_its_daily_limit_is_not_shown_as_active() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    use_small_plan(fixture, &member).await;
    let key = member.create_key("shop", Scope::Ip).await;
    let badges = ["Active", "Near daily limit", "Daily limit reached"];
    for (requests, status, badge) in [(7, 200, badges[0]), (1, 200, badges[1]), (DAILY_LIMIT - 7, 429, badges[2])] {
        assert_eq!(send_lookups(fixture, &key, requests).await, status);
        for path in ["/keys", &format!("/keys/{}", key.id)] {
            let page = member.browser.get(path).await.text();
            for other in badges {
                assert_eq!(page.contains(&format!(">{other}</span>")), other == badge, "{other} on {path}");
            }
            assert_eq!(page.contains("are rejected with <code>429</code> until"), status == 429, "{path}");
        }
    }
    assert!(member.browser.get("/usage").await.text().contains(">Daily limit reached</span>"));
}

/// How a key gets a status, what its next lookup gets, and whether an email has the status in its subject.
struct StatusCase {
    status: KeyStatus,
    changes: &'static [&'static [&'static str]],
    requests: usize,
    next_lookup: u16,
    has_email: bool,
}

/// `ID` is that of the key.
const CASES: [StatusCase; 7] = [
    StatusCase { status: KeyStatus::Active, changes: &[], requests: 1, next_lookup: 200, has_email: false },
    StatusCase {
        status: KeyStatus::NearDailyLimit,
        changes: &[&["restrict", "ID", "--daily-limit", "10"]],
        requests: 8,
        next_lookup: 200,
        has_email: true,
    },
    StatusCase {
        status: KeyStatus::DailyLimitReached,
        changes: &[&["restrict", "ID", "--daily-limit", "10"]],
        requests: 10,
        next_lookup: 429,
        has_email: true,
    },
    StatusCase {
        status: KeyStatus::NearBurstLimit,
        changes: &[&["limits", "ID", "--burst-limit", "10"]],
        requests: 8,
        next_lookup: 200,
        has_email: true,
    },
    StatusCase {
        status: KeyStatus::Paused,
        changes: &[&["limits", "ID", "--burst-limit", "10"]],
        requests: 11,
        next_lookup: 403,
        has_email: true,
    },
    StatusCase {
        status: KeyStatus::Expired,
        changes: &[&["restrict", "ID", "--expires", "2020-01-31T00:00:00Z"]],
        requests: 0,
        next_lookup: 403,
        has_email: false,
    },
    StatusCase {
        status: KeyStatus::Deactivated,
        changes: &[&["deactivate", "ID"]],
        requests: 0,
        next_lookup: 403,
        has_email: false,
    },
];

async fn run_key_command(deployment: &Deployment, arguments: &[&str]) -> CommandOutput {
    let output = deployment.cli(&[&["key"], arguments].concat()).await.and_then(CommandOutput::ensure_success);
    output.expect("command succeeds")
}

/// The status in the JSON of a command that lists keys.
async fn status_in_json(deployment: &Deployment, arguments: &[&str], key: &IssuedKey) -> Value {
    let lines = run_key_command(deployment, &[arguments, &["--json"]].concat()).await.json_lines().expect("JSON");
    lines.iter().find(|line| line["id"] == *key.id).expect("key is listed")["status"].clone()
}

async fn status_of_api(node: &Node, key: &IssuedKey, headers: &[(&str, &str)]) -> Value {
    let authorization = key.bearer();
    let headers = [headers, &[("authorization", authorization.as_str())]].concat();
    node.client().get("/api/v1/key", &headers).await.expect("response arrives").json().expect("JSON")
}

/// The label of the badge behind a text of a page.
fn badge_after<'a>(page: &'a str, text: &str) -> &'a str {
    let (_, after) = page.split_once(text).unwrap_or_else(|| panic!("{text:?} is missing in {page}"));
    let (_, badge) = after.split_once("<span class=\"badge ").expect("a badge");
    badge.split_once('>').and_then(|(_, label)| label.split('<').next()).expect("a label")
}

async fn bring_into_status(fixture: &PortalFixture, member: &mut TestMember, case: &StatusCase) -> IssuedKey {
    let key = member.create_key(&format!("key {}", case.status.name()), Scope::Ip).await;
    for change in case.changes {
        let arguments: Vec<&str> = change.iter().map(|word| if *word == "ID" { &*key.id } else { *word }).collect();
        run_key_command(&fixture.deployment, &arguments).await;
    }
    send_lookups(fixture, &key, case.requests).await;
    key
}

async fn assert_status_everywhere(
    fixture: &PortalFixture,
    (member, viewer): (&mut TestMember, &mut super::browser::Browser),
    (key, status): (&IssuedKey, KeyStatus),
) {
    let (label, name, id) = (status.label(), status.name(), key.id.as_str());
    let list = member.browser.get("/keys").await.text();
    assert_eq!(badge_after(&list, &format!("id=\"key-{id}\"")), label, "{list}");
    let needs_attention = !matches!(status, KeyStatus::Active | KeyStatus::Deactivated);
    assert_eq!(list.contains(&format!("id=\"attention-{id}\"")), needs_attention, "{label}");
    if needs_attention {
        assert_eq!(badge_after(&list, &format!("id=\"attention-{id}\"")), label);
    }
    assert_eq!(badge_after(&member.browser.get(&format!("/keys/{id}")).await.text(), "class=\"key-details\""), label);
    if status != KeyStatus::Active {
        let usage = member.browser.get("/usage").await.text();
        assert_eq!(badge_after(&usage, &format!("id=\"key-{id}\"")), label, "{usage}");
    }
    for path in [format!("/search?q={id}"), format!("/keys/{id}"), format!("/accounts/{}", member.id)] {
        let page = viewer.get(&path).await.text();
        let before = if path.starts_with("/keys") { "class=\"key-details\"" } else { &*format!("href=\"/keys/{id}\"") };
        assert_eq!(badge_after(&page, before), label, "{path} of the console: {page}");
    }
    assert_eq!(status_of_api(fixture.node(), key, &[]).await["key_status"], name, "{label}");
    let in_browser = status_of_api(fixture.node(), key, &[("origin", "https://shop.example")]).await;
    assert!(in_browser.get("key_status").is_none(), "{in_browser}");

    let deployment = &fixture.deployment;
    for arguments in [&["list", "--account", &member.email][..], &["search", id], &["show", id]] {
        assert_eq!(status_in_json(deployment, arguments, key).await, name, "{arguments:?}");
        let text = run_key_command(deployment, arguments).await.text();
        let is_line = |line: &&str| line.starts_with(id) || line.starts_with("status ");
        assert!(text.lines().find(is_line).expect("a line").contains(label), "{arguments:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_surface_has_the_same_word_for_each_status() {
    let console = shared_console_fixture().await;
    let (fixture, mut viewer) = (&console.portal, console.sign_in(OperatorRole::Viewer).await);
    let mut member = fixture.create_member().await;
    for case in &CASES {
        let key = bring_into_status(fixture, &mut member, case).await;
        let browsers = (&mut member, &mut viewer.browser);
        assert_status_everywhere(fixture, browsers, (&key, case.status)).await;
        if case.has_email {
            let subject = format!("Ipseity key key {}: {}", case.status.name(), case.status.label());
            let email = fixture.smtp.wait_for_email(&member.email, &subject).await.expect("email arrives");
            assert_eq!(email.subject, subject);
        }
        assert_eq!(send_lookups(fixture, &key, 1).await, case.next_lookup, "{:?}", case.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_expires_soon_needs_attention() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    assert!(!member.browser.get("/keys").await.text().contains("Needs attention"));
    for (hours, needs_attention) in [(80, false), (70, true)] {
        let time = format!("now() at time zone 'UTC' + interval '{hours} hours'");
        let expires = fixture.psql(&format!("select to_char({time}, 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")).await;
        restrict(&fixture.deployment, &key, &["--expires", &expires]).await;
        let page = member.browser.get("/keys").await.text();
        assert_eq!(page.contains("Needs attention"), needs_attention, "{page}");
        assert_eq!(badge_after(&page, &format!("id=\"key-{}\"", key.id)), "Active");
    }
}
