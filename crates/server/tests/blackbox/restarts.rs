//! Replaces nodes under load: a new process has the listening sockets before the old one drains.
//!
//! `IPSEITY_RESTARTS`, `IPSEITY_RESTART_RATE` (requests per second) and `IPSEITY_RESTART_S` increase the load.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, Http3TestClient, ReservedPort, StreamTestClient};
use tokio::task::JoinSet;

use crate::fixture::{env_number, relaxed_timeouts};
use crate::round_trip::issue_1000_keys;

const WORKERS_PER_PROTOCOL: usize = 10;
const QUIC_WORKERS: usize = 4;
const QUIC_REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// Results of the requests of some clients.
#[derive(Default)]
pub(crate) struct LoadStats {
    pub(crate) succeeded: usize,
    connections: usize,
    unprocessed_retries: usize,
    slowest: Duration,
    /// Failures by description.
    failures: BTreeMap<String, usize>,
}

impl LoadStats {
    fn record(&mut self, started: Instant, outcome: anyhow::Result<ipseity_testkit::TestResponse>) {
        let failure = match outcome {
            Ok(reply) if reply.status == 200 => {
                self.succeeded += 1;
                self.slowest = self.slowest.max(started.elapsed());
                return;
            }
            Ok(reply) => format!("status {}: {}", reply.status, reply.text()),
            Err(error) => format!("{error:#}"),
        };
        *self.failures.entry(failure).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.connections += other.connections;
        self.unprocessed_retries += other.unprocessed_retries;
        self.slowest = self.slowest.max(other.slowest);
        for (failure, count) in other.failures {
            *self.failures.entry(failure).or_default() += count;
        }
    }

    pub(crate) fn failed_count(&self) -> usize {
        self.failures.values().sum()
    }

    pub(crate) fn summary(&self, name: &str) -> String {
        let Self { succeeded, connections, unprocessed_retries: retries, slowest, failures } = self;
        format!(
            "{name}: {succeeded} succeeded over {connections} connections, {retries} unprocessed and sent again, \
             slowest {slowest:.0?}, failed {failures:?}"
        )
    }
}

/// Sends requests with these keys in turn, one per interval, until it is stopped.
pub(crate) async fn run_client(
    mut caller: StreamTestClient,
    keys: Vec<String>,
    interval: Duration,
    stop: Arc<AtomicBool>,
) -> LoadStats {
    let mut stats = LoadStats::default();
    let mut tick = tokio::time::interval(interval);
    for key in keys.iter().cycle() {
        tick.tick().await;
        if stop.load(Ordering::Acquire) {
            break;
        }
        let started = Instant::now();
        let authorization = format!("Bearer {key}");
        stats.record(started, caller.get("/api/v1/ip", &[("authorization", &authorization)]).await);
    }
    stats.connections = caller.connections_opened;
    stats.unprocessed_retries = caller.unprocessed_retries;
    stats
}

async fn run_quic_client(server: SocketAddr, authority: PathBuf, stop: Arc<AtomicBool>) -> LoadStats {
    let mut stats = LoadStats::default();
    let mut tick = tokio::time::interval(QUIC_REQUEST_INTERVAL);
    let mut caller: Option<Http3TestClient> = None;
    while !stop.load(Ordering::Acquire) {
        tick.tick().await;
        let started = Instant::now();
        let mut open = match caller.take().filter(|caller| !caller.got_goaway()) {
            Some(open) => open,
            None => {
                stats.connections += 1;
                let options = Http3TestOptions::localhost(server, &authority);
                match Http3TestClient::connect(options).await {
                    Ok(open) => open,
                    Err(error) => {
                        stats.record(started, Err(error.context("connecting")));
                        continue;
                    }
                }
            }
        };
        match open.try_get("/api/v1/meta").await {
            Ok(Some(reply)) => {
                stats.record(started, Ok(reply));
                caller = Some(open);
            }
            // The server closed the connection gracefully before, so the request goes over the next one.
            Ok(None) => stats.unprocessed_retries += 1,
            Err(error) => stats.record(started, Err(error)),
        }
    }
    stats
}

/// How a node gets its sockets.
enum SocketTakeover {
    Inherited,
    ReusePort,
}

struct RestartOutcome {
    http11: LoadStats,
    http2: LoadStats,
    http3: LoadStats,
    took: Duration,
    restarts: u32,
}

async fn restart_under_load(takeover: SocketTakeover) -> RestartOutcome {
    let restarts = env_number("IPSEITY_RESTARTS", 3);
    let (rate, span_s) = (env_number("IPSEITY_RESTART_RATE", 200), env_number("IPSEITY_RESTART_S", 9));
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let keys = issue_1000_keys(&deployment).await;
    let ports =
        [ReservedPort::reserve_free().expect("reserve a port"), ReservedPort::reserve_free().expect("reserve a port")];
    let [http, https] = ports.each_ref().map(ReservedPort::address);
    let mut env: Env = [("HTTP", http), ("HTTPS", https)]
        .map(|(name, address)| (format!("IPSEITY__EDGE__{name}"), address.to_string()))
        .into();
    let sockets = match takeover {
        SocketTakeover::Inherited => vec![http, https],
        SocketTakeover::ReusePort => {
            env.insert("IPSEITY__EDGE__REUSE_PORT".to_owned(), "true".to_owned());
            Vec::new()
        }
    };
    let sockets: Vec<_> =
        sockets.into_iter().map(|address| TcpListener::bind(address).expect("open a socket")).collect();
    let sockets: Vec<_> = sockets.iter().collect();
    let mut node = deployment.start_node_with_sockets(&env, &sockets).await.expect("node starts");

    let stop = Arc::new(AtomicBool::new(false));
    let interval = Duration::from_secs(1) * (2 * WORKERS_PER_PROTOCOL as u32) / rate;
    let authority = &deployment.certificate.ca_file;
    let (mut tcp, mut quic) = (JoinSet::new(), JoinSet::new());
    for (worker, key_chunk) in keys.chunks(keys.len() / (2 * WORKERS_PER_PROTOCOL)).enumerate() {
        let (protocol, server, authority) = if worker < WORKERS_PER_PROTOCOL {
            (StreamProtocol::Http11, http, None)
        } else {
            (StreamProtocol::Http2, https, Some(&**authority))
        };
        let caller = StreamTestClient::new(server, protocol, authority).expect("client connects");
        let (key_chunk, stop) = (key_chunk.to_vec(), Arc::clone(&stop));
        tcp.spawn(async move { (protocol, run_client(caller, key_chunk, interval, stop).await) });
    }
    for _ in 0..QUIC_WORKERS {
        quic.spawn(run_quic_client(https, authority.clone(), Arc::clone(&stop)));
    }
    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(span_s.into()) / (restarts + 1));
    tick.tick().await;
    for _ in 0..restarts {
        tick.tick().await;
        let next = deployment.start_node_with_sockets(&env, &sockets).await.expect("node starts");
        let ended = node.terminate().await.expect("process exits");
        assert!(ended.success(), "{}", node.log().expect("read the log"));
        node = next;
    }
    tick.tick().await;
    stop.store(true, Ordering::Release);
    let mut outcome = RestartOutcome {
        http11: LoadStats::default(),
        http2: LoadStats::default(),
        http3: LoadStats::default(),
        took: started.elapsed(),
        restarts,
    };
    for (protocol, stats) in tcp.join_all().await {
        match protocol {
            StreamProtocol::Http11 => outcome.http11.merge(stats),
            StreamProtocol::Http2 => outcome.http2.merge(stats),
        }
    }
    quic.join_all().await.into_iter().for_each(|stats| outcome.http3.merge(stats));
    outcome
}

impl RestartOutcome {
    #[expect(clippy::print_stderr, reason = "the figures are printed")]
    fn print_summary(&self, name: &str) {
        let total =
            self.http11.succeeded + self.http2.succeeded + self.http11.failed_count() + self.http2.failed_count();
        eprintln!(
            "{} restarts with {name} in {:.0?}, {total} requests over HTTP/1.1 and HTTP/2",
            self.restarts, self.took
        );
        for (name, stats) in [("HTTP/1.1", &self.http11), ("HTTP/2", &self.http2), ("HTTP/3", &self.http3)] {
            eprintln!("  {}", stats.summary(name));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_inherited_sockets_loses_no_request() {
    let outcome = restart_under_load(SocketTakeover::Inherited).await;
    outcome.print_summary("inherited sockets");
    assert_eq!((outcome.http11.failed_count(), outcome.http2.failed_count()), (0, 0));
    assert!(
        outcome.http11.connections > WORKERS_PER_PROTOCOL && outcome.http2.connections > WORKERS_PER_PROTOCOL,
        "no client had to reconnect"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_reuseport_loses_almost_no_request() {
    let outcome = restart_under_load(SocketTakeover::ReusePort).await;
    outcome.print_summary("SO_REUSEPORT");
    // A connection that the kernel completes between the last accept and the close is lost.
    let failed = outcome.http11.failed_count() + outcome.http2.failed_count();
    assert!(failed * 1000 <= outcome.http11.succeeded + outcome.http2.succeeded, "{failed} failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfigured_inherited_socket_is_rejected() {
    let deployment = crate::fixture::shared_deployment().await;
    let unconfigured = TcpListener::bind("127.0.0.1:0").expect("open a socket");
    let refused =
        deployment.start_node_with_sockets(&Env::new(), &[&unconfigured]).await.expect_err("start fails").to_string();
    assert!(refused.contains("inherited sockets on"), "{refused}");
}
