//! The side of the home node: one connection of a remote node.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::server::{Builder, Connection, SendResponse};
use http::{Method, Response, StatusCode};
use ipseity_ledger::{SlotFeed, SlotNotice};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::message::{NOTICE, Reply, ReplyLine, Request, RequestLine};
use crate::stream::{LineReader, WINDOW_BYTES, send_lines, to_line};
use crate::tls::SitesAcceptor;

/// The path of the stream.
pub(crate) const SESSION_PATH: &str = "/v1/session";

/// Home does not process a charge that it receives later than this after it was sent. By then the remote node has decided
/// without home.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_millis(800);

/// Maximum time to send the last replies.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers a request of the site with this name.
pub type RequestHandler = Arc<dyn Fn(Arc<str>, RequestLine) -> BoxFuture<'static, ReplyLine> + Send + Sync>;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SiteSessionLimits {
    /// Maximum time until the stream is open.
    pub handshake_timeout: Duration,
    /// Maximum time without a request. Remote nodes ping more often.
    pub idle_timeout: Duration,
    /// Maximum number of requests that are processed at the same time. Further ones wait.
    pub concurrent_requests_max: usize,
}

/// Serves a connection until it ends, or until its certificate is no longer listed. After `stop`, the requests that were
/// received are answered, and the connection is closed.
pub async fn serve_session(
    socket: TcpStream,
    acceptor: SitesAcceptor,
    handler: RequestHandler,
    feed: Arc<SlotFeed>,
    limits: SiteSessionLimits,
    stop: impl Future<Output = ()>,
) {
    let opened = timeout(limits.handshake_timeout, open_stream(socket, &acceptor)).await;
    let Ok(Some((mut connection, reader, response, mut site))) = opened else {
        tracing::debug!("connection of a remote node rejected");
        return;
    };
    tracing::info!(site = site.name, "remote node connected");
    let name: Arc<str> = site.name.as_str().into();
    let reason = tokio::select! {
        reason = process_requests(name, reader, response, handler, feed, limits, stop) => Some(reason),
        () = site.removed() => None,
        () = drive(&mut connection) => Some("connection closed"),
    };
    if reason.is_some() {
        // The last replies are still to be sent.
        connection.graceful_shutdown();
        let _ = timeout(CLOSE_TIMEOUT, drive(&mut connection)).await;
    }
    let reason = reason.unwrap_or("certificate removed");
    tracing::info!(site = site.name, reason, "remote node disconnected");
}

type ServerConnection = Connection<TlsStream<TcpStream>, Bytes>;

async fn open_stream(
    socket: TcpStream,
    acceptor: &SitesAcceptor,
) -> Option<(ServerConnection, LineReader, SendResponse<Bytes>, crate::tls::ListedSite)> {
    let _ = socket.set_nodelay(true);
    let (stream, site) = acceptor.accept(socket).await?;
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(1)
        .max_header_list_size(4096);
    let mut connection = builder.handshake(stream).await.ok()?;
    let (request, mut response) = connection.accept().await?.ok()?;
    if request.method() != Method::POST || request.uri().path() != SESSION_PATH {
        let mut not_found = Response::new(());
        *not_found.status_mut() = StatusCode::NOT_FOUND;
        response.send_response(not_found, true).ok()?;
        connection.graceful_shutdown();
        drive(&mut connection).await;
        return None;
    }
    Some((connection, LineReader::new(request.into_body()), response, site))
}

/// Moves data of the connection until it closes. There are no further streams.
async fn drive(connection: &mut ServerConnection) {
    while let Some(Ok(_refused)) = connection.accept().await {}
}

async fn process_requests(
    site: Arc<str>,
    mut reader: LineReader,
    mut response: SendResponse<Bytes>,
    handler: RequestHandler,
    feed: Arc<SlotFeed>,
    limits: SiteSessionLimits,
    stop: impl Future<Output = ()>,
) -> &'static str {
    let Ok(stream) = response.send_response(Response::new(()), false) else { return "connection closed" };
    let (replies, queue) = mpsc::channel(limits.concurrent_requests_max.max(1));
    let permits = Arc::new(Semaphore::new(limits.concurrent_requests_max.max(1)));
    let (node, notice_lines) = (Arc::new(OptimisticNode::default()), replies.clone());
    let (subscribe, subscribed) = oneshot::channel();
    let receive = async {
        let (replies, mut subscribe) = (replies, Some(subscribe));
        loop {
            let Ok(line) = timeout(limits.idle_timeout, reader.next_line()).await else { return "idle" };
            let Some(line) = line else { return "stream ended" };
            let Ok(mut request) = serde_json::from_slice::<RequestLine>(&line) else { return "unknown request" };
            match &mut request.2 {
                Request::Ping => node.record_ping(request.0),
                // Before the claim is processed, so that no notice about a key that is opened after it is missed.
                Request::ClaimSlot(_) => {
                    if let Some(subscribe) = subscribe.take() {
                        let _ = subscribe.send(feed.subscribe());
                    }
                }
                Request::Charge(charge) => charge.slot = charge.slot.filter(|slot| node.has_slot(*slot)),
                Request::ChargeDemo
                | Request::FindRecord(_)
                | Request::KeyStatus(_)
                | Request::FindDemoUsage
                | Request::Reconcile(_)
                | Request::ReconcileDemo(_)
                | Request::AddRefusals(_) => {}
            }
            // The permits limit what a remote node can use of home. While there is none, its requests are not read.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return "closed" };
            let (reply, replies) = (handler(Arc::clone(&site), request), replies.clone());
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                let reply = reply.await;
                if let Reply::Slot(slot) = reply.2 {
                    node.set_slot(slot);
                }
                let line = to_line(&reply);
                // The session may have ended.
                let _ = replies.send(line).await;
                drop(permit);
            });
        }
    };
    let receive_until_stop = async {
        tokio::select! {
            reason = receive => reason,
            () = forward_notices(subscribed, &node, notice_lines) => "connection closed",
            () = stop => "draining",
        }
    };
    let mut sender = pin!(send_lines(stream, queue));
    let reason = tokio::select! {
        () = &mut sender => return "connection closed",
        reason = receive_until_stop => reason,
    };
    // Ends when the last request in progress has its reply.
    let _ = timeout(limits.handshake_timeout, sender).await;
    reason
}

/// Sends a remote node the keys that were closed, after it has claimed a slot. The lines are in the order of the notices.
async fn forward_notices(
    subscribed: oneshot::Receiver<broadcast::Receiver<SlotNotice>>,
    node: &OptimisticNode,
    lines: mpsc::Sender<Vec<u8>>,
) {
    let Ok(mut notices) = subscribed.await else { return std::future::pending().await };
    let mut last_ping = None;
    loop {
        let reply = match notices.recv().await {
            Ok(SlotNotice::Closed(key)) => Reply::KeyClosed(key.as_str().to_owned()),
            Ok(SlotNotice::CompleteUntil(instant)) => match node.newest_ping_before(instant) {
                ping @ Some(number) if ping != last_ping => {
                    last_ping = ping;
                    Reply::ChangesComplete(number)
                }
                Some(_) | None => continue,
            },
            Ok(SlotNotice::Missed) | Err(broadcast::error::RecvError::Lagged(_)) => Reply::ChangesMissed,
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        };
        if lines.send(to_line(&(NOTICE, None::<u64>, reply))).await.is_err() {
            return;
        }
    }
}

/// What a session knows of a node that admits requests before they are charged.
#[derive(Default)]
struct OptimisticNode {
    slot: Mutex<Option<u8>>,
    /// The last pings, with the time of their receipt.
    pings: Mutex<VecDeque<(Instant, u64)>>,
}

/// A remote node pings a few times while it waits for a notice.
const PINGS_MAX: usize = 64;

impl OptimisticNode {
    /// Whether the slot is the one that the node has claimed.
    fn has_slot(&self, slot: u8) -> bool {
        *lock(&self.slot) == Some(slot)
    }

    fn set_slot(&self, slot: Option<u8>) {
        *lock(&self.slot) = slot;
    }

    fn record_ping(&self, number: u64) {
        let mut pings = lock(&self.pings);
        pings.truncate(PINGS_MAX - 1);
        pings.push_front((Instant::now(), number));
    }

    fn newest_ping_before(&self, instant: Instant) -> Option<u64> {
        lock(&self.pings).iter().find(|(received, _)| *received < instant).map(|(_, number)| *number)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
