//! `ipseity operator`: operators without the console.

use serde_json::{Value, json};

use super::fixture::ConsoleFixture;
use crate::portal::authenticator::Authenticator;
use crate::portal::browser::Browser;
use crate::portal::fixture::assert_redirects_to;

async fn run(fixture: &ConsoleFixture, arguments: &[&str]) -> String {
    let output = fixture.cli(&[&["operator"], arguments].concat()).await;
    assert!(output.is_success(), "{arguments:?}: {}{}", output.text(), output.stderr);
    output.text()
}

async fn run_json(fixture: &ConsoleFixture, arguments: &[&str]) -> Vec<Value> {
    let text = run(fixture, &[arguments, &["--json"]].concat()).await;
    text.lines().map(|line| serde_json::from_str(line).expect("valid JSON")).collect()
}

/// The path of a printed link.
fn link_path(fixture: &ConsoleFixture, url: &str) -> String {
    let path = url.trim().strip_prefix(&fixture.node().console_url()).expect("link is that of the console");
    assert!(path.starts_with("/join/") && path.len() == "/join/".len() + 64, "{path}");
    path.to_owned()
}

async fn join(fixture: &ConsoleFixture, link: &str) -> Browser {
    let (mut browser, mut authenticator) =
        (fixture.browser(), Authenticator::for_origin(&fixture.node().console_url()));
    let begin = format!("{link}/passkey");
    assert_redirects_to(&authenticator.create_at(&mut browser, &begin, &[], &format!("{begin}/finish")).await, "/");
    browser
}

async fn assert_fails(fixture: &ConsoleFixture, arguments: &[&str], code: i32, message: &str) {
    let output = fixture.cli(&[&["operator"], arguments].concat()).await;
    assert_eq!(output.code, Some(code), "{arguments:?}: {}", output.stderr);
    assert!(output.stderr.contains(message) && output.text().is_empty(), "{arguments:?}: {}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_managed_on_the_command_line() {
    let fixture = &ConsoleFixture::open(&[]).await;
    assert_eq!(run_json(fixture, &["list"]).await, Vec::<Value>::new());
    let link = link_path(fixture, &run(fixture, &["add", "ada", "--role", "admin"]).await);
    assert_fails(fixture, &["add", "ADA", "--role", "viewer"], 1, "an operator with this name already exists").await;
    assert_fails(fixture, &["add", "a b", "--role", "viewer"], 2, "use 1 to 64 letters").await;
    assert_fails(fixture, &["add", "bob", "--role", "owner"], 2, "use viewer, support or admin").await;
    assert_fails(fixture, &["add", "bob"], 2, "--role").await;
    for (command, last) in [("link", None), ("role", Some("viewer")), ("remove", None)] {
        let arguments: Vec<_> = [command, "missing"].into_iter().chain(last).collect();
        assert_fails(fixture, &arguments, 1, "no operator has this name").await;
    }
    let listed = &run_json(fixture, &["list"]).await[0];
    assert_eq!(
        (&listed["name"], &listed["role"], &listed["has_joined"], &listed["last_seen_at"]),
        (&json!("ada"), &json!("admin"), &json!(false), &Value::Null)
    );
    assert!(run(fixture, &["list"]).await.contains("invited"));

    // Another link replaces the first.
    let renewed = &run_json(fixture, &["link", "Ada"]).await[0];
    assert_eq!(renewed["name"], "ada");
    let renewed = link_path(fixture, renewed["url"].as_str().expect("text"));
    assert_eq!(fixture.browser().get(&link).await.status, 410);
    let mut ada = join(fixture, &renewed).await;
    for arguments in [&["role", "ada", "viewer"][..], &["role", "ada", "support"], &["remove", "ada"]] {
        assert_fails(fixture, arguments, 1, "this is the only admin who has joined").await;
    }
    let listed = &run_json(fixture, &["list"]).await[0];
    assert!(listed["has_joined"] == true && listed["last_seen_at"].is_string(), "{listed}");
    // After a lost passkey.
    let lost = link_path(fixture, &run(fixture, &["link", "ada"]).await);
    join(fixture, &lost).await;
    assert_eq!(ada.get("/operators").await.status, 200, "other sessions stay");

    let added = &run_json(fixture, &["add", "bob", "--role", "admin"]).await[0];
    assert_eq!((&added["name"], &added["role"]), (&json!("bob"), &json!("admin")));
    let of_bob = link_path(fixture, added["url"].as_str().expect("text"));
    assert_fails(fixture, &["role", "ada", "viewer"], 1, "this is the only admin who has joined").await;
    join(fixture, &of_bob).await;
    assert_eq!(run(fixture, &["role", "ada", "viewer"]).await.trim(), "ada has the role viewer.");
    assert_eq!(ada.get("/operators").await.status, 403);
    let unused = link_path(fixture, &run(fixture, &["link", "ada"]).await);
    let removed = &run_json(fixture, &["remove", "ADA"]).await[0];
    assert_eq!(removed, &json!({"name": "ada", "removed": true}));
    assert_redirects_to(&ada.get("/").await, "/signin");
    assert_eq!(fixture.browser().get(&unused).await.status, 410, "the link of a removed operator");
    assert_fails(fixture, &["remove", "bob"], 1, "this is the only admin").await;

    let events = fixture.audit_events(&[]).await;
    let by_shell = events.iter().rev().filter(|event| event["operator"] == "root@shell");
    let by_shell: Vec<_> = by_shell.map(|event| (event["action"].clone(), event["subject"].clone())).collect();
    let expected = [
        ("operator_added_as_admin", "ada"),
        ("operator_link_created", "ada"),
        ("operator_link_created", "ada"),
        ("operator_link_created", "ada"),
        ("operator_added_as_admin", "bob"),
        ("operator_link_created", "bob"),
        ("operator_changed_to_viewer", "ada"),
        ("operator_link_created", "ada"),
        ("operator_removed", "ada"),
    ];
    assert_eq!(by_shell, expected.map(|(action, subject)| (json!(action), json!(subject))));

    // Saved, although no node serves the link.
    let settings = [("IPSEITY__ADMIN__LISTEN", "")];
    let arguments = ["operator", "add", "eve", "--role", "viewer"];
    let output = fixture.portal.deployment.cli_with_env(&settings, &arguments).await.expect("command runs");
    assert!(output.code == Some(1) && output.stderr.contains("[admin] listen is empty"), "{}", output.stderr);
    assert_eq!(run_json(fixture, &["list"]).await.len(), 2);
}
