//! Nodes replaced by take-over under load: a new process has the listening sockets before the old one drains.
//!
//! `IPSEITY_RESTARTS`, `IPSEITY_RESTART_RATE` (requests a second) and `IPSEITY_RESTART_S` make it larger than a suite can afford.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::node::Env;
use testkit::quic::QuicOptions;
use testkit::stream::Protocol;
use testkit::{House, HouseOptions, Port, QuicCaller, StreamCaller};
use tokio::task::JoinSet;

use crate::round_trip::issue_all;
use crate::shared::{patient, setting};

const WORKERS_EACH: usize = 10;
const QUIC_WORKERS: usize = 4;
const QUIC_PAUSE: Duration = Duration::from_millis(20);

/// What became of the requests of some callers.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) answered: usize,
    connects: usize,
    given_back: usize,
    slowest: Duration,
    /// What a caller saw instead of an answer, and how often.
    failures: BTreeMap<String, usize>,
}

impl Tally {
    fn note(&mut self, started: Instant, outcome: anyhow::Result<testkit::Reply>) {
        let failure = match outcome {
            Ok(reply) if reply.status == 200 => {
                self.answered += 1;
                self.slowest = self.slowest.max(started.elapsed());
                return;
            }
            Ok(reply) => format!("status {}: {}", reply.status, reply.text()),
            Err(error) => format!("{error:#}"),
        };
        *self.failures.entry(failure).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.connects += other.connects;
        self.given_back += other.given_back;
        self.slowest = self.slowest.max(other.slowest);
        for (failure, count) in other.failures {
            *self.failures.entry(failure).or_default() += count;
        }
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    pub(crate) fn told(&self, name: &str) -> String {
        let Self { answered, connects, given_back, slowest, failures } = self;
        format!(
            "{name}: {answered} answered over {connects} connections, {given_back} given back untouched and sent again, \
             slowest {slowest:.0?}, failed {failures:?}"
        )
    }
}

/// Asks with these keys in turn, one request a pause, until it is told to stop.
pub(crate) async fn call(mut caller: StreamCaller, keys: Vec<String>, pause: Duration, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    let mut tick = tokio::time::interval(pause);
    for key in keys.iter().cycle() {
        tick.tick().await;
        if stop.load(Ordering::Acquire) {
            break;
        }
        let started = Instant::now();
        let authorization = format!("Bearer {key}");
        tally.note(started, caller.get("/api/v1/ip", &[("authorization", &authorization)]).await);
    }
    tally.connects = caller.connects;
    tally.given_back = caller.given_back;
    tally
}

async fn call_quic(server: SocketAddr, authority: PathBuf, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    let mut tick = tokio::time::interval(QUIC_PAUSE);
    let mut caller: Option<QuicCaller> = None;
    while !stop.load(Ordering::Acquire) {
        tick.tick().await;
        let started = Instant::now();
        let mut open = match caller.take().filter(|caller| !caller.was_sent_away()) {
            Some(open) => open,
            None => {
                tally.connects += 1;
                let options = QuicOptions::to(server, &authority);
                match QuicCaller::open(options).await {
                    Ok(open) => open,
                    Err(error) => {
                        tally.note(started, Err(error.context("connecting")));
                        continue;
                    }
                }
            }
        };
        match open.try_get("/api/v1/meta").await {
            Ok(Some(reply)) => {
                tally.note(started, Ok(reply));
                caller = Some(open);
            }
            // It was sent away before; the request goes over the next connection.
            Ok(None) => tally.given_back += 1,
            Err(error) => tally.note(started, Err(error)),
        }
    }
    tally
}

/// How a node gets its sockets.
enum TakeOver {
    Inherited,
    ReusePort,
}

struct Outcome {
    http11: Tally,
    http2: Tally,
    http3: Tally,
    took: Duration,
    restarts: u32,
}

async fn restart_under_load(take_over: TakeOver) -> Outcome {
    let restarts = setting("IPSEITY_RESTARTS", 3);
    let (rate, span_s) = (setting("IPSEITY_RESTART_RATE", 200), setting("IPSEITY_RESTART_S", 9));
    let options = HouseOptions { nodes: 0, env: patient(), ..HouseOptions::default() };
    let house = House::start(options).await.expect("a house");
    let keys = issue_all(&house).await;
    let ports = [Port::open().expect("a port"), Port::open().expect("a port")];
    let [http, https] = ports.each_ref().map(Port::address);
    let mut env: Env = [("HTTP", http), ("HTTPS", https)]
        .map(|(name, address)| (format!("IPSEITY__EDGE__{name}"), address.to_string()))
        .into();
    let sockets = match take_over {
        TakeOver::Inherited => vec![http, https],
        TakeOver::ReusePort => {
            env.insert("IPSEITY__EDGE__REUSE_PORT".to_owned(), "true".to_owned());
            Vec::new()
        }
    };
    let sockets: Vec<_> = sockets.into_iter().map(|address| TcpListener::bind(address).expect("a socket")).collect();
    let sockets: Vec<_> = sockets.iter().collect();
    let mut node = house.start_node_on(&env, &sockets).await.expect("a node");

    let stop = Arc::new(AtomicBool::new(false));
    let pause = Duration::from_secs(1) * (2 * WORKERS_EACH as u32) / rate;
    let authority = &house.certificate.authority;
    let (mut tcp, mut quic) = (JoinSet::new(), JoinSet::new());
    for (worker, own) in keys.chunks(keys.len() / (2 * WORKERS_EACH)).enumerate() {
        let (protocol, server, authority) = if worker < WORKERS_EACH {
            (Protocol::Http11, http, None)
        } else {
            (Protocol::Http2, https, Some(&**authority))
        };
        let caller = StreamCaller::new(server, protocol, authority).expect("a caller");
        let (own, stop) = (own.to_vec(), Arc::clone(&stop));
        tcp.spawn(async move { (protocol, call(caller, own, pause, stop).await) });
    }
    for _ in 0..QUIC_WORKERS {
        quic.spawn(call_quic(https, authority.clone(), Arc::clone(&stop)));
    }
    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(span_s.into()) / (restarts + 1));
    tick.tick().await;
    for _ in 0..restarts {
        tick.tick().await;
        let next = house.start_node_on(&env, &sockets).await.expect("the next node");
        let ended = node.terminate().await.expect("an end");
        assert!(ended.success(), "{}", node.log().expect("a log"));
        node = next;
    }
    tick.tick().await;
    stop.store(true, Ordering::Release);
    let mut outcome = Outcome {
        http11: Tally::default(),
        http2: Tally::default(),
        http3: Tally::default(),
        took: started.elapsed(),
        restarts,
    };
    for (protocol, tally) in tcp.join_all().await {
        match protocol {
            Protocol::Http11 => outcome.http11.add(tally),
            Protocol::Http2 => outcome.http2.add(tally),
        }
    }
    quic.join_all().await.into_iter().for_each(|tally| outcome.http3.add(tally));
    outcome
}

impl Outcome {
    #[expect(clippy::print_stderr, reason = "the figures are the point")]
    fn show(&self, name: &str) {
        let total = self.http11.answered + self.http2.answered + self.http11.failed() + self.http2.failed();
        eprintln!(
            "{} restarts by {name} in {:.0?}, {total} requests over HTTP/1.1 and HTTP/2",
            self.restarts, self.took
        );
        for (name, tally) in [("HTTP/1.1", &self.http11), ("HTTP/2", &self.http2), ("HTTP/3", &self.http3)] {
            eprintln!("  {}", tally.told(name));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_inherits_the_sockets_loses_no_request_over_tcp() {
    let outcome = restart_under_load(TakeOver::Inherited).await;
    outcome.show("inherited sockets");
    assert_eq!((outcome.http11.failed(), outcome.http2.failed()), (0, 0));
    assert!(outcome.http11.connects > WORKERS_EACH && outcome.http2.connects > WORKERS_EACH, "nobody had to move");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_their_ports_while_one_takes_over() {
    let outcome = restart_under_load(TakeOver::ReusePort).await;
    outcome.show("SO_REUSEPORT");
    // A caller whose connection the kernel completes between the last accept and the close is lost.
    let failed = outcome.http11.failed() + outcome.http2.failed();
    assert!(failed * 1000 <= outcome.http11.answered + outcome.http2.answered, "{failed} failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_no_setting_names_is_refused_at_start() {
    let house = crate::shared::house().await;
    let stray = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let refused = house.start_node_on(&Env::new(), &[&stray]).await.expect_err("a start").to_string();
    assert!(refused.contains("were handed over"), "{refused}");
}
