//! What is lost when a store or a node is: no pause, no revocation, and of the counts nothing that was rolled up.
//!
//! The tests take turns in one house, whose nodes each of them starts for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::Scope;
use testkit::node::Env;
use testkit::{Caller, House, HouseOptions, Issued, Node, Reply, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::{JoinHandle, JoinSet};

use crate::shared::{fresh_key, patient};

const LOOKUP: &str = "/api/v1/ip";
/// How long a node is held at a fail point that a command has to overtake.
const HELD: &str = "fill-before-write=2500";

static HOUSE: OnceCell<Mutex<House>> = OnceCell::const_new();

/// A turn in the house; it has no node, and both stores run.
async fn turn() -> MutexGuard<'static, House> {
    let start = async || {
        let options = HouseOptions { nodes: 0, env: patient(), ..HouseOptions::default() };
        Mutex::new(House::start(options).await.expect("a house"))
    };
    HOUSE.get_or_init(start).await.lock().await
}

async fn node(house: &House, failpoints: &str) -> Node {
    let env = Env::from([("IPSEITY_FAILPOINTS".to_owned(), failpoints.to_owned())]);
    house.start_node(&env).await.expect("a node")
}

async fn ask(caller: &mut Caller, key: &Issued) -> Reply {
    try_to_ask(caller, key).await.expect("an answer")
}

async fn try_to_ask(caller: &mut Caller, key: &Issued) -> anyhow::Result<Reply> {
    caller.get(LOOKUP, &[("authorization", &key.bearer())]).await
}

/// A request on a connection of its own, under way.
fn asking(node: &Node, key: &Issued) -> JoinHandle<anyhow::Result<Reply>> {
    let (mut caller, key) = (node.caller(), key.clone());
    tokio::spawn(async move { try_to_ask(&mut caller, &key).await })
}

/// A fresh key, paused by its 301st request, which was answered.
async fn paused_key(house: &House, node: &Node) -> Issued {
    let (issued, mut caller) = (fresh_key(house, Scope::Ip).await, node.caller());
    pause(&mut caller, &issued).await;
    issued
}

async fn pause(caller: &mut Caller, issued: &Issued) {
    for _ in 0..301 {
        match ask(caller, issued).await.status {
            200 => {}
            429 => return,
            other => panic!("an active key is answered {other}"),
        }
    }
    panic!("301 requests did not pause the key");
}

#[track_caller]
fn is_paused(reply: &Reply) {
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert!(reply.text().contains("#paused-keys"), "{}", reply.text());
}

async fn rows(house: &House, query: &str) -> String {
    house.postgres.psql("ipseity", query).await.expect("rows")
}

async fn is_held(node: &Node, point: &str) {
    eventually("a request is held", Duration::from_secs(20), async || {
        let log = node.log().expect("a log");
        log.lines().any(|line| line.contains("held at a fail point") && line.contains(point))
    })
    .await
    .expect("a held request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_a_flushall() {
    let house = turn().await;
    let node = node(&house, "").await;
    let paused = paused_key(&house, &node).await;
    house.redis.flushall().await.expect("an empty store");
    is_paused(&ask(&mut node.caller(), &paused).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_a_redis_that_was_killed_and_comes_back_empty() {
    let mut house = turn().await;
    let node = node(&house, "").await;
    let paused = paused_key(&house, &node).await;
    house.redis.kill9();
    std::fs::remove_file(house.redis.data().join("dump.rdb")).ok();
    house.redis.restart().await.expect("Redis is back");
    is_paused(&ask(&mut node.caller(), &paused).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_a_redis_that_comes_back_from_a_snapshot_from_before_it() {
    let mut house = turn().await;
    let node = node(&house, "").await;
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, node.caller());
    assert_eq!(ask(&mut caller, &issued).await.status, 200);
    house.redis.save_snapshot().await.expect("a snapshot of an active key");
    pause(&mut caller, &issued).await;
    house.redis.restore_snapshot().await.expect("Redis is back");
    let kept = house.redis.dump_bytes().await.expect("what Redis holds");
    assert!(String::from_utf8_lossy(&kept).contains(&format!(":k:{}", issued.id)), "the snapshot holds the record");
    is_paused(&ask(&mut caller, &issued).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_come_back_from_the_roll_up() {
    let house = turn().await;
    let node = node(&house, "").await;
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, node.caller());
    for _ in 0..50 {
        assert_eq!(ask(&mut caller, &issued).await.status, 200);
    }
    let used = format!("select admitted from usage where key_id = '{}'", issued.id);
    eventually("50 are rolled up", Duration::from_secs(20), async || rows(&house, &used).await == "50")
        .await
        .expect("a roll-up");
    house.redis.flushall().await.expect("an empty store");
    let next = ask(&mut caller, &issued).await;
    assert_eq!((next.status, next.header("x-ratelimit-remaining")), (200, Some("9949")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_whose_node_died_before_its_row_was_written_gets_it_with_no_further_request() {
    let house = turn().await;
    let mut dying = node(&house, "pause-before-row=60000").await;
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, dying.caller());
    for _ in 0..300 {
        assert_eq!(ask(&mut caller, &issued).await.status, 200);
    }
    let last = asking(&dying, &issued);
    is_held(&dying, "pause-before-row").await;
    dying.kill9();
    assert!(last.await.expect("no panic").is_err(), "the 301st request was answered by a dead node");
    let evidence = format!(
        "select count(*), coalesce(sum((select sum(count) from unnest(counts) count)), 0) from pauses where key_id = '{}'",
        issued.id
    );
    assert_eq!(rows(&house, &evidence).await, "0|0", "nobody has written the row yet");
    let other = node(&house, "").await;
    eventually("the row is there", Duration::from_secs(10), async || rows(&house, &evidence).await == "1|301")
        .await
        .expect("a row");
    is_paused(&ask(&mut other.caller(), &issued).await);
    house.redis.flushall().await.expect("an empty store");
    is_paused(&ask(&mut other.caller(), &issued).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_can_be_resumed_before_its_pause_has_its_row() {
    let house = turn().await;
    let (slow, other) = (node(&house, "pause-before-row=60000").await, node(&house, "").await);
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, slow.caller());
    for _ in 0..300 {
        assert_eq!(ask(&mut caller, &issued).await.status, 200);
    }
    let last = asking(&slow, &issued);
    is_held(&slow, "pause-before-row").await;
    house.cli(&["key", "resume", &issued.id]).await.expect("a command").success().expect("resumed");
    assert_eq!(ask(&mut other.caller(), &issued).await.status, 200);
    let evidence = format!("select count(*) from pauses where key_id = '{}'", issued.id);
    assert_eq!(rows(&house, &evidence).await, "1", "what was resumed stays written down");
    last.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_made_while_postgresql_is_gone_gets_its_row_once_it_is_back() {
    let mut house = turn().await;
    let hasty = Env::from([("IPSEITY__STORE__TIMEOUT_MS".to_owned(), "500".to_owned())]);
    let node = house.start_node(&hasty).await.expect("a node");
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, node.caller());
    assert_eq!(ask(&mut caller, &issued).await.status, 200);
    house.postgres.kill9();
    pause(&mut caller, &issued).await;
    is_paused(&ask(&mut caller, &issued).await);
    house.postgres.restart().await.expect("PostgreSQL is back");
    let row = format!("select count(*) from pauses where key_id = '{}'", issued.id);
    eventually("the row is there", Duration::from_secs(20), async || rows(&house, &row).await == "1")
        .await
        .expect("a row");
    house.redis.flushall().await.expect("an empty store");
    is_paused(&ask(&mut caller, &issued).await);
}

/// Holds a fill on one node while `change` is made to its key, whose record Redis has lost; returns the held answer, then the next ones.
async fn overtaken_fill(change: &str) -> [Reply; 3] {
    let house = turn().await;
    let (slow, other) = (node(&house, HELD).await, node(&house, "").await);
    let issued = fresh_key(&house, Scope::Ip).await;
    assert_eq!(ask(&mut other.caller(), &issued).await.status, 200);
    house.redis.flushall().await.expect("an empty store");
    let held = asking(&slow, &issued);
    is_held(&slow, "fill-before-write").await;
    house.cli(&["key", change, &issued.id]).await.expect("a command").success().expect("a change");
    assert!(!held.is_finished(), "the machine is so slow that the command did not overtake the fill");
    let held = held.await.expect("no panic").expect("an answer");
    [held, ask(&mut slow.caller(), &issued).await, ask(&mut other.caller(), &issued).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_fill_never_brings_a_deactivated_key_back() {
    for reply in overtaken_fill("deactivate").await {
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains("#inactive-keys"), "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_fill_never_brings_a_deleted_key_back() {
    for reply in overtaken_fill("delete").await {
        assert_eq!(reply.status, 401, "{}", reply.text());
    }
}

/// Deactivates a key while Redis does not answer: the command says so, and yet succeeds.
async fn deactivate_without_redis(house: &House, issued: &Issued) {
    let made = house.cli(&["key", "deactivate", &issued.id]).await.expect("a command");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stderr.starts_with("warning: saved, but not yet in force"), "{}", made.stderr);
    assert!(made.text().contains("inactive"), "{}", made.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_made_while_redis_hangs_is_in_force_soon_after_it_goes_on() {
    let mut house = turn().await;
    let node = node(&house, "").await;
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, node.caller());
    assert_eq!(ask(&mut caller, &issued).await.status, 200);
    house.redis.freeze();
    deactivate_without_redis(&house, &issued).await;
    house.redis.thaw();
    // The record that says `active` is still there: only the relay can bring the change.
    eventually("the relay has brought the change", Duration::from_secs(10), async || {
        ask(&mut caller, &issued).await.status == 403
    })
    .await
    .expect("a refusal");
    assert_eq!(ask(&mut caller, &issued).await.status, 403);
    eventually("the outbox is empty", Duration::from_secs(10), async || {
        rows(&house, "select count(*) from outbox").await == "0"
    })
    .await
    .expect("a relay that clears up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_made_while_redis_is_gone_is_in_force_on_the_first_request_after() {
    let mut house = turn().await;
    let node = node(&house, "").await;
    let (issued, mut caller) = (fresh_key(&house, Scope::Ip).await, node.caller());
    assert_eq!(ask(&mut caller, &issued).await.status, 200);
    house.redis.save_snapshot().await.expect("a snapshot of an active key");
    house.redis.kill9();
    deactivate_without_redis(&house, &issued).await;
    house.redis.restart().await.expect("Redis is back, with its snapshot");
    assert_eq!(ask(&mut caller, &issued).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_end_answers_what_is_under_way_and_rolls_all_of_it_up() {
    let house = turn().await;
    let mut node = node(&house, HELD).await;
    let email = "drain@example.com";
    house.account(email).await.expect("an account");
    let mut keys = Vec::new();
    for _ in 0..8 {
        keys.push(house.issue(email, Scope::Ip).await.expect("a key"));
    }
    // The first use of a key is held: this one is under way when the signal comes, the others have long begun.
    let late = keys.pop().expect("eight keys");
    let asked = Arc::new(AtomicUsize::new(0));
    let mut busy = JoinSet::new();
    for key in keys.clone() {
        let (mut caller, asked) = (node.caller(), Arc::clone(&asked));
        busy.spawn(async move {
            let mut admitted = 0;
            while admitted < 300 {
                match try_to_ask(&mut caller, &key).await {
                    Ok(reply) => assert_eq!(reply.status, 200, "{}", reply.text()),
                    // The node is gone, and with it the connection: nothing was under way on it.
                    Err(_) => break,
                }
                admitted += 1;
                asked.fetch_add(1, Ordering::Relaxed);
            }
            (key.id, admitted)
        });
    }
    eventually("all keys are in use", Duration::from_secs(30), async || asked.load(Ordering::Relaxed) >= 100)
        .await
        .expect("a busy node");
    let held_before = node.log().expect("a log").matches("held at a fail point").count();
    let held = asking(&node, &late);
    eventually("a request is held", Duration::from_secs(20), async || {
        node.log().expect("a log").matches("held at a fail point").count() > held_before
    })
    .await
    .expect("a held request");
    let status = node.terminate().await.expect("an end");
    assert!(status.success(), "{status}");
    let held = held.await.expect("no panic").expect("an answer");
    assert_eq!(held.status, 200, "the request that was under way");
    let mut answered = busy.join_all().await;
    answered.push((late.id, 1));
    for (id, admitted) in answered {
        let used = rows(&house, &format!("select admitted from usage where key_id = '{id}'")).await;
        assert_eq!(used, admitted.to_string(), "rolled up, and answered");
    }
}
