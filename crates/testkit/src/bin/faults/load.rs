//! Clients that write down each request before they send it, and its outcome after.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use testkit::{Caller, Reply};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::stage::Subject;

/// No client waits longer.
const PATIENCE: Duration = Duration::from_secs(10);
const DAY_S: u64 = 86_400;

/// One request: written down when it is sent, completed when it is answered.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) key: usize,
    pub(crate) node: usize,
    pub(crate) sent: Instant,
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) took: Duration,
    pub(crate) status: u16,
    /// The day that a limit's header speaks of.
    pub(crate) day: Option<u64>,
    pub(crate) is_burst: bool,
}

impl Asked {
    pub(crate) fn is_admitted(&self) -> bool {
        self.outcome.is_some_and(|outcome| outcome.status == 200)
    }

    /// Nobody was told whether it was charged.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.outcome.is_none_or(|outcome| outcome.status >= 500)
    }

    /// When the answer was there; of a request without one, when it was sent.
    pub(crate) fn ended(&self) -> Instant {
        self.sent + self.outcome.map_or(Duration::ZERO, |outcome| outcome.took)
    }

    pub(crate) fn day(&self) -> Option<u64> {
        self.outcome?.day
    }
}

/// Where the nodes are now.
pub(crate) type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Vec<Asked>>,
}

pub(crate) struct LoadOptions {
    pub(crate) clients: usize,
    /// Of all clients together.
    pub(crate) requests_per_second: u32,
    pub(crate) seed: u64,
    /// How likely a client hangs up before it has its answer.
    pub(crate) hang_up: f64,
}

impl Load {
    pub(crate) fn start(addresses: &Addresses, subjects: &[Subject], options: &LoadOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        let pace = Duration::from_secs(1) * u32::try_from(options.clients).unwrap_or(1) / options.requests_per_second;
        for number in 0..options.clients {
            let client = Client {
                addresses: Arc::clone(addresses),
                subjects: subjects.to_vec(),
                rng: fastrand::Rng::with_seed(options.seed.wrapping_mul(1000).wrapping_add(number as u64)),
                node: number,
                pace,
                hang_up: options.hang_up,
            };
            clients.spawn(client.ask_until(Arc::clone(&stop)));
        }
        Self { stop, clients }
    }

    pub(crate) async fn stop(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::Release);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}

struct Client {
    addresses: Addresses,
    subjects: Vec<Subject>,
    rng: fastrand::Rng,
    node: usize,
    pace: Duration,
    hang_up: f64,
}

impl Client {
    async fn ask_until(mut self, stop: Arc<AtomicBool>) -> Vec<Asked> {
        let mut asked = Vec::new();
        let mut pace = interval(self.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut caller: Option<(SocketAddr, Caller)> = None;
        while !stop.load(Ordering::Acquire) {
            pace.tick().await;
            let (node, address) = {
                let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
                let node = self.node % addresses.len();
                (node, addresses[node])
            };
            let key = self.rng.usize(..self.subjects.len());
            let intent = Asked { key, node, sent: Instant::now(), outcome: None };
            asked.push(intent);
            if caller.as_ref().is_none_or(|(of, _)| *of != address) {
                caller = Some((address, Caller::new(address)));
            }
            let Some((_, connection)) = &mut caller else { continue };
            let headers = [("authorization", self.subjects[key].bearer.as_str())];
            let patience = if self.rng.f64() < self.hang_up { Duration::from_micros(300) } else { PATIENCE };
            match timeout(patience, connection.get("/api/v1/ip", &headers)).await {
                Ok(Ok(reply)) => {
                    if let Some(last) = asked.last_mut() {
                        last.outcome = Some(read(&reply, last.sent.elapsed()));
                    }
                }
                Ok(Err(_)) | Err(_) => caller = None,
            }
        }
        asked
    }
}

fn read(reply: &Reply, took: Duration) -> Outcome {
    let reset: Option<u64> = reply.header("x-ratelimit-reset").and_then(|value| value.parse().ok());
    let is_burst = reply.header("ratelimit-policy").is_some_and(|policy| policy.contains("burst"));
    let day = reset.filter(|_| !is_burst).map(|reset| reset / DAY_S - 1);
    Outcome { took, status: reply.status, day, is_burst }
}
