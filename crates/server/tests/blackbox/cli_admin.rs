//! Commands for operators: search, show, issue from a file, benchmark; and the help, completions and man pages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node;
use ipseity_testkit::{CommandOutput, Deployment, TestDir};
use serde_json::Value;

use crate::fixture::{fresh_key, shared_deployment};

fn unique_name(name: &str) -> String {
    format!("{name}{:012x}", fastrand::u64(..) >> 16)
}

async fn run_cli(deployment: &Deployment, arguments: &[&str]) -> CommandOutput {
    deployment.cli(arguments).await.expect("run command")
}

/// Runs a command that succeeds.
async fn run_cli_ok(deployment: &Deployment, arguments: &[&str]) -> String {
    let output = run_cli(deployment, arguments).await;
    assert!(output.is_success(), "{arguments:?}: {}{}", output.text(), output.stderr);
    output.text()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("valid JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_keys_are_searchable_and_audited() {
    let (deployment, owner, name) = (shared_deployment().await, unique_name("owner"), unique_name("Lamp"));
    let email = format!("{owner}@example.com");
    deployment.create_account(&email).await.expect("create account");
    let issue_arguments = ["key", "issue", "--account", &email, "--scope", "geo", "--name", &name, "--json"];
    let id = json_lines(&run_cli_ok(deployment, &issue_arguments).await)[0]["id"].as_str().expect("string").to_owned();

    let found =
        json_lines(&run_cli_ok(deployment, &["account", "list", "--search", &owner.to_uppercase(), "--json"]).await);
    assert_eq!((found.len(), &found[0]["email"]), (1, &Value::from(email.clone())));
    for text in [&name.to_lowercase(), &owner, &id, &format!("ips_{id}")] {
        let found = json_lines(&run_cli_ok(deployment, &["key", "search", text, "--json"]).await);
        assert_eq!(
            (found.len(), &found[0]["id"], &found[0]["account"]),
            (1, &id.as_str().into(), &email.as_str().into())
        );
    }
    assert!(run_cli_ok(deployment, &["key", "search", &unique_name("nothing")]).await.starts_with("ID  NAME"));

    for change in ["deactivate", "reactivate"] {
        run_cli_ok(deployment, &["key", change, &id]).await;
    }
    let shown = run_cli_ok(deployment, &["key", "show", &id]).await;
    for words in [&name, &email, "Active", "never"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let actions = |text: &str| json_lines(text).iter().map(|event| event["action"].clone()).collect::<Vec<_>>();
    let expected = ["reactivated", "deactivated", "issued"];
    assert_eq!(actions(&run_cli_ok(deployment, &["audit", "--key", &id, "--json"]).await), expected);
    assert_eq!(
        actions(&run_cli_ok(deployment, &["audit", "--account", &email, "--limit", "2", "--json"]).await),
        expected[..2]
    );
    assert!(run_cli_ok(deployment, &["audit", "--key", &id]).await.contains("operator"));

    let unconfirmed = run_cli(deployment, &["account", "delete", "--email", &email]).await;
    assert!(unconfirmed.code == Some(1) && unconfirmed.stderr.contains("add --yes"), "{}", unconfirmed.stderr);
    run_cli_ok(deployment, &["account", "delete", "--email", &email, "--yes"]).await;
    let deleted = run_cli(deployment, &["key", "show", &id]).await;
    assert!(deleted.code == Some(1) && deleted.stderr.contains("no key has this ID"), "{}", deleted.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_issued_from_a_file_and_used_by_bench() {
    let (deployment, folder, owner) =
        (shared_deployment().await, TestDir::create().expect("create directory"), unique_name("many"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (input, keys) = (path("wanted.csv"), path("keys.jsonl"));
    let rows_to_issue: String = (0..12).map(|number| format!("{owner}@example.com,ip,key {number}\n")).collect();
    fs::write(&input, format!("# email,scope,name\n\n{rows_to_issue}")).expect("write file");
    let issue = ["key", "issue", "--from", &input, "--out", &keys, "--create-accounts"];
    let issued = run_cli(deployment, &issue).await;
    assert_eq!(issued.code, Some(1), "an account has at most ten keys");
    for line in ["line 13:", "line 14:", "2 of 12 keys were not issued"] {
        assert!(issued.stderr.contains(line), "{line}: {}", issued.stderr);
    }
    assert!(issued.text().starts_with("Wrote 10 keys to "), "{}", issued.text());
    assert!(!issued.stderr.contains("ips_") && !issued.text().contains("ips_"), "keys are only in the file");
    assert_eq!(fs::metadata(&keys).expect("read metadata").permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&keys).expect("read file");
    assert_eq!(json_lines(&written).len(), 10);
    let again = run_cli(deployment, &issue).await;
    assert!(again.code == Some(1) && again.stderr.contains("does not exist yet"), "{}", again.stderr);

    let base = format!("http://{}", deployment.nodes[0].http());
    let bench = ["bench", "--url", &base, "--keys", &keys, "--rate", "100", "--requests", "60"];
    let measured = &json_lines(&run_cli_ok(deployment, &[&bench[..], &["--json"]].concat()).await)[0];
    assert_eq!((&measured["requests"], &measured["statuses"]["200"]), (&60.into(), &60.into()), "{measured}");
    let (total_p99, service_p99) = (&measured["latency_ms"]["p99"], &measured["server_ms"]["p99"]);
    assert!(total_p99.as_f64() > service_p99.as_f64() && service_p99.as_f64() > Some(0.0), "{measured}");
    assert!(run_cli_ok(deployment, &bench).await.contains("p99"));

    let none = run_cli(deployment, &["bench", "--url", &base]).await;
    assert!(none.code == Some(2) && none.stderr.contains("--keys <FILE>"), "{}", none.stderr);
    let one = path("one.txt");
    fs::write(&one, fresh_key(deployment, Scope::Ip).await.key).expect("write file");
    let many =
        run_cli(deployment, &["bench", "--url", &base, "--keys", &one, "--rate", "10", "--requests", "301"]).await;
    assert!(many.code == Some(1) && many.stderr.contains("at least 2 keys"), "{}", many.stderr);
    fs::write(&one, "ips_short\n").expect("write file");
    let malformed = run_cli(deployment, &["bench", "--url", &base, "--keys", &one]).await;
    assert!(malformed.code == Some(1) && malformed.stderr.contains("line 1 of"), "{}", malformed.stderr);
    assert!(!malformed.stderr.contains("ips_short"), "{}", malformed.stderr);
}

/// Runs the program with an empty environment.
fn run_isolated(arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(node::find_service_binary().expect("service binary"));
    // The width of the terminal must not matter.
    let output = command.args(arguments).env_clear().output().expect("run program");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CommandOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

/// Collects this command and its subcommands from the help pages.
fn collect_commands(parents: &[String], found: &mut Vec<Vec<String>>) {
    found.push(parents.to_vec());
    let arguments: Vec<_> = parents.iter().map(String::as_str).chain(["--help"]).collect();
    let page = run_isolated(&arguments).text();
    let list = page.split("\nCommands:\n").nth(1).unwrap_or_default();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        // Names are indented by two spaces, continuation lines by more.
        let name =
            line.strip_prefix("  ").filter(|name| !name.starts_with(' ')).and_then(|name| name.split(' ').next());
        if let Some(name) = name.filter(|name| *name != "help") {
            collect_commands(&[parents, &[name.to_owned()]].concat(), found);
        }
    }
}

fn help_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/help.txt")
}

#[test]
fn help_pages_match_the_snapshot() {
    let mut all = Vec::new();
    collect_commands(&[], &mut all);
    assert!(all.len() > 25, "{all:?}");
    let mut text = String::new();
    for command in all {
        let arguments: Vec<_> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let page = run_isolated(&arguments);
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        text += &format!("$ ipseity {}\n{}\n", arguments.join(" "), page.text());
    }
    // IPSEITY_HELP=write updates the snapshot.
    if std::env::var("IPSEITY_HELP").is_ok_and(|mode| mode == "write") {
        fs::write(help_file(), &text).expect("write file");
    }
    let snapshot = fs::read_to_string(help_file()).unwrap_or_default();
    let differs = text.lines().zip(snapshot.lines()).find(|(now, then)| now != then);
    assert!(text == snapshot, "help has changed, first at {differs:?}; run `just help-pages` to update the snapshot");
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let folder = TestDir::create().expect("create directory");
    for shell in ["bash", "zsh", "fish"] {
        let script = run_isolated(&["completions", shell]);
        assert!(script.is_success() && script.text().contains("create-accounts"), "{shell}: {}", script.stderr);
    }
    let nonsense = run_isolated(&["completions", "cmd"]);
    assert!(nonsense.code == Some(2) && nonsense.stderr.contains("possible values: bash"), "{}", nonsense.stderr);
    let bash = folder.path().join("ipseity.bash");
    fs::write(&bash, run_isolated(&["completions", "bash"]).stdout).expect("write file");
    let completed = Command::new("bash")
        .arg("-c")
        .arg(". \"$0\"; COMP_WORDS=(ipseity do); COMP_CWORD=1; _ipseity ipseity do ipseity; echo \"${COMPREPLY[*]}\"")
        .arg(&bash)
        .output()
        .expect("run program");
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "doctor", "{completed:?}");
    let man = folder.path().join("man");
    let written = run_isolated(&["man", &man.display().to_string()]);
    assert!(written.is_success(), "{}", written.stderr);
    for page in ["ipseity.1", "ipseity-doctor.1", "ipseity-key-issue.1"] {
        let text = fs::read_to_string(man.join(page)).expect("read file");
        assert!(text.starts_with(".ie") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let first = fs::read_to_string(man.join("ipseity.1")).expect("read file");
    for section in ["\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
        assert!(first.contains(&format!(".SH {section}\n")), "{section}: {first}");
    }
}
