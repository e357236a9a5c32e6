//! No client address and no clear key is stored anywhere: thousands of both go through every path, good and bad, with the logs at their most
//! talkative; then every byte that was written is searched.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use domain::{ClearKey, Scope};
use http::Method;
use testkit::node::Env;
use testkit::{Caller, Finding, Form, House, HouseOptions, Needle, Node, RedisOptions, Search, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::shared::{fresh_key, patient};

const LOOKUP: &str = "/api/v1/ip";
/// A peer that names no client is one itself.
const PEER: Ipv4Addr = Ipv4Addr::new(127, 183, 241, 207);

/// What went through the house and must be nowhere in it.
#[derive(Default)]
struct Canaries(Mutex<Vec<Needle>>);

impl Canaries {
    fn note(&self, needle: Needle) {
        self.0.lock().expect("no panic").push(needle);
    }

    /// An address that was never used before. IPv4 ones begin with a byte that is no text, so that their four bytes are not in any.
    fn address(&self) -> IpAddr {
        let address = if fastrand::bool() {
            let first = fastrand::choice([141_u8, 187, 193, 203, 212]).expect("one of them");
            IpAddr::from([first, fastrand::u8(1..), fastrand::u8(1..), fastrand::u8(1..)])
        } else {
            IpAddr::from(Ipv6Addr::from(0x2001_0db8_u128 << 96 | fastrand::u128(..) >> 32))
        };
        self.note(Needle::Address(address));
        address
    }

    /// A key as text, of which the secret alone must not be found either.
    fn key(&self, key: &str) -> String {
        self.note(Needle::Text(key.to_owned()));
        self.note(Needle::Text(key.get(14..46).expect("a secret").to_owned()));
        key.to_owned()
    }

    fn search(&self) -> Search {
        Search::open(self.0.lock().expect("no panic").iter().cloned()).expect("a search")
    }
}

struct Stage {
    house: House,
    canaries: Canaries,
    /// What Redis held and the commands that it received, before it was killed.
    redis_before: Vec<u8>,
}

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// The house after everything has gone through it.
async fn stage() -> &'static Stage {
    STAGE
        .get_or_init(async || {
            let (mut house, canaries) = (talkative_house().await, Canaries::default());
            canaries.note(Needle::Address(PEER.into()));
            let keys = keys(&house, &canaries).await;
            for node in &house.nodes {
                ask_all_routes(node, &canaries, &keys).await;
                send_what_is_malformed(node, &canaries, &keys).await;
                ask_with_curl(&house, node, &canaries, &keys).await;
            }
            pause(&house, &canaries).await;
            let redis_before = house.redis.dump_bytes().await.expect("what Redis holds");
            ask_while_stores_are_away(&mut house, &canaries, &keys).await;
            Stage { house, canaries, redis_before }
        })
        .await
}

/// Two nodes, one for each forwarding header; every store and node logs all that it can.
async fn talkative_house() -> House {
    let mut env = patient();
    env.extend(
        [("IPSEITY__LOG__LEVEL", "trace"), ("IPSEITY__STORE__TIMEOUT_MS", "1000")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let redis = RedisOptions { appendonly: true, ..RedisOptions::default() };
    let mut house =
        House::start(HouseOptions { nodes: 0, env, redis, ..HouseOptions::default() }).await.expect("a house");
    for setting in ["log_statement = 'all'", "log_min_error_statement = 'debug5'", "log_connections = on"] {
        house.postgres.psql("postgres", &format!("alter system set {setting}")).await.expect("a setting");
    }
    house.postgres.psql("postgres", "select pg_reload_conf()").await.expect("new settings");
    log_every_command(&house).await;
    for header in ["x-forwarded-for", "forwarded"] {
        let env = Env::from([("IPSEITY__EDGE__FORWARDING_HEADER".to_owned(), header.to_owned())]);
        let node = house.start_node(&env).await.expect("a node");
        house.nodes.push(node);
    }
    house
}

/// Has Redis keep every command with its arguments in its slow log.
async fn log_every_command(house: &House) {
    house.redis.call(&["CONFIG", "SET", "slowlog-max-len", "1000000"]).await.expect("a setting");
    house.redis.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).await.expect("a setting");
}

/// Keys in every state: active, deactivated, with a wrong secret, unknown, and mistyped.
async fn keys(house: &House, canaries: &Canaries) -> Vec<String> {
    let (active, inactive) = (fresh_key(house, Scope::Full).await, fresh_key(house, Scope::Geo).await);
    house.cli(&["key", "deactivate", &inactive.id]).await.expect("a command").success().expect("a change");
    let id = domain::KeyId::parse(&active.id).expect("an id");
    let wrong = ClearKey::roll(id, || fastrand::u8(..));
    let unknown = ClearKey::mint(|| fastrand::u8(..));
    let mistyped = ClearKey::mint(|| fastrand::u8(..)).expose().replace("ips_", "ipz_");
    [&active.key, &inactive.key, wrong.expose(), unknown.expose(), &mistyped].map(|key| canaries.key(key)).into()
}

/// Header lines with addresses of which each is used this once; every notation that proxies use, and some that none does.
fn lines(canaries: &Canaries) -> Vec<(&'static str, String)> {
    let [client, spoofed, other] = [canaries.address(), canaries.address(), canaries.address()];
    let bracketed = if client.is_ipv6() { format!("[{client}]") } else { client.to_string() };
    let (x_forwarded_for, forwarded) = match fastrand::u8(..6) {
        0 => (client.to_string(), format!("for=\"{bracketed}\"")),
        1 => (format!("{spoofed}, {client}"), format!("for={spoofed}, for=\"{bracketed}\"")),
        2 => (format!("{bracketed}:4711"), format!("for=\"{bracketed}:4711\";by={other}")),
        3 => (format!("{client}%eth0"), format!("for={client}%25eth0")),
        4 => (format!("\"{client}\""), format!("for=\"{bracketed}")),
        _ => (format!("{client} {spoofed}"), format!("for={client};for={spoofed}")),
    };
    vec![
        ("x-forwarded-for", x_forwarded_for),
        ("forwarded", forwarded),
        ("x-real-ip", other.to_string()),
        ("cf-connecting-ip", spoofed.to_string()),
        ("referer", format!("https://example.com/{other}")),
    ]
}

async fn ask_all_routes(node: &Node, canaries: &Canaries, keys: &[String]) {
    let mut caller = node.caller();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST] {
        for path in [LOOKUP, "/api/v1/ip/demo", "/docs", "/signup", "/", "/api/v1/ip/", "/nowhere"] {
            for key in keys.iter().map(Some).chain([None]) {
                let mut lines = lines(canaries);
                let path = match key {
                    Some(key) if fastrand::bool() => format!("{path}?key={key}&ip={}", canaries.address()),
                    Some(key) => {
                        lines.push(("authorization", format!("Bearer {key}")));
                        path.to_owned()
                    }
                    None => path.to_owned(),
                };
                let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let reply = caller.send(method.clone(), &path, &lines).await.expect("an answer");
                assert!(reply.status < 500, "{}", reply.text());
            }
        }
    }
}

/// Requests that no parser takes, each with an address and a key in it.
async fn send_what_is_malformed(node: &Node, canaries: &Canaries, keys: &[String]) {
    for key in keys {
        let (address, long) = (canaries.address(), "x".repeat(20_000));
        let head = format!("Host: x\r\nX-Forwarded-For: {address}\r\nAuthorization: Bearer {key}\r\n");
        let lines: String = (0..200).map(|number| format!("X-{number}: {address}\r\n")).collect();
        for request in [
            format!("GET {LOOKUP}?key={key}&ip={address}&{long} HTTP/1.1\r\n{head}\r\n"),
            format!("GET {LOOKUP}?key={key}&{} HTTP/1.1\r\n{head}\r\n", &long[..6_000]),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}X-Long: {long}\r\n\r\n"),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}{lines}\r\n"),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}{key} {address}\r\n\r\n"),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}X-Forwarded-For: {address}\u{1}\r\n\r\n"),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}Content-Length: {address}\r\n\r\n"),
            format!("GET {LOOKUP} HTTP/1.1\r\n{head}"),
            format!("GET http://{address}/?key={key} HTTP/9.9\r\n{head}\r\n"),
            format!("{key} {address}\r\n\r\n"),
            format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{head}{key}{address}"),
        ] {
            send_raw(node.http(), &request).await;
            send_raw(node.https(), &request).await;
        }
    }
}

/// Sends bytes and takes whatever comes until the connection ends, as it must.
async fn send_raw(server: SocketAddr, bytes: &str) {
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    // The server may close before it has read all.
    let _ = stream.write_all(bytes.as_bytes()).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "a connection stays open after {:?}", &bytes[..bytes.len().min(40)]);
}

/// TLS and HTTP/2, good and bad, also from a peer that is its own client.
async fn ask_with_curl(house: &House, node: &Node, canaries: &Canaries, keys: &[String]) {
    let (https, http) = (format!("https://{}{LOOKUP}", node.https()), format!("http://{}{LOOKUP}", node.http()));
    let peer = PEER.to_string();
    for key in keys {
        let own = lines(canaries).into_iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
        let (with_key, bearer) = (format!("{https}?key={key}"), format!("authorization: Bearer {key}"));
        let mut headers: Vec<&str> = own.iter().flat_map(|line| ["-H", line.as_str()]).collect();
        headers.extend(["-H", &bearer]);
        for (is_good, arguments) in [
            (true, vec!["--http1.1", &https]),
            (true, vec!["--http2", &with_key]),
            (true, vec!["--tls-max", "1.2", &https]),
            (true, vec!["--http2-prior-knowledge", &http]),
            (false, vec!["--tls-max", "1.1", &with_key]),
            (false, vec!["--ciphers", "NULL", "--tls-max", "1.2", &with_key]),
        ] {
            let outcome = house.curl(&[&headers[..], &arguments].concat()).await.expect("curl");
            assert_eq!(outcome.is_success(), is_good, "{arguments:?}: {}", outcome.stderr);
        }
        let alone = ["-H", &bearer, "--interface", &peer, &https, &http];
        let outcome = house.curl(&alone).await.expect("curl").success().expect("an answer");
        assert_eq!(outcome.text().contains(&peer), key == &keys[0], "only the active key is told its own address");
        // Without the authority the client breaks the handshake off.
        assert!(!testkit::curl(&["--interface", &peer, &with_key]).await.expect("curl").is_success());
    }
}

async fn pause(house: &House, canaries: &Canaries) {
    let issued = fresh_key(house, Scope::Full).await;
    let (bearer, mut caller) = (format!("Bearer {}", canaries.key(&issued.key)), house.nodes[0].caller());
    let addresses: [String; 20] = std::array::from_fn(|_| canaries.address().to_string());
    for (expected, count) in [(200, 300), (429, 1), (403, 150)] {
        for address in addresses.iter().cycle().take(count) {
            let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", address)];
            assert_eq!(caller.get(LOOKUP, &headers).await.expect("an answer").status, expected);
        }
    }
}

/// Asks while Redis and then PostgreSQL are dead: errors are what talks most.
async fn ask_while_stores_are_away(house: &mut House, canaries: &Canaries, keys: &[String]) {
    house.redis.kill9();
    ask_in_vain(house, canaries, keys).await;
    house.redis.restart().await.expect("Redis is back");
    log_every_command(house).await;
    house.postgres.kill9();
    // Unknown to both: only PostgreSQL could tell.
    let unknown: [String; 3] = std::array::from_fn(|_| canaries.key(ClearKey::mint(|| fastrand::u8(..)).expose()));
    ask_in_vain(house, canaries, &unknown).await;
    house.postgres.restart().await.expect("PostgreSQL is back");
    for node in &house.nodes {
        eventually("the node is ready again", Duration::from_secs(20), async || {
            Caller::new(node.ops()).get("/ready", &[]).await.is_ok_and(|reply| reply.status == 200)
        })
        .await
        .expect("a node that heals");
    }
}

async fn ask_in_vain(house: &House, canaries: &Canaries, keys: &[String]) {
    for node in &house.nodes {
        let (mut caller, mut failed) = (node.caller(), 0);
        for key in keys {
            let lines = lines(canaries);
            let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let reply = caller.get(&format!("{LOOKUP}?key={key}"), &lines).await.expect("an answer");
            failed += usize::from(reply.status == 500);
        }
        assert!(failed > 0, "a store was away, and nothing failed");
    }
}

/// Searches all that the house has written and holds. Four raw bytes turn up by chance in megabytes of pages: there IPv4 is looked for in every
/// other form alone.
async fn findings(stage: &Stage, search: &Search) -> Vec<Finding> {
    let Stage { house, redis_before, .. } = stage;
    let mut findings = search.bytes("Redis before it was killed", redis_before);
    findings.extend(search.bytes("Redis", &house.redis.dump_bytes().await.expect("what Redis holds")));
    findings.extend(search.bytes("Redis's log", house.redis.log().expect("a log").as_bytes()));
    findings.extend(search.bytes("the database as SQL", &house.postgres.dump("ipseity").await.expect("a dump")));
    findings.extend(search.bytes("PostgreSQL's log", house.postgres.log().expect("a log").as_bytes()));
    for node in &house.nodes {
        findings.extend(search.bytes("a node's log", node.log().expect("a log").as_bytes()));
        findings.extend(search.bytes("metrics", node.metrics().await.expect("metrics").as_bytes()));
    }
    // What is in memory alone goes to disk before the files are searched.
    house.postgres.psql("ipseity", "checkpoint").await.expect("a checkpoint");
    house.redis.save_snapshot().await.expect("a snapshot");
    let by_chance =
        |finding: &Finding| finding.form == Form::Binary && matches!(finding.needle, Needle::Address(IpAddr::V4(_)));
    for folder in [house.redis.data(), house.postgres.data()] {
        findings.extend(search.files(&folder).expect("files").into_iter().filter(|finding| !by_chance(finding)));
    }
    findings
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figure is what this test is for")]
async fn no_client_address_and_no_clear_key_is_stored_or_logged_anywhere() {
    let stage = stage().await;
    let count = stage.canaries.0.lock().expect("no panic").len();
    let findings = findings(stage, &stage.canaries.search()).await;
    eprintln!("privacy: {count} addresses and secrets searched for, {} found", findings.len());
    assert!(findings.is_empty(), "{:#?}", &findings[..findings.len().min(10)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_sees_a_planted_leak_wherever_it_looks() {
    let stage = stage().await;
    let planted = Canaries::default();
    let key = planted.key(ClearKey::mint(|| fastrand::u8(..)).expose());
    let address = Ipv6Addr::from(0x2001_0db8_u128 << 96 | fastrand::u128(..) >> 32);
    planted.note(Needle::Address(address.into()));
    let leak = format!("create table leak as select '{key} {address}' as text");
    stage.house.postgres.psql("ipseity", &leak).await.expect("a leak");
    stage.house.redis.call(&["SET", "leak", &format!("{key} {address}")]).await.expect("a leak");
    let found = findings(stage, &planted.search()).await;
    let seen = |place: &str, needle: &Needle| found.iter().any(|f| f.place.contains(place) && &f.needle == needle);
    for place in ["Redis", "the database as SQL", "PostgreSQL's log", "appendonlydir", "dump.rdb", "pg_wal", "base"] {
        for needle in [Needle::Text(key.clone()), Needle::Address(address.into())] {
            assert!(seen(place, &needle), "{needle:?} was planted, and not seen in {place}");
        }
    }
    // Nothing can be planted in these; what they are known to say is seen.
    let said = [Needle::Address(Ipv4Addr::LOCALHOST.into()), Needle::Text("ipseity_answers_total".to_owned())];
    let search = Search::open(said).expect("a search");
    for node in &stage.house.nodes {
        assert!(!search.bytes("a node's log", node.log().expect("a log").as_bytes()).is_empty());
        assert!(!search.bytes("metrics", node.metrics().await.expect("metrics").as_bytes()).is_empty());
    }
}
