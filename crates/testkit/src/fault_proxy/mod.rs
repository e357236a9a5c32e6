//! A TCP proxy with faults: it delays, throttles, swallows, cuts and resets connections, and can be reconfigured while
//! it runs.
//!
//! A stream that lost bytes always ends with a reset, immediately or when bytes flow again. The proxy runs on its own
//! thread, so that it serves tests on any runtime and blocking tests.

mod direction;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use self::direction::ProxyDirection;
use crate::ports::ReservedPort;

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// Faults of a link. They can be combined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultConfig {
    /// Delay of every chunk in each direction.
    pub delay: Duration,
    /// Maximum additional delay of a chunk. Chunks stay in order.
    pub jitter: Duration,
    /// Closes all connections, and new ones immediately.
    pub cut: bool,
    /// Swallows every byte in both directions, including ends of streams, while connections stay open and new ones are
    /// accepted. Connections that lost bytes are reset afterwards.
    pub half_open: bool,
    /// Probability that a chunk of a reply is dropped and its connection reset. The request has arrived, but its reply
    /// is lost.
    pub reply_drop_rate: f64,
    /// Maximum rate per connection and direction.
    pub bytes_per_second: Option<NonZeroU32>,
    /// Accepts requests on connections opened before this time, and delivers them once it is `None` again. Newer
    /// connections are not affected. A tunnel or sidecar that stalls behaves like this.
    pub hold_requests_before: Option<Instant>,
    /// Delivers replies only when it is false again, while requests pass.
    pub hold_replies: bool,
    /// Seed for jitter and dropped replies.
    pub seed: u64,
}

impl FaultConfig {
    /// A link without faults.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            cut: false,
            half_open: false,
            reply_drop_rate: 0.0,
            bytes_per_second: None,
            hold_requests_before: None,
            hold_replies: false,
            seed: 0,
        }
    }
}

/// A running proxy. Dropping the last clone ends its connections and thread.
#[derive(Debug, Clone)]
pub struct FaultProxy {
    address: SocketAddr,
    state: watch::Sender<FaultProxyState>,
    shared: Arc<FaultProxyShared>,
}

#[derive(Debug, Clone, Copy)]
struct FaultProxyState {
    faults: FaultConfig,
    /// Number of resets of all connections.
    reset_count: u64,
}

#[derive(Debug)]
struct FaultProxyShared {
    upstream: Mutex<SocketAddr>,
    rng: Mutex<Rng>,
    connections_accepted: AtomicU64,
    replies_dropped: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy without faults. The server need not run yet.
    pub fn open(upstream: SocketAddr) -> Result<Self> {
        let port = ReservedPort::reserve_free()?;
        let address = port.address();
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (state, inbox) = watch::channel(FaultProxyState { faults: FaultConfig::none(), reset_count: 0 });
        let shared = Arc::new(FaultProxyShared {
            upstream: Mutex::new(upstream),
            rng: Mutex::new(Rng::with_seed(0)),
            connections_accepted: AtomicU64::new(0),
            replies_dropped: AtomicU64::new(0),
        });
        let thread_shared = Arc::clone(&shared);
        thread::spawn(move || {
            let _reserved = port;
            runtime.block_on(run_proxy(listener, &thread_shared, inbox))
        });
        Ok(Self { address, state, shared })
    }

    /// Listening address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the faults, also on open connections.
    pub fn set_faults(&self, faults: FaultConfig) {
        *self.shared.rng.lock().unwrap_or_else(PoisonError::into_inner) = Rng::with_seed(faults.seed);
        self.state.send_modify(|state| state.faults = faults);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.set_faults(FaultConfig::none());
    }

    /// Resets every open connection on both sides.
    pub fn reset_connections(&self) {
        self.state.send_modify(|state| state.reset_count += 1);
    }

    /// Connects to another server from now, and resets every open connection.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
        self.reset_connections();
    }

    /// Number of accepted connections, including those closed immediately.
    #[must_use]
    pub fn connections_accepted(&self) -> u64 {
        self.shared.connections_accepted.load(Ordering::Relaxed)
    }

    /// Number of dropped reply chunks.
    #[must_use]
    pub fn replies_dropped(&self) -> u64 {
        self.shared.replies_dropped.load(Ordering::Relaxed)
    }
}

impl FaultProxyShared {
    fn random_fraction(&self) -> f64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

/// Accepts connections until all handles are dropped. The runtime and every connection end then.
async fn run_proxy(
    listener: std::net::TcpListener,
    shared: &Arc<FaultProxyShared>,
    state: watch::Receiver<FaultProxyState>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut changes = state.clone();
    let all_dropped = async { while changes.changed().await.is_ok() {} };
    let accept = async {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            shared.connections_accepted.fetch_add(1, Ordering::Relaxed);
            let (shared, state) = (Arc::clone(shared), state.clone());
            tokio::spawn(async move {
                let mut client = client;
                if proxy_connection(&mut client, &shared, state).await.is_err() {
                    let _ = client.set_zero_linger();
                }
            });
        }
    };
    tokio::select! {
        () = all_dropped => Ok(()),
        never = accept => never,
    }
}

/// Serves one connection. The caller turns an error into a reset.
async fn proxy_connection(
    client: &mut TcpStream,
    shared: &FaultProxyShared,
    state: watch::Receiver<FaultProxyState>,
) -> io::Result<()> {
    let FaultProxyState { faults, reset_count: resets } = *state.borrow();
    if faults.cut {
        return Ok(());
    }
    client.set_nodelay(true)?;
    if faults.half_open {
        let (has_lost_bytes, mut sink) = (AtomicBool::new(true), tokio::io::sink());
        return tokio::select! {
            _ = tokio::io::copy(client, &mut sink) => Ok(()),
            ended = ended_by_state(state, resets, &has_lost_bytes) => ended,
        };
    }
    let opened_at = Instant::now();
    let upstream = *shared.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let ended =
        forward_both(client, &mut server, shared, state, OpenedState { reset_count: resets, at: opened_at }).await;
    if ended.is_err() {
        let _ = server.set_zero_linger();
    }
    ended
}

/// When a connection was opened, and how many resets came before.
#[derive(Clone, Copy)]
struct OpenedState {
    reset_count: u64,
    at: Instant,
}

async fn forward_both(
    client: &mut TcpStream,
    server: &mut TcpStream,
    shared: &FaultProxyShared,
    state: watch::Receiver<FaultProxyState>,
    opened: OpenedState,
) -> io::Result<()> {
    let has_lost_bytes = AtomicBool::new(false);
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let direction = |is_reply| ProxyDirection {
        is_reply,
        opened_at: opened.at,
        shared,
        has_lost_bytes: &has_lost_bytes,
        state: state.clone(),
    };
    let requests = direction(false).forward(from_client, to_server);
    let replies = direction(true).forward(from_server, to_client);
    tokio::select! {
        ended = async { tokio::try_join!(requests, replies) } => ended.map(|_| ()),
        ended = ended_by_state(state.clone(), opened.reset_count, &has_lost_bytes) => ended,
    }
}

/// Waits until the state ends the connection.
async fn ended_by_state(
    mut state: watch::Receiver<FaultProxyState>,
    reset_count: u64,
    has_lost_bytes: &AtomicBool,
) -> io::Result<()> {
    loop {
        let now = *state.borrow_and_update();
        let lost_bytes = !now.faults.half_open && has_lost_bytes.load(Ordering::Relaxed);
        if now.reset_count != reset_count || lost_bytes {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if now.faults.cut || state.changed().await.is_err() {
            return Ok(());
        }
    }
}
