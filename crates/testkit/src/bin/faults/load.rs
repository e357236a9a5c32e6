//! Clients that record each request before they send it, and its outcome afterwards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_testkit::{TestClient, TestResponse};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::fixture::LoadKey;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const DAY_S: u64 = 86_400;

/// One request, recorded when it is sent and completed with its response.
#[derive(Clone)]
pub(crate) struct FaultRequest {
    pub(crate) key_index: usize,
    pub(crate) node_index: usize,
    pub(crate) sent_at: Instant,
    pub(crate) outcome: Option<FaultRequestOutcome>,
}

#[derive(Clone, Copy)]
pub(crate) struct FaultRequestOutcome {
    pub(crate) took: Duration,
    pub(crate) status: u16,
    /// The day of the rate limit header.
    pub(crate) day: Option<u64>,
    pub(crate) is_burst: bool,
}

impl FaultRequest {
    pub(crate) fn is_admitted(&self) -> bool {
        self.outcome.is_some_and(|outcome| outcome.status == 200)
    }

    /// The client does not know whether it was charged.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.outcome.is_none_or(|outcome| outcome.status >= 500)
    }

    /// When the response arrived, or when the request was sent if none did.
    pub(crate) fn finished_at(&self) -> Instant {
        self.sent_at + self.outcome.map_or(Duration::ZERO, |outcome| outcome.took)
    }

    pub(crate) fn day(&self) -> Option<u64> {
        self.outcome?.day
    }
}

/// Current addresses of the nodes.
pub(crate) type NodeAddresses = Arc<Mutex<Vec<SocketAddr>>>;

pub(crate) struct FaultLoad {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Vec<FaultRequest>>,
}

pub(crate) struct FaultLoadOptions {
    pub(crate) clients: usize,
    /// Rate of all clients together.
    pub(crate) requests_per_second: u32,
    pub(crate) seed: u64,
    /// Probability that a client disconnects before the response.
    pub(crate) disconnect_probability: f64,
}

impl FaultLoad {
    pub(crate) fn start(addresses: &NodeAddresses, keys: &[LoadKey], options: &FaultLoadOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        let request_interval =
            Duration::from_secs(1) * u32::try_from(options.clients).unwrap_or(1) / options.requests_per_second;
        for number in 0..options.clients {
            let client = LoadClient {
                addresses: Arc::clone(addresses),
                keys: keys.to_vec(),
                rng: fastrand::Rng::with_seed(options.seed.wrapping_mul(1000).wrapping_add(number as u64)),
                node: number,
                request_interval,
                disconnect_probability: options.disconnect_probability,
            };
            clients.spawn(client.send_until(Arc::clone(&stop)));
        }
        Self { stop, clients }
    }

    pub(crate) async fn stop(self) -> Vec<FaultRequest> {
        self.stop.store(true, Ordering::Release);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}

struct LoadClient {
    addresses: NodeAddresses,
    keys: Vec<LoadKey>,
    rng: fastrand::Rng,
    node: usize,
    request_interval: Duration,
    disconnect_probability: f64,
}

impl LoadClient {
    async fn send_until(mut self, stop: Arc<AtomicBool>) -> Vec<FaultRequest> {
        let mut records = Vec::new();
        let mut ticker = interval(self.request_interval);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut caller: Option<(SocketAddr, TestClient)> = None;
        while !stop.load(Ordering::Acquire) {
            ticker.tick().await;
            let (node, address) = {
                let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
                let node = self.node % addresses.len();
                (node, addresses[node])
            };
            let key = self.rng.usize(..self.keys.len());
            let record = FaultRequest { key_index: key, node_index: node, sent_at: Instant::now(), outcome: None };
            records.push(record);
            if caller.as_ref().is_none_or(|(of, _)| *of != address) {
                caller = Some((address, TestClient::new(address)));
            }
            let Some((_, connection)) = &mut caller else { continue };
            let headers = [("authorization", self.keys[key].bearer.as_str())];
            let request_timeout =
                if self.rng.f64() < self.disconnect_probability { Duration::from_micros(300) } else { REQUEST_TIMEOUT };
            match timeout(request_timeout, connection.get("/api/v1/ip", &headers)).await {
                Ok(Ok(reply)) => {
                    if let Some(last) = records.last_mut() {
                        last.outcome = Some(parse_outcome(&reply, last.sent_at.elapsed()));
                    }
                }
                Ok(Err(_)) | Err(_) => caller = None,
            }
        }
        records
    }
}

fn parse_outcome(reply: &TestResponse, took: Duration) -> FaultRequestOutcome {
    let reset: Option<u64> = reply.header("x-ratelimit-reset").and_then(|value| value.parse().ok());
    let is_burst = reply.header("ratelimit-policy").is_some_and(|policy| policy.contains("burst"));
    let day = reset.filter(|_| !is_burst).map(|reset| reset / DAY_S - 1);
    FaultRequestOutcome { took, status: reply.status, day, is_burst }
}
