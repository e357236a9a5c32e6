//! `ipseity audit`: who changed what, also after it was deleted.

use std::process::Stdio;
use std::time::Duration;

use ipseity_testkit::deployment::node;
use ipseity_testkit::{CommandOutput, Deployment, DeploymentOptions, eventually};
use serde_json::Value;
use tokio::time::sleep;

const OPERATOR: (&str, &str) = ("IPSEITY_OPERATOR", "alice@ops.example");

async fn run(deployment: &Deployment, arguments: &[&str]) -> CommandOutput {
    let output = deployment.cli_with_env(&[OPERATOR], arguments).await.expect("command runs");
    output.ensure_success().expect("command succeeds")
}

async fn events(deployment: &Deployment, arguments: &[&str]) -> Vec<Value> {
    let text = run(deployment, &[&["audit", "--json"], arguments].concat()).await.text();
    text.lines().map(|line| serde_json::from_str(line).expect("valid JSON")).collect()
}

fn actions(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["action"].as_str().expect("text")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_outlives_what_it_is_about_and_names_the_operator() {
    let deployment = Deployment::start(DeploymentOptions::default()).await.expect("deployment starts");
    let email = "owner@example.com";
    run(&deployment, &["plan", "add", "gold", "--daily-limit", "100000"]).await;
    run(&deployment, &["account", "create", "--email", email]).await;
    run(&deployment, &["account", "plan", "--email", email, "--plan", "gold"]).await;
    run(&deployment, &["account", "invite", "--email", email]).await;
    let issue = ["key", "issue", "--account", email, "--scope", "ip", "--name", "web", "--json"];
    let key = run(&deployment, &issue).await.json().expect("valid JSON")["id"].as_str().expect("text").to_owned();
    run(&deployment, &["key", "rotate", &key]).await;
    run(&deployment, &["key", "delete", &key, "--yes"]).await;
    run(&deployment, &["account", "delete", "--email", email, "--yes"]).await;
    let all = events(&deployment, &[]).await;
    let expected =
        ["account_deleted", "deleted", "rotated", "issued", "invited", "plan_changed", "account_created", "plan_added"];
    assert_eq!(actions(&all), expected);
    assert!(all.iter().all(|event| event["actor"] == "operator" && event["operator"] == OPERATOR.1), "{all:?}");
    assert_eq!((&all[5]["subject"], &all[7]["subject"]), (&"gold".into(), &"gold".into()));
    assert_eq!(actions(&events(&deployment, &["--key", &key]).await), expected[1..4]);
    let account_id = all[0]["account_id"].to_string();
    assert_eq!(events(&deployment, &["--account", &account_id]).await.len(), 7);
    assert!(!format!("{all:?}").contains(email), "the address is gone with the account");
    let newer = all[2]["id"].to_string();
    let after = events(&deployment, &["--after", &newer]).await;
    assert_eq!(actions(&after), ["deleted", "account_deleted"], "oldest first");
    assert_eq!(
        events(&deployment, &["--after", &newer, "--limit", "1"]).await,
        after[..1],
        "nothing is left out between"
    );
    assert_eq!(events(&deployment, &["--since", "2100-01-01T00:00:00Z"]).await.len(), 0);
    let table = run(&deployment, &["audit", "--limit", "1"]).await.text();
    assert!(table.contains("account_deleted") && table.contains("operator alice@ops.example"), "{table}");
    // A node, or somebody with its password, cannot change the log.
    for change in ["update audit_events set operator = 'bob'", "delete from audit_events", "truncate audit_events"] {
        let sql = format!("set role ipseity_node; {change}");
        assert!(deployment.postgres.psql("ipseity", &sql).await.is_err(), "{change}");
    }
    let forged = "set role ipseity_node; insert into audit_events (actor, action) values ('owner', 'forged')";
    assert!(deployment.postgres.psql("ipseity", forged).await.is_err());
    assert_eq!(actions(&events(&deployment, &[]).await), expected);
    // An operator who uses psql is none of the owners.
    deployment.postgres.psql("ipseity", "update plans set daily_limit = 5 where name = 'gold'").await.expect("updated");
    deployment
        .postgres
        .psql("ipseity", "insert into accounts (email) values ('b@example.com')")
        .await
        .expect("inserted");
    for since in ["now()", "null"] {
        let sql = format!("update accounts set two_factor_since = {since} where email = 'b@example.com'");
        deployment.postgres.psql("ipseity", &sql).await.expect("updated");
    }
    let by_hand = events(&deployment, &["--limit", "4"]).await;
    assert_eq!(actions(&by_hand), ["two_factor_disabled", "two_factor_enabled", "account_created", "plan_updated"]);
    assert!(by_hand.iter().all(|event| event["actor"] == "operator" && event["operator"].is_string()), "{by_hand:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_follow_prints_new_events() {
    let deployment = Deployment::start(DeploymentOptions::default()).await.expect("deployment starts");
    // The first ones are more than are printed at the start.
    let accounts = "insert into accounts (email) select n || '@example.com' from generate_series(1, 1500) n";
    deployment.postgres.psql("ipseity", accounts).await.expect("accounts are created");
    let log = deployment.nodes[0].dir().join("audit.jsonl");
    let mut command = std::process::Command::new(node::find_service_binary().expect("program"));
    command.envs(deployment.env()).args(["audit", "--follow", "--json", "--limit", "1"]);
    command.stdout(std::fs::File::create(&log).expect("file")).stderr(Stdio::null());
    let mut follow = command.spawn().expect("command starts");
    let read = || std::fs::read_to_string(&log).expect("file");
    let has_lines = async |count: usize| {
        let is_printed = async || read().lines().count() == count;
        eventually("the events are printed", Duration::from_secs(10), is_printed).await.expect("printed");
    };
    has_lines(1).await;
    let more = accounts.replace("@example.com", "@example.org");
    deployment.postgres.psql("ipseity", &more).await.expect("accounts are created");
    run(&deployment, &["plan", "add", "silver", "--daily-limit", "1"]).await;
    has_lines(1502).await;
    let log_after = deployment.nodes[0].dir().join("after.jsonl");
    let mut command = std::process::Command::new(node::find_service_binary().expect("program"));
    command.envs(deployment.env()).args(["audit", "--follow", "--json", "--limit", "1", "--after", "2"]);
    command.stdout(std::fs::File::create(&log_after).expect("file")).stderr(Stdio::null());
    let mut follow_after = command.spawn().expect("command starts");
    let count = || std::fs::read_to_string(&log_after).expect("file").lines().count();
    eventually("all later events are printed", Duration::from_secs(10), async || count() == 2999)
        .await
        .expect("printed");
    follow_after.kill().and_then(|()| follow_after.wait()).expect("command stops");
    sleep(Duration::from_secs(2)).await;
    has_lines(1502).await;
    let ids: Vec<_> =
        read().lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].as_i64()).collect();
    assert!(ids.is_sorted(), "oldest first");
    follow.kill().and_then(|()| follow.wait()).expect("command stops");
    assert!(read().lines().last().is_some_and(|line| line.contains("plan_added")), "{}", read());
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_leaves_out_no_event_of_a_change_that_is_still_open() {
    let deployment = Deployment::start(DeploymentOptions::default()).await.expect("deployment starts");
    // A change that stays open until there is a plan with the name "third".
    let wait = "do $$ begin while not exists (select from plans where name = 'third') loop perform pg_sleep(0.05); end loop; end $$";
    let open = format!("insert into plans (name, daily_limit) values ('first', 1); {wait}");
    let change = deployment.postgres.psql("ipseity", &open);
    let rest = async {
        let is_open = async || {
            let locks =
                "select count(*) from pg_locks where relation = 'audit_events'::regclass and mode = 'RowExclusiveLock'";
            deployment.postgres.psql("ipseity", locks).await.expect("counted").trim() == "1"
        };
        eventually("the change is open", Duration::from_secs(10), is_open).await.expect("open");
        run(&deployment, &["plan", "add", "second", "--daily-limit", "1"]).await;
        // Its event has the smaller number: an export that continues after the second would miss it.
        let early = deployment.cli(&["audit", "--json"]).await.expect("command runs");
        assert!(!early.is_success() && early.stderr.contains("a change is still open"), "{early:?}");
        run(&deployment, &["plan", "add", "third", "--daily-limit", "1"]).await;
    };
    tokio::join!(async { change.await.expect("committed") }, rest);
    let all = events(&deployment, &[]).await;
    let subjects: Vec<_> = all.iter().map(|event| event["subject"].as_str().expect("text")).collect();
    assert_eq!(subjects, ["third", "second", "first"]);
}
