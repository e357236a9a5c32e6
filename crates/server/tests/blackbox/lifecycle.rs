//! A house over the years: backed up and restored, upgraded and rolled back, its counter store moved. What `docs/operations` says, done.
//!
//! `IPSEITY_OLD_BIN` names the program of the version before (`just lifecycle` builds it); without it, a node is replaced by its own kind.
//! `IPSEITY_LIFECYCLE_S` is the time that each step serves for.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::Scope;
use testkit::house::{DATABASE, LEDGER_URL, STORE_URL};
use testkit::node::{Env, find_program};
use testkit::stream::Protocol;
use testkit::{
    Folder, House, HouseOptions, Issued, Node, Port, Postgres, PostgresOptions, Redis, RedisOptions, Reply,
    StreamCaller, eventually,
};
use tokio::task::JoinSet;

use crate::restarts::{Tally, call};
use crate::round_trip::issue_all;
use crate::shared::{fresh_key, patient, setting};

const WORKERS: usize = 10;
/// Between two requests of a worker.
const PAUSE: Duration = Duration::from_millis(20);

/// Callers that go on until they are stopped, shared out to some listeners.
struct Load {
    workers: JoinSet<Tally>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(keys: &[String], listeners: &[SocketAddr]) -> Self {
        let (mut workers, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for (own, &server) in keys.chunks(keys.len() / WORKERS).zip(listeners.iter().cycle()) {
            let caller = StreamCaller::new(server, Protocol::Http11, None).expect("a caller");
            workers.spawn(call(caller, own.to_vec(), PAUSE, Arc::clone(&stop)));
        }
        Self { workers, stop }
    }

    #[expect(clippy::print_stderr, reason = "the figures are the point")]
    async fn stop(self, name: &str) -> Tally {
        self.stop.store(true, Ordering::Release);
        let mut all = Tally::default();
        self.workers.join_all().await.into_iter().for_each(|tally| all.add(tally));
        eprintln!("{}", all.told(name));
        all
    }
}

/// Lets the house serve as it is.
async fn serve_a_while() {
    tokio::time::sleep(Duration::from_secs(setting("IPSEITY_LIFECYCLE_S", 1).into())).await;
}

async fn ask(node: &Node, key: &str) -> Reply {
    let bearer = format!("Bearer {key}");
    node.caller().get("/api/v1/ip", &[("authorization", &bearer)]).await.expect("an answer")
}

async fn change(house: &House, words: &[&str]) -> Vec<u8> {
    house.cli(&[&["key"], words].concat()).await.expect("a command").success().expect("a change").stdout
}

#[track_caller]
fn is_refused(reply: &Reply, status: u16, anchor: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(anchor), "{}", reply.text());
}

/// One key of each kind, as callers left it.
struct Kept {
    used: Issued,
    paused: Issued,
    inactive: Issued,
    deleted: Issued,
    rolled: [Issued; 2],
}

const USED: u32 = 25;

impl Kept {
    async fn make(house: &House) -> Self {
        let node = &house.nodes[0];
        let mut keys = Vec::new();
        for _ in 0..5 {
            keys.push(fresh_key(house, Scope::Full).await);
        }
        let [used, paused, inactive, deleted, old] = <[Issued; 5]>::try_from(keys).ok().expect("five keys");
        for _ in 0..USED {
            assert_eq!(ask(node, &used.key).await.status, 200);
        }
        for expected in [200; 300].into_iter().chain([429]) {
            assert_eq!(ask(node, &paused.key).await.status, expected);
        }
        change(house, &["deactivate", &inactive.id]).await;
        change(house, &["delete", &deleted.id]).await;
        let rolled = change(house, &["roll", &old.id, "--json"]).await;
        let new: Issued = serde_json::from_slice(&rolled).expect("a key");
        Self { used, paused, inactive, deleted, rolled: [old, new] }
    }

    async fn are_as_they_were(&self, node: &Node) {
        let used = ask(node, &self.used.key).await;
        let left = (10_000 - USED - 1).to_string();
        assert_eq!((used.status, used.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
        is_refused(&ask(node, &self.paused.key).await, 403, "#paused-keys");
        is_refused(&ask(node, &self.inactive.key).await, 403, "#inactive-keys");
        assert_eq!(ask(node, &self.deleted.key).await.status, 401);
        for key in &self.rolled {
            assert_eq!(ask(node, &key.key).await.status, 200, "both secrets hold");
        }
    }
}

async fn admitted(postgres: &Postgres, id: &str) -> u32 {
    let query = format!("select coalesce(sum(admitted), 0) from usage where key_id = '{id}'");
    postgres.psql(DATABASE, &query).await.expect("rows").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_a_living_house_restored_beside_an_empty_redis_answers_the_same_keys() {
    let house = House::start(HouseOptions { env: patient(), ..HouseOptions::default() }).await.expect("a house");
    let busy = issue_all(&house).await;
    let load = Load::start(&busy, &[house.nodes[0].http()]);
    let kept = Kept::make(&house).await;
    eventually("the counts are rolled up", Duration::from_secs(20), async || {
        admitted(&house.postgres, &kept.used.id).await == USED
    })
    .await
    .expect("a roll-up");
    let folder = Folder::open().expect("a folder");
    let dump = folder.path().join("ipseity.dump");
    house.postgres.back_up(DATABASE, &dump).await.expect("a dump");
    let answered = load.stop("callers during the dump").await;
    assert_eq!(answered.failed(), 0);

    let postgres = Postgres::start(PostgresOptions::default()).await.expect("an empty cluster");
    postgres.restore(DATABASE, &dump).await.expect("a restored database");
    let redis = Redis::start(RedisOptions::default()).await.expect("an empty Redis");
    let stores = [(STORE_URL, postgres.url(DATABASE)), (LEDGER_URL, redis.url())];
    let node = house.start_node(&stores.map(|(name, url)| (name.to_owned(), url)).into()).await.expect("a node");
    kept.are_as_they_were(&node).await;
    for key in busy.iter().step_by(busy.len() / 20) {
        let before = admitted(&postgres, id_of(key)).await;
        let reply = ask(&node, key).await;
        let left = (10_000 - before - 1).to_string();
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
    }
}

/// The ten characters after `ips_`.
fn id_of(key: &str) -> &str {
    &key[4..14]
}

/// A place that callers know, whose nodes come and go.
struct Place {
    port: Port,
    socket: TcpListener,
}

impl Place {
    fn open() -> Self {
        let port = Port::open().expect("a port");
        let socket = TcpListener::bind(port.address()).expect("a socket");
        Self { port, socket }
    }

    async fn node(&self, house: &House) -> Node {
        let env = Env::from([("IPSEITY__EDGE__HTTP".to_owned(), self.port.address().to_string())]);
        house.start_node_on(&env, &[&self.socket]).await.expect("a node")
    }
}

/// Replaces the nodes one by one; between them, old and new serve side by side.
async fn replace(house: &House, places: &[Place; 2], nodes: &mut [Node; 2]) {
    for (place, node) in places.iter().zip(nodes) {
        let next = place.node(house).await;
        let ended = node.terminate().await.expect("an end");
        assert!(ended.success(), "{}", node.log().expect("a log"));
        *node = next;
        serve_a_while().await;
    }
}

/// Holds the books against what callers were told: everything that was answered is rolled up, once.
async fn is_in_the_books(house: &House, answered: &Tally) {
    let booked = house.postgres.psql(DATABASE, "select sum(admitted) from usage").await.expect("rows");
    assert_eq!(booked, answered.answered.to_string(), "admitted, and answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_nodes_serve_side_by_side_while_the_house_is_upgraded_and_rolled_back() {
    let new = find_program().expect("the program");
    let old = std::env::var_os("IPSEITY_OLD_BIN").map_or_else(|| new.clone(), PathBuf::from);
    let options = HouseOptions { program: Some(old.clone()), nodes: 0, env: patient(), ..HouseOptions::default() };
    let mut house = House::start(options).await.expect("a house");
    let keys = issue_all(&house).await;
    let places = [Place::open(), Place::open()];
    let mut nodes = [places[0].node(&house).await, places[1].node(&house).await];
    let load = Load::start(&keys, &places.each_ref().map(|place| place.port.address()));
    serve_a_while().await;

    house.use_program(&new);
    house.cli(&["migrate"]).await.expect("a command").success().expect("a new schema");
    serve_a_while().await;
    replace(&house, &places, &mut nodes).await;
    house.use_program(&old);
    replace(&house, &places, &mut nodes).await;

    let answered = load.stop("callers during upgrade and roll-back").await;
    assert_eq!(answered.failed(), 0);
    for node in &mut nodes {
        node.terminate().await.expect("an end");
    }
    is_in_the_books(&house, &answered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_older_than_the_schema_says_so_and_changes_nothing() {
    let house = House::start(HouseOptions { nodes: 0, ..HouseOptions::default() }).await.expect("a house");
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (9999, 'of a later version', true, '\\x00', 0)";
    house.postgres.psql(DATABASE, newer).await.expect("a row");
    let refused = house.cli(&["migrate"]).await.expect("a command");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("the schema is as it was") && refused.stderr.contains("9999"),
        "{}",
        refused.stderr
    );
    house.start_node(&Env::new()).await.expect("a node on a newer schema");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_moves_under_load_and_every_charge_is_in_the_books() {
    let options = HouseOptions { nodes: 0, env: patient(), ..HouseOptions::default() };
    let mut house = House::start(options).await.expect("a house");
    let keys = issue_all(&house).await;
    let next = Redis::start(RedisOptions::default()).await.expect("a second Redis");
    next.follow(&house.redis).await.expect("a replica");
    let both = format!("{},{}", house.redis.url(), next.url());
    let mut node = house.start_node(&Env::from([(LEDGER_URL.to_owned(), both)])).await.expect("a node");
    let load = Load::start(&keys, &[node.http()]);
    serve_a_while().await;

    let port = next.address().port().to_string();
    house.redis.call(&["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "5000"]).await.expect("a failover");
    eventually("the new server is the primary", Duration::from_secs(10), async || {
        next.info("replication").await.is_ok_and(|info| info.contains("role:master"))
    })
    .await
    .expect("a new primary");
    serve_a_while().await;
    house.redis.kill9();
    serve_a_while().await;

    let answered = load.stop("callers while Redis moved").await;
    assert_eq!(answered.failed(), 0);
    node.terminate().await.expect("an end");
    is_in_the_books(&house, &answered).await;
}
