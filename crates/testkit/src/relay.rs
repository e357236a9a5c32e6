//! A faulty line to a store: a TCP relay that delays, throttles, swallows, cuts and resets as it is told while it runs.
//!
//! A stream that has lost bytes is never handed on: its connection ends by a reset, at once or when the bytes flow again. On a thread of its
//! own, so that it serves tests with runtimes of their own, and one that blocks.

mod way;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use self::way::Way;
use crate::ports::Port;

/// Whoever calls while no file is free waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What is wrong with a line; all of it may be at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// How long every chunk takes, each way.
    pub delay: Duration,
    /// How much longer a chunk takes at most; chunks stay in order.
    pub jitter: Duration,
    /// Every connection is closed, and new ones are at once.
    pub cut: bool,
    /// Every byte is swallowed in both directions, the ends of streams too, while connections stay open and new ones are taken. A
    /// connection that lost something is reset when this is over.
    pub half_open: bool,
    /// How likely a chunk of reply is swallowed and its connection reset: the request has arrived, and its answer is lost.
    pub dropped_replies: f64,
    /// The most that passes on a connection in each direction.
    pub bytes_per_second: Option<NonZeroU32>,
    /// The dice for jitter and dropped replies.
    pub seed: u64,
}

impl Faults {
    /// A line that only passes on.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            cut: false,
            half_open: false,
            dropped_replies: 0.0,
            bytes_per_second: None,
            seed: 0,
        }
    }
}

/// A running relay, as many hold it as like; connections and thread are gone when the last one lets go.
#[derive(Debug, Clone)]
pub struct Relay {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    wire: Arc<Wire>,
}

#[derive(Debug, Clone, Copy)]
struct Orders {
    faults: Faults,
    /// How often all connections were reset.
    resets: u64,
}

#[derive(Debug)]
struct Wire {
    upstream: SocketAddr,
    dice: Mutex<Rng>,
    connections: AtomicU64,
    replies_dropped: AtomicU64,
}

impl Relay {
    /// Opens a faultless relay to a server, which need not run yet.
    pub fn open(upstream: SocketAddr) -> Result<Self> {
        let port = Port::open()?;
        let address = port.address();
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, inbox) = watch::channel(Orders { faults: Faults::none(), resets: 0 });
        let wire = Arc::new(Wire {
            upstream,
            dice: Mutex::new(Rng::with_seed(0)),
            connections: AtomicU64::new(0),
            replies_dropped: AtomicU64::new(0),
        });
        let for_thread = Arc::clone(&wire);
        thread::spawn(move || {
            let _reserved = port;
            runtime.block_on(serve(listener, &for_thread, inbox))
        });
        Ok(Self { address, orders, wire })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has these faults from now on, on open connections too, and no others.
    pub fn set(&self, faults: Faults) {
        *self.wire.dice.lock().unwrap_or_else(PoisonError::into_inner) = Rng::with_seed(faults.seed);
        self.orders.send_modify(|orders| orders.faults = faults);
    }

    /// Has no faults any more.
    pub fn heal(&self) {
        self.set(Faults::none());
    }

    /// Resets every connection that is open now, on both sides.
    pub fn reset(&self) {
        self.orders.send_modify(|orders| orders.resets += 1);
    }

    /// How many connections were taken, those that were closed at once included.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.wire.connections.load(Ordering::Relaxed)
    }

    /// How many chunks of reply were dropped.
    #[must_use]
    pub fn replies_dropped(&self) -> u64 {
        self.wire.replies_dropped.load(Ordering::Relaxed)
    }
}

impl Wire {
    fn roll(&self) -> f64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

/// Takes connections until nobody is left who could give orders; the runtime, and every connection with it, ends then.
async fn serve(listener: std::net::TcpListener, wire: &Arc<Wire>, orders: watch::Receiver<Orders>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut own = orders.clone();
    let abandoned = async { while own.changed().await.is_ok() {} };
    let accept = async {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            wire.connections.fetch_add(1, Ordering::Relaxed);
            let (wire, orders) = (Arc::clone(wire), orders.clone());
            tokio::spawn(async move {
                let mut client = client;
                if connect_and_carry(&mut client, &wire, orders).await.is_err() {
                    let _ = client.set_zero_linger();
                }
            });
        }
    };
    tokio::select! {
        () = abandoned => Ok(()),
        never = accept => never,
    }
}

/// Carries a connection to its end; an error is to be passed on as a reset.
async fn connect_and_carry(client: &mut TcpStream, wire: &Wire, orders: watch::Receiver<Orders>) -> io::Result<()> {
    let Orders { faults, resets } = *orders.borrow();
    if faults.cut {
        return Ok(());
    }
    client.set_nodelay(true)?;
    if faults.half_open {
        let (has_lost, mut nowhere) = (AtomicBool::new(true), tokio::io::sink());
        return tokio::select! {
            _ = tokio::io::copy(client, &mut nowhere) => Ok(()),
            ended = ended_by_order(orders, resets, &has_lost) => ended,
        };
    }
    let mut server = TcpStream::connect(wire.upstream).await?;
    server.set_nodelay(true)?;
    let ended = carry(client, &mut server, wire, orders, resets).await;
    if ended.is_err() {
        let _ = server.set_zero_linger();
    }
    ended
}

async fn carry(
    client: &mut TcpStream,
    server: &mut TcpStream,
    wire: &Wire,
    orders: watch::Receiver<Orders>,
    resets: u64,
) -> io::Result<()> {
    let has_lost = AtomicBool::new(false);
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let way = |is_reply| Way { is_reply, wire, has_lost: &has_lost, orders: orders.clone() };
    let there = way(false).pass(from_client, to_server);
    let back = way(true).pass(from_server, to_client);
    tokio::select! {
        ended = async { tokio::try_join!(there, back) } => ended.map(|_| ()),
        ended = ended_by_order(orders.clone(), resets, &has_lost) => ended,
    }
}

/// Waits for an order that ends a connection.
async fn ended_by_order(mut orders: watch::Receiver<Orders>, resets: u64, has_lost: &AtomicBool) -> io::Result<()> {
    loop {
        let now = *orders.borrow_and_update();
        let heals_too_late = !now.faults.half_open && has_lost.load(Ordering::Relaxed);
        if now.resets != resets || heals_too_late {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if now.faults.cut || orders.changed().await.is_err() {
            return Ok(());
        }
    }
}
