//! One connection from its first byte to its last. The protocol is told by ALPN or by the preface, always under a deadline.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use ipseity_domain::Address;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::service::{Application, ConnectionService};
use crate::identify::Peer;
use crate::proxy::protocol::ProxyHeader;
use crate::socket::AcceptedSocket;
use crate::state::OpenConnection;
use crate::subnet_limit::SubnetPermit;
use crate::tls::{self, ALPN_ACME, ALPN_HTTP2};
use crate::watchdog::ConnectionWatchdog;
use crate::{CloseReason, Drain, EdgeLimits, EdgeState, TlsServerConfig, Transport};

/// The least that hyper takes for an HTTP/1 buffer.
const HTTP1_BUFFER_BYTES_MIN: usize = 8192;
/// hyper's own bound on header lines: it has the room for these ready, and would fill one of any other size for every request.
const HYPER_DEFAULT_HEADERS_MAX: usize = 100;
/// What an HTTP/2 client may send ahead of being read: bodies of requests are of no use here.
const HTTP2_WINDOW_BYTES: u32 = 65_535;

/// How long a draining HTTP/1 connection waits for one more request, whose answer tells the client to close. Closing it
/// at once would cost the client a request that is on its way.
const HTTP1_DRAIN_GRACE: Duration = Duration::from_secs(1);

/// What a connection needs of its listener.
#[derive(Clone)]
pub(crate) struct ListenerContext<S> {
    pub(crate) transport: Transport,
    pub(crate) edge: Arc<EdgeState>,
    pub(crate) application: S,
    pub(crate) drain: Drain,
}

impl<S: Application> ListenerContext<S> {
    /// Serves an accepted connection until it ends, or a bound ends it; its seat is taken until then.
    pub(crate) async fn serve_connection(self, stream: TcpStream, address: Address, _open_connection: OpenConnection) {
        let edge = Arc::clone(&self.edge);
        let Ok(subnet_permit) = edge.acquire_subnet_permit(address) else {
            return edge.stats().record_closed(CloseReason::SubnetLimit, 1);
        };
        // Fails only for a peer that has gone already, which the first read will tell.
        let _ = stream.set_nodelay(true);
        if timeout(edge.limits.first_byte_timeout, stream.peek(&mut [0])).await.is_err() {
            return edge.stats().record_closed(CloseReason::FirstByteTimeout, 1);
        }
        let limits = edge.limits.clone();
        let watchdog = Arc::new(ConnectionWatchdog::new(Arc::clone(&edge)));
        let socket = AcceptedSocket::new(stream, Arc::clone(&watchdog));
        let peer = Peer { edge, address, proxy_header: None, tls: None, rtt: socket.rtt() };
        // Each in its own memory: a connection that waits holds what its own way needs, not what the largest of all does.
        match self.transport.clone() {
            Transport::Plaintext => Box::pin(self.serve_plaintext(socket, peer, Arc::clone(&watchdog))).await,
            Transport::Tls(tls) => Box::pin(self.serve_tls(tls, socket, peer, Arc::clone(&watchdog))).await,
            Transport::ProxyProtocol(inner) => {
                Box::pin(self.serve_proxy_protocol(*inner, socket, peer, Arc::clone(&watchdog))).await;
            }
        }
        release_subnet_permit(subnet_permit, &watchdog, &limits);
    }

    /// Reads the PROXY header, and goes on with whom it names in the peer's place.
    async fn serve_proxy_protocol(
        self,
        inner: Transport,
        mut socket: AcceptedSocket,
        mut peer: Peer,
        watchdog: Arc<ConnectionWatchdog>,
    ) {
        let edge = Arc::clone(&self.edge);
        let refuse = || edge.stats().record_closed(CloseReason::InvalidProxyHeader, 1);
        if !edge.trust.is_trusted(peer.address) {
            return refuse();
        }
        let header_future = socket.read_proxy_header(edge.limits.proxy_header_bytes_max);
        let Ok(Ok(Some(proxy_header))) = timeout(edge.limits.first_byte_timeout, header_future).await else {
            return refuse();
        };
        if let ProxyHeader::Client(client) = &proxy_header {
            peer.address = client.address;
        }
        peer.proxy_header = Some(proxy_header);
        let Ok(subnet_permit) = edge.acquire_subnet_permit(peer.address) else {
            return edge.stats().record_closed(CloseReason::SubnetLimit, 1);
        };
        match inner {
            Transport::Plaintext => Box::pin(self.serve_plaintext(socket, peer, Arc::clone(&watchdog))).await,
            Transport::Tls(tls) => Box::pin(self.serve_tls(tls, socket, peer, Arc::clone(&watchdog))).await,
            // One header is what any proxy sends; a second one would be the client's own.
            Transport::ProxyProtocol(_) => refuse(),
        }
        release_subnet_permit(subnet_permit, &watchdog, &edge.limits);
    }

    async fn serve_plaintext(self, mut socket: AcceptedSocket, peer: Peer, watchdog: Arc<ConnectionWatchdog>) {
        match timeout(self.edge.limits.header_timeout, socket.has_http2_preface()).await {
            Ok(Ok(is_http2)) => Box::pin(self.serve_http(socket, is_http2, peer, watchdog)).await,
            Ok(Err(_gone)) => {}
            Err(_late) => self.edge.stats().record_closed(CloseReason::HeaderTimeout, 1),
        }
    }

    async fn serve_tls(
        self,
        tls: TlsServerConfig,
        socket: AcceptedSocket,
        mut peer: Peer,
        watchdog: Arc<ConnectionWatchdog>,
    ) {
        // In memory of its own as well, which goes with the end of the handshake.
        let handshake = Box::pin(tls.acceptor.accept(socket));
        match timeout(self.edge.limits.handshake_timeout, handshake).await {
            Ok(Ok(mut stream)) => {
                let session = stream.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
                if session.alpn_protocol() == Some(ALPN_ACME) {
                    // The handshake was all that the authority came for (RFC 8737, section 3).
                    return;
                }
                peer.tls = tls::negotiated_session(session.protocol_version(), session.negotiated_cipher_suite());
                watchdog.mark_ready();
                // HTTP's buffers are not made before there is something to put into them: idle sessions are cheap to hold, and
                // so must they be for us.
                match timeout(self.edge.limits.header_timeout, stream.fill_buf()).await {
                    Ok(Ok(_begun)) => Box::pin(self.serve_http(stream, is_http2, peer, watchdog)).await,
                    Ok(Err(_gone)) => {}
                    Err(_late) => self.edge.stats().record_closed(CloseReason::HeaderTimeout, 1),
                }
            }
            Ok(Err(_failed)) => self.edge.stats().handshakes_failed.add(1),
            Err(_late) => self.edge.stats().record_closed(CloseReason::HandshakeTimeout, 1),
        }
    }

    async fn serve_http<I>(self, io: I, is_http2: bool, peer: Peer, watchdog: Arc<ConnectionWatchdog>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { edge, application, drain, transport } = self;
        let alt_svc = match transport {
            Transport::Tls(tls) => tls.alt_svc,
            Transport::Plaintext | Transport::ProxyProtocol(_) => None,
        };
        let service =
            ConnectionService { application, peer, watchdog: Arc::clone(&watchdog), alt_svc, drain: drain.clone() };
        let io = TokioIo::new(io);
        if is_http2 {
            let connection = http2_builder(&edge.limits).serve_connection(io, service);
            drive(connection, &edge, &watchdog, &drain, Duration::ZERO).await;
        } else {
            watchdog.mark_http1();
            let connection = http1_builder(&edge.limits).serve_connection(io, service);
            drive(connection, &edge, &watchdog, &drain, HTTP1_DRAIN_GRACE).await;
        }
    }
}

/// Gives a connection's place free; one that flooded us keeps it for a while, so that its neighbourhood runs out of them.
fn release_subnet_permit(subnet_permit: Option<SubnetPermit>, watchdog: &ConnectionWatchdog, limits: &EdgeLimits) {
    if watchdog.flood_reason().is_some() {
        let penalty = limits.flood_penalty;
        tokio::spawn(async move {
            sleep(penalty).await;
            drop(subnet_permit);
        });
    }
}

fn http1_builder(limits: &EdgeLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The vigil has an eye on how long a header takes: it needs no timer of its own for every request.
    builder
        .header_read_timeout(None)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(limits.header_bytes_max.max(HTTP1_BUFFER_BYTES_MIN));
    if limits.headers_max != HYPER_DEFAULT_HEADERS_MAX {
        builder.max_headers(limits.headers_max);
    }
    builder
}

fn http2_builder(limits: &EdgeLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // No pings of our own: a peer that answers them may still be idle, and one that does not is found by its bounds.
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(limits.resets_max)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES);
    builder
}

/// Whether HTTP/2 was ended from our side, which the library does to whoever breaks a rule or a bound of its own.
fn is_local_goaway(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.is_library())
}

/// Drives a connection to its end: its own, the drain's, or that of a broken bound, which is counted once.
async fn drive<C>(connection: C, edge: &EdgeState, watchdog: &ConnectionWatchdog, drain: &Drain, drain_grace: Duration)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut connection = pin!(connection);
    // A connection that has asked nothing yet may have its first request on the way: it is answered before it must go.
    let mut drained = pin!(async {
        drain.started().await;
        watchdog.wait_first_request().await;
        sleep(drain_grace).await;
    });
    let mut is_closing = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if ended.is_err_and(|error| is_local_goaway(&error)) {
                    watchdog.record_protocol_error();
                }
                if let Some(reason) = watchdog.flood_reason() {
                    edge.stats().record_closed(reason, 1);
                }
                return;
            }
            () = drained.as_mut(), if !is_closing => {}
            reason = watchdog.expired() => {
                if is_closing {
                    return;
                }
                edge.stats().record_closed(reason, 1);
                if reason != CloseReason::IdleTimeout {
                    return;
                }
            }
        }
        is_closing = true;
        watchdog.mark_closing();
        connection.as_mut().graceful_shutdown();
    }
}
