//! One round trip: what the stores received while 10,000 requests were admitted, counted by the stores themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::ClearKey;
use testkit::{Caller, House, HouseOptions, eventually};
use tokio::task::JoinSet;

use crate::shared::patient;

const ACCOUNTS: usize = 100;
const KEYS_EACH: usize = 10;
const REQUESTS_EACH: u64 = 10;
const CONNECTIONS: usize = 50;

/// A house whose PostgreSQL logs every statement, after the name of the application that sent it; its node starts afterwards.
async fn talkative_house() -> House {
    let options = HouseOptions { nodes: 0, env: patient(), ..HouseOptions::default() };
    let mut house = House::start(options).await.expect("a house");
    for setting in ["log_statement = 'all'", "log_line_prefix = '<%a> '"] {
        house.postgres.psql("postgres", &format!("alter system set {setting}")).await.expect("a setting");
    }
    house.postgres.psql("postgres", "select pg_reload_conf()").await.expect("new settings");
    let node = house.start_node(&testkit::node::Env::new()).await.expect("a node");
    house.nodes.push(node);
    house
}

/// Gives 100 accounts ten keys each, by SQL: a thousand commands would take a minute.
pub(crate) async fn issue_all(house: &House) -> Vec<String> {
    let accounts =
        format!("insert into accounts (email) select n || '@example.com' from generate_series(1, {ACCOUNTS}) n");
    house.postgres.psql("ipseity", &accounts).await.expect("accounts");
    let mut keys = Vec::new();
    for account in 1..=ACCOUNTS {
        let mut rows = Vec::new();
        for seat in 1..=KEYS_EACH {
            let clear = ClearKey::mint(|| fastrand::u8(..));
            let digest: String = clear.key().digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let owner = format!("(select id from accounts where email = '{account}@example.com')");
            rows.push(format!("('{}', {owner}, {seat}, 'key', 'full', '\\x{digest}')", clear.key().id));
            keys.push(clear.expose().to_owned());
        }
        let insert = format!("insert into keys (id, account_id, seat, name, scope, digest) values {}", rows.join(","));
        house.postgres.psql("ipseity", &insert).await.expect("keys");
    }
    keys
}

/// Asks with every key so often, over fifty connections; all are admitted.
async fn ask(house: &House, keys: &[String], times: u64) {
    let mut connections = JoinSet::new();
    for own in keys.chunks(keys.len() / CONNECTIONS) {
        let (mut caller, own) = (Caller::new(house.nodes[0].http()), own.to_vec());
        connections.spawn(async move {
            for _ in 0..times {
                for key in &own {
                    let headers = [("authorization", format!("Bearer {key}"))];
                    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
                    assert_eq!(caller.get("/api/v1/ip", &headers).await.expect("an answer").status, 200);
                }
            }
        });
    }
    connections.join_all().await;
}

/// Statements in PostgreSQL's log after so many bytes, by application.
fn statements(house: &House, from: usize) -> BTreeMap<String, usize> {
    let log = house.postgres.log().expect("a log");
    let mut counts = BTreeMap::new();
    for line in log[from..].lines().filter(|line| line.contains("LOG:  execute ") || line.contains("LOG:  statement: "))
    {
        let application = line.strip_prefix('<').and_then(|line| line.split_once('>')).map_or("", |(name, _)| name);
        *counts.entry(application.to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is what this test is for")]
async fn an_admitted_request_is_one_call_to_redis_and_none_to_postgresql() {
    let house = talkative_house().await;
    let keys = issue_all(&house).await;
    let requests = keys.len() as u64 * REQUESTS_EACH;
    ask(&house, &keys, 1).await;
    let filled = statements(&house, 0).get("ipseity-request").copied().unwrap_or_default();
    assert!(filled >= keys.len(), "the log shows {filled} statements for the first use of {} keys", keys.len());

    let log_start = house.postgres.log().expect("a log").len();
    let before = house.redis.command_calls().await.expect("counts");
    ask(&house, &keys, REQUESTS_EACH).await;
    let after = house.redis.command_calls().await.expect("counts");
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    eventually("background work shows itself", Duration::from_secs(20), async || {
        statements(&house, log_start).contains_key("ipseity-background")
    })
    .await
    .expect("statements of the background");
    let sent = statements(&house, log_start);
    eprintln!("round trip: {requests} requests, {} evalsha; statements by application: {sent:?}", calls("evalsha"));
    // Each leaves its entry in a log; those of the same moment share a call.
    assert_eq!(calls("rpush"), requests);
    assert!((1..=requests).contains(&calls("evalsha")));
    for other in ["eval", "script|load", "hello"] {
        assert_eq!(calls(other), 0, "{other}");
    }
    assert_eq!(sent.get("ipseity-request"), None);
}
