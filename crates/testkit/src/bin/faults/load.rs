//! Clients that send requests until they are stopped, and record each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipseity_testkit::{TestClient, TestResponse};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::history::{RequestRecord, ResponseFacts};
use crate::recorder::Recorder;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const DISCONNECT_AFTER: Duration = Duration::from_micros(300);
const DISCONNECT_PROBABILITY: f64 = 0.2;
/// How often a client uses the secret before the last.
const OLD_SECRET_PROBABILITY: f64 = 0.1;
const DAY_S: u64 = 86_400;

/// A key of the load. Clones share its secrets.
#[derive(Clone)]
pub(crate) struct LoadKey {
    /// Number in the history.
    pub(crate) index: usize,
    pub(crate) id: String,
    bearers: Arc<Mutex<Vec<String>>>,
}

impl LoadKey {
    pub(crate) fn new(index: usize, id: String, bearer: String) -> Self {
        Self { index, id, bearers: Arc::new(Mutex::new(vec![bearer])) }
    }

    /// Adds a secret and returns its number.
    pub(crate) fn add_secret(&self, bearer: String) -> usize {
        let mut bearers = self.bearers.lock().unwrap_or_else(PoisonError::into_inner);
        bearers.push(bearer);
        bearers.len() - 1
    }

    pub(crate) fn secrets(&self) -> usize {
        self.bearers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn choose_secret(&self, rng: &mut fastrand::Rng) -> (usize, String) {
        let bearers = self.bearers.lock().unwrap_or_else(PoisonError::into_inner);
        let last = bearers.len() - 1;
        let secret = if last > 0 && rng.f64() < OLD_SECRET_PROBABILITY { last - 1 } else { last };
        (secret, bearers[secret].clone())
    }
}

/// A node process and its address.
#[derive(Clone, Copy)]
pub(crate) struct NodeTarget {
    pub(crate) process: usize,
    pub(crate) address: SocketAddr,
}

/// The current processes of the nodes.
pub(crate) type NodeTargets = Arc<Mutex<Vec<NodeTarget>>>;

pub(crate) fn target(targets: &NodeTargets, node: usize) -> NodeTarget {
    let targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
    targets[node % targets.len()]
}

/// Running clients.
pub(crate) struct FaultLoad {
    stop: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

/// What clients need.
#[derive(Clone)]
pub(crate) struct LoadContext {
    pub(crate) targets: NodeTargets,
    pub(crate) recorder: Recorder,
    /// While set, clients disconnect now and then before the response.
    pub(crate) disconnects: Arc<AtomicBool>,
}

pub(crate) struct FaultLoadOptions {
    pub(crate) clients: usize,
    /// Rate of all clients together.
    pub(crate) requests_per_second: u32,
    pub(crate) seed: u64,
    /// The only node that gets requests; all if absent.
    pub(crate) node: Option<usize>,
}

impl FaultLoad {
    pub(crate) fn start(context: &LoadContext, keys: &[LoadKey], options: &FaultLoadOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        let request_interval =
            Duration::from_secs(1) * u32::try_from(options.clients).unwrap_or(1) / options.requests_per_second;
        for number in 0..options.clients {
            let mut client = LoadClient::new(context, options.node.unwrap_or(number));
            let mut rng = fastrand::Rng::with_seed(options.seed.wrapping_mul(1000).wrapping_add(number as u64));
            let (keys, stop) = (keys.to_vec(), Arc::clone(&stop));
            clients.spawn(async move {
                let mut ticker = interval(request_interval);
                ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticker.tick().await;
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    client.send(&keys[rng.usize(..keys.len())], &mut rng).await;
                }
            });
        }
        Self { stop, clients }
    }

    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.clients.join_all().await;
    }
}

/// One client with one connection to a node.
pub(crate) struct LoadClient {
    context: LoadContext,
    node: usize,
    connection: Option<(SocketAddr, TestClient)>,
}

impl LoadClient {
    pub(crate) fn new(context: &LoadContext, node: usize) -> Self {
        Self { context: context.clone(), node, connection: None }
    }

    /// Sends a request and records it.
    pub(crate) async fn send(&mut self, key: &LoadKey, rng: &mut fastrand::Rng) -> Option<u16> {
        let NodeTarget { process, address } = target(&self.context.targets, self.node);
        let disconnects = self.context.disconnects.load(Ordering::Relaxed) && rng.f64() < DISCONNECT_PROBABILITY;
        let request_timeout = if disconnects { DISCONNECT_AFTER } else { REQUEST_TIMEOUT };
        let (secret, bearer) = key.choose_secret(rng);
        let (_, mut connection) = self
            .connection
            .take()
            .filter(|(of, _)| *of == address)
            .unwrap_or_else(|| (address, TestClient::new(address)));
        let start = self.context.recorder.now();
        let reply = timeout(request_timeout, connection.get("/api/v1/ip", &[("authorization", &bearer)])).await;
        let end = self.context.recorder.now();
        let response = match &reply {
            Ok(Ok(reply)) => {
                self.connection = Some((address, connection));
                Some(parse_response(reply))
            }
            Ok(Err(_)) | Err(_) => None,
        };
        self.context.recorder.record_request(RequestRecord { key: key.index, secret, process, start, end, response });
        response.map(|response| response.status)
    }
}

fn parse_response(reply: &TestResponse) -> ResponseFacts {
    let number = |name| reply.header(name).and_then(|value| value.parse::<u64>().ok());
    let is_burst = reply.header("ratelimit-policy").is_some_and(|policy| policy.starts_with("\"burst\""));
    let day = number("x-ratelimit-reset").filter(|_| !is_burst).map(|reset| reset / DAY_S - 1);
    let remaining = number("x-ratelimit-remaining").filter(|_| !is_burst);
    ResponseFacts { status: reply.status, day, remaining, is_burst }
}
