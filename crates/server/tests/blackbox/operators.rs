//! What operators do from day to day: find, look up, issue many, measure; and the pages that explain it all.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::Scope;
use serde_json::Value;
use testkit::{CliOutput, Folder, House, node};

use crate::shared::{fresh_key, house};

fn fresh(name: &str) -> String {
    format!("{name}{:012x}", fastrand::u64(..) >> 16)
}

async fn run(house: &House, arguments: &[&str]) -> CliOutput {
    house.cli(arguments).await.expect("a command")
}

/// Runs a command that ends well.
async fn succeed(house: &House, arguments: &[&str]) -> String {
    let output = run(house, arguments).await;
    assert!(output.is_success(), "{arguments:?}: {}{}", output.text(), output.stderr);
    output.text()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_keys_are_found_by_parts_of_their_names_and_their_past_is_told() {
    let (house, owner, name) = (house().await, fresh("owner"), fresh("Lamp"));
    let email = format!("{owner}@example.com");
    house.account(&email).await.expect("an account");
    let made = ["key", "issue", "--account", &email, "--scope", "geo", "--name", &name, "--json"];
    let id = lines(&succeed(house, &made).await)[0]["id"].as_str().expect("an id").to_owned();

    let found = lines(&succeed(house, &["account", "list", "--search", &owner.to_uppercase(), "--json"]).await);
    assert_eq!((found.len(), &found[0]["email"]), (1, &Value::from(email.clone())));
    for text in [&name.to_lowercase(), &owner, &id, &format!("ips_{id}")] {
        let found = lines(&succeed(house, &["key", "search", text, "--json"]).await);
        assert_eq!(
            (found.len(), &found[0]["id"], &found[0]["account"]),
            (1, &id.as_str().into(), &email.as_str().into())
        );
    }
    assert!(succeed(house, &["key", "search", &fresh("nothing")]).await.starts_with("ID  NAME"));

    for change in ["deactivate", "reactivate"] {
        succeed(house, &["key", change, &id]).await;
    }
    let shown = succeed(house, &["key", "show", &id]).await;
    for words in [&name, &email, "active", "never"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let acts = |text: &str| lines(text).iter().map(|event| event["act"].clone()).collect::<Vec<_>>();
    let expected = ["reactivated", "deactivated", "issued"];
    assert_eq!(acts(&succeed(house, &["audit", "--key", &id, "--json"]).await), expected);
    assert_eq!(acts(&succeed(house, &["audit", "--account", &email, "--count", "2", "--json"]).await), expected[..2]);
    assert!(succeed(house, &["audit", "--key", &id]).await.contains("operator"));

    let hesitant = run(house, &["account", "delete", "--email", &email]).await;
    assert!(hesitant.code == Some(1) && hesitant.stderr.contains("add --yes"), "{}", hesitant.stderr);
    succeed(house, &["account", "delete", "--email", &email, "--yes"]).await;
    let gone = run(house, &["key", "show", &id]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("no key has this id"), "{}", gone.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_are_issued_from_a_file_and_used_for_a_measurement() {
    let (house, folder, owner) = (house().await, Folder::open().expect("a folder"), fresh("many"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (wanted, keys) = (path("wanted.csv"), path("keys.jsonl"));
    let wishes: String = (0..12).map(|number| format!("{owner}@example.com,ip,key {number}\n")).collect();
    fs::write(&wanted, format!("# email,scope,name\n\n{wishes}")).expect("a file");
    let issue = ["key", "issue-all", &wanted, "--out", &keys, "--create-accounts"];
    let issued = run(house, &issue).await;
    assert_eq!(issued.code, Some(1), "an account holds ten");
    for line in ["line 13:", "line 14:", "2 of 12 keys were not issued"] {
        assert!(issued.stderr.contains(line), "{line}: {}", issued.stderr);
    }
    assert!(issued.text().starts_with("10 keys are in "), "{}", issued.text());
    assert!(!issued.stderr.contains("ips_") && !issued.text().contains("ips_"), "keys are in the file alone");
    assert_eq!(fs::metadata(&keys).expect("a file").permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&keys).expect("keys");
    assert_eq!(lines(&written).len(), 10);
    let again = run(house, &issue).await;
    assert!(again.code == Some(1) && again.stderr.contains("it must not be there yet"), "{}", again.stderr);

    let base = format!("http://{}", house.nodes[0].http());
    let bench = ["bench", "--url", &base, "--keys", &keys, "--rate", "100", "--requests", "60"];
    let measured = &lines(&succeed(house, &[&bench[..], &["--json"]].concat()).await)[0];
    assert_eq!((&measured["requests"], &measured["statuses"]["200"]), (&60.into(), &60.into()), "{measured}");
    let (all, own) = (&measured["answer_ms"]["p99"], &measured["service_ms"]["p99"]);
    assert!(all.as_f64() > own.as_f64() && own.as_f64() > Some(0.0), "{measured}");
    assert!(succeed(house, &bench).await.contains("p99"));

    let none = run(house, &["bench", "--url", &base]).await;
    assert!(none.code == Some(2) && none.stderr.contains("--keys <FILE>"), "{}", none.stderr);
    let one = path("one.txt");
    fs::write(&one, fresh_key(house, Scope::Ip).await.key).expect("a key");
    let many = run(house, &["bench", "--url", &base, "--keys", &one, "--rate", "10", "--requests", "301"]).await;
    assert!(many.code == Some(1) && many.stderr.contains("give 2 keys"), "{}", many.stderr);
    fs::write(&one, "ips_short\n").expect("no key");
    let broken = run(house, &["bench", "--url", &base, "--keys", &one]).await;
    assert!(broken.code == Some(1) && broken.stderr.contains("line 1 of"), "{}", broken.stderr);
    assert!(!broken.stderr.contains("ips_short"), "{}", broken.stderr);
}

/// Runs the program with nothing around it.
fn alone(arguments: &[&str]) -> CliOutput {
    let mut command = Command::new(node::find_program().expect("the program"));
    // The width of a terminal must not matter.
    let output = command.args(arguments).env_clear().output().expect("a command");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CliOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

/// Every command below this one, itself first, as its page of help lists them.
fn commands(above: &[String], found: &mut Vec<Vec<String>>) {
    found.push(above.to_vec());
    let arguments: Vec<_> = above.iter().map(String::as_str).chain(["--help"]).collect();
    let page = alone(&arguments).text();
    let list = page.split("\nCommands:\n").nth(1).unwrap_or_default();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        // Names stand two spaces in; what follows on further lines stands deeper.
        let name =
            line.strip_prefix("  ").filter(|name| !name.starts_with(' ')).and_then(|name| name.split(' ').next());
        if let Some(name) = name.filter(|name| *name != "help") {
            commands(&[above, &[name.to_owned()]].concat(), found);
        }
    }
}

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/help.txt")
}

#[test]
fn every_page_of_help_reads_as_it_was_written() {
    let mut all = Vec::new();
    commands(&[], &mut all);
    assert!(all.len() > 25, "{all:?}");
    let mut text = String::new();
    for command in all {
        let arguments: Vec<_> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let page = alone(&arguments);
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        text += &format!("$ ipseity {}\n{}\n", arguments.join(" "), page.text());
    }
    // So that a changed page can be read and taken over: IPSEITY_HELP=write.
    if std::env::var("IPSEITY_HELP").is_ok_and(|wish| wish == "write") {
        fs::write(pages(), &text).expect("the pages");
    }
    let known = fs::read_to_string(pages()).unwrap_or_default();
    let differs = text.lines().zip(known.lines()).find(|(now, then)| now != then);
    assert!(text == known, "help has changed, first at {differs:?}; read it, and `just help-pages` takes it over");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let folder = Folder::open().expect("a folder");
    for shell in ["bash", "zsh", "fish"] {
        let script = alone(&["completions", shell]);
        assert!(script.is_success() && script.text().contains("issue-all"), "{shell}: {}", script.stderr);
    }
    let nonsense = alone(&["completions", "cmd"]);
    assert!(nonsense.code == Some(2) && nonsense.stderr.contains("possible values: bash"), "{}", nonsense.stderr);
    let bash = folder.path().join("ipseity.bash");
    fs::write(&bash, alone(&["completions", "bash"]).stdout).expect("a script");
    let completed = Command::new("bash")
        .arg("-c")
        .arg(". \"$0\"; COMP_WORDS=(ipseity do); COMP_CWORD=1; _ipseity ipseity do ipseity; echo \"${COMPREPLY[*]}\"")
        .arg(&bash)
        .output()
        .expect("bash");
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "doctor", "{completed:?}");
    let man = folder.path().join("man");
    let written = alone(&["man", &man.display().to_string()]);
    assert!(written.is_success(), "{}", written.stderr);
    for page in ["ipseity.1", "ipseity-doctor.1", "ipseity-key-issue-all.1"] {
        let text = fs::read_to_string(man.join(page)).expect("a page");
        assert!(text.starts_with(".ie") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
}
