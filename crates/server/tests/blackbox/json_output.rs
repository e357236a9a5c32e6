//! `--json`: every command that prints a result prints JSON objects, one per line, and nothing else.

use std::fs;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::{DATABASE, STORE_URL_ENV};
use ipseity_testkit::{Deployment, DeploymentOptions, TestDir};
use serde_json::Value;

use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};

/// Commands without a result.
const WITHOUT_RESULT: [&str; 3] = ["serve", "completions", "man"];

/// Runs a command as the owner of the database, and returns the objects that it prints.
async fn run_json(deployment: &Deployment, arguments: &[&str]) -> Vec<Value> {
    let (url, ops) = (deployment.postgres.url(DATABASE), deployment.nodes[0].ops().to_string());
    let settings = [(STORE_URL_ENV, url.as_str()), ("IPSEITY__OPS__LISTEN", &ops)];
    let output = deployment.cli_with_env(&settings, &[&["--json"], arguments].concat()).await.expect("run command");
    assert!(output.code == Some(0) || arguments == ["doctor"], "{arguments:?}: {}", output.stderr);
    let lines = output.json_lines().unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    assert!(lines.iter().all(Value::is_object), "{arguments:?}: {lines:?}");
    lines
}

/// Runs a command that prints one object.
async fn run_single(deployment: &Deployment, arguments: &[&str]) -> Value {
    let mut lines = run_json(deployment, arguments).await;
    assert_eq!(lines.len(), 1, "{arguments:?}: {lines:?}");
    lines.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_prints_json_objects_line_by_line() {
    // A separate one, because the last command deletes all counts in Redis.
    let options = DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = &Deployment::start(options).await.expect("deployment starts");
    let dir = TestDir::create().expect("create a directory");
    let unique = format!("j{:08x}", fastrand::u32(..));
    let (email, plan) = (format!("{unique}@example.com"), unique.as_str());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (out, site_dir, keys_csv) = (path("keys.jsonl"), path("site"), path("keys.csv"));
    fs::write(&keys_csv, format!("{email},ip,many\n")).expect("write the file");

    let plan_added = run_single(deployment, &["plan", "add", plan, "--daily-limit", "5"]).await;
    assert!(run_json(deployment, &["plan", "list"]).await.contains(&plan_added));
    let account = run_single(deployment, &["account", "create", "--email", &email]).await;
    assert_eq!(run_single(deployment, &["account", "show", "--email", &email]).await, account);
    assert!(run_json(deployment, &["account", "list"]).await.contains(&account));
    assert!(run_single(deployment, &["account", "invite", "--email", &email]).await["url"].is_string());
    assert_eq!(run_single(deployment, &["account", "plan", "--email", &email, "--plan", plan]).await["plan"], plan);
    let limits = ["account", "limits", "--email", &email, "--daily-limit", "7"];
    assert_eq!(run_single(deployment, &limits).await["limits"]["daily_limit"], 7);
    let disabled = run_single(deployment, &["account", "disable-two-factor", "--email", &email]).await;
    assert_eq!(disabled["two_factor"], false);

    let issue = ["key", "issue", "--account", &email, "--scope", "ip", "--name", "web"];
    let id = run_single(deployment, &issue).await["id"].as_str().expect("text").to_owned();
    let many = ["key", "issue", "--from", &keys_csv, "--out", &out];
    assert_eq!(run_single(deployment, &many).await["issued"], 1);
    assert_eq!(run_json(deployment, &["key", "list", "--account", &email]).await.len(), 2);
    assert_eq!(run_single(deployment, &["key", "search", &id]).await["id"], *id);
    assert_eq!(run_single(deployment, &["key", "show", &id]).await["state"], "active");
    for (change, state) in [("deactivate", "inactive"), ("reactivate", "active"), ("resume", "active")] {
        let changed = run_single(deployment, &["key", change, &id]).await;
        assert!(changed["state"] == state && changed["in_effect"] == true, "{change}: {changed}");
    }
    let limits = run_single(deployment, &["key", "limits", &id, "--burst-limit", "9"]).await;
    assert_eq!(limits["limits"]["burst_limit"], 9);
    let restricted = run_single(deployment, &["key", "restrict", &id, "--daily-limit", "3"]).await;
    assert_eq!(restricted["restrictions"]["daily_limit"], 3);
    assert!(run_single(deployment, &["key", "rotate", &id]).await["key"].is_string());
    assert_eq!(run_single(deployment, &["key", "invalidate-tickets", &id]).await["tickets_invalidated"], true);
    assert_eq!(run_single(deployment, &["key", "enable-restrictions"]).await["restrictions_enabled"], true);
    assert_eq!(run_single(deployment, &["key", "delete", &id, "--yes"]).await["state"], "deleted");
    assert_eq!(run_single(deployment, &["account", "delete", "--email", &email, "--yes"]).await["deleted_keys"], 1);
    assert!(run_json(deployment, &["audit", "--limit", "5"]).await.len() >= 5);

    let added = run_single(deployment, &["site", "add", &unique, "--dir", &site_dir]).await;
    assert_eq!(added["name"], *unique);
    assert!(run_json(deployment, &["site", "list"]).await.iter().any(|site| site["name"] == *unique));
    assert_eq!(run_single(deployment, &["site", "remove", &unique, "--yes"]).await["removed"], true);
    let added = run_single(deployment, &["operator", "add", &unique, "--role", "admin"]).await;
    assert!(added["url"].is_string() && added["role"] == "admin", "{added}");
    let other = format!("{unique}-other");
    run_single(deployment, &["operator", "add", &other, "--role", "viewer"]).await;
    assert!(run_json(deployment, &["operator", "list"]).await.iter().any(|operator| operator["name"] == *unique));
    assert!(run_single(deployment, &["operator", "link", &other]).await["url"].is_string());
    assert_eq!(run_single(deployment, &["operator", "role", &other, "support"]).await["role"], "support");
    assert_eq!(run_single(deployment, &["operator", "remove", &other]).await["removed"], true);
    assert!(run_json(deployment, &["check"]).await.len() > 100);
    let peer = run_single(deployment, &["check", "--peer", "192.0.2.7"]).await;
    assert_eq!(peer["client"], "192.0.2.7");
    assert!(run_json(deployment, &["doctor"]).await.iter().all(|finding| finding["severity"].is_string()));
    assert_eq!(run_single(deployment, &["ready"]).await["ready"], true);
    assert_eq!(run_single(deployment, &["drain"]).await["ready"], false);
    assert_eq!(run_single(deployment, &["drain", "--end"]).await["ready"], true);
    assert_eq!(run_single(deployment, &["migrate"]).await["pending_migrations"], 0);
    assert!(run_single(deployment, &["top", "--once", "--interval-s", "1"]).await["requests_per_s"].is_number());
    assert!(!run_json(deployment, &["geo", "status"]).await.is_empty());

    let key = fresh_key(deployment, Scope::Ip).await;
    fs::write(&out, &key.key).expect("write the file");
    let url = format!("http://{}", deployment.nodes[0].http());
    let bench = ["bench", "--keys", &out, "--url", &url, "--requests", "3", "--rate", "10"];
    assert_eq!(run_single(deployment, &bench).await["statuses"]["200"], 3);
    assert!(run_single(deployment, &["ledger", "reset", "--yes"]).await["deleted"].is_number());
}

/// A new command must be added to the test above, or to the list of commands without a result.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_is_tested_with_json() {
    let source = include_str!("json_output.rs");
    let help = deployment_help(&[]).await;
    for command in help {
        for subcommand in deployment_help(&[&command]).await {
            let arguments = format!("\"{command}\", \"{subcommand}\"");
            let changes = ["deactivate", "reactivate", "resume"].contains(&&*subcommand);
            // Geo updates need a server, and are tested in geo_update.rs.
            let is_tested = source.contains(&arguments) || changes || subcommand == "update";
            assert!(is_tested, "no test of {command} {subcommand} --json");
        }
        let is_tested = source.contains(&format!("[\"{command}\""));
        assert!(is_tested || WITHOUT_RESULT.contains(&&*command), "no test of {command} --json");
    }
}

/// The commands in a help page.
async fn deployment_help(arguments: &[&str]) -> Vec<String> {
    let output = shared_deployment().await.cli(&[arguments, &["--help"]].concat()).await.expect("run command");
    let text = output.text();
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}
