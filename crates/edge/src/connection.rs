//! One connection from its first byte to its last. The protocol is told by ALPN or by the preface, always under a deadline.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::Address;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::crowd::Place;
use crate::edge::Occupied;
use crate::identify::Peer;
use crate::proxy_header::Announcement;
use crate::service::{Application, Identified};
use crate::socket::Socket;
use crate::tls::{self, ALPN_ACME, ALPN_HTTP2};
use crate::vigil::Vigil;
use crate::{Bound, Bounds, Drain, Edge, Tls, Transport};

/// The least that hyper takes for an HTTP/1 buffer.
const BUFFER_BYTES_MIN: usize = 8192;
/// hyper's own bound on header lines: it has the room for these ready, and would fill one of any other size for every request.
const HEADER_LINES_READY: usize = 100;
/// What an HTTP/2 client may send ahead of being read: bodies of requests are of no use here.
const WINDOW_BYTES: u32 = 65_535;

/// How long a draining HTTP/1 connection waits for one more request, whose answer tells the client to close. Closing it
/// at once would cost the client a request that is on its way.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// What a connection needs of its listener.
#[derive(Clone)]
pub(crate) struct House<S> {
    pub(crate) transport: Transport,
    pub(crate) edge: Arc<Edge>,
    pub(crate) application: S,
    pub(crate) drain: Drain,
}

impl<S: Application> House<S> {
    /// Serves an accepted connection until it ends, or a bound ends it; its seat is taken until then.
    pub(crate) async fn receive(self, stream: TcpStream, address: Address, _seat: Occupied) {
        let edge = Arc::clone(&self.edge);
        let Ok(place) = edge.admit(address) else { return edge.stats().close(Bound::Network, 1) };
        // Fails only for a peer that has gone already, which the first read will tell.
        let _ = stream.set_nodelay(true);
        if timeout(edge.bounds.first_byte_timeout, stream.peek(&mut [0])).await.is_err() {
            return edge.stats().close(Bound::FirstByte, 1);
        }
        let bounds = edge.bounds.clone();
        let vigil = Arc::new(Vigil::new(Arc::clone(&edge)));
        let socket = Socket::new(stream, Arc::clone(&vigil));
        let peer = Peer { edge, address, announced: None, tls: None, rtt: socket.rtt() };
        // Each in its own memory: a connection that waits holds what its own way needs, not what the largest of all does.
        match self.transport.clone() {
            Transport::Clear => Box::pin(self.receive_clear(socket, peer, Arc::clone(&vigil))).await,
            Transport::Tls(tls) => Box::pin(self.receive_tls(tls, socket, peer, Arc::clone(&vigil))).await,
            Transport::Announced(inner) => {
                Box::pin(self.receive_announced(*inner, socket, peer, Arc::clone(&vigil))).await;
            }
        }
        free(place, &vigil, &bounds);
    }

    /// Reads the PROXY header, and goes on with whom it names in the peer's place.
    async fn receive_announced(self, inner: Transport, mut socket: Socket, mut peer: Peer, vigil: Arc<Vigil>) {
        let edge = Arc::clone(&self.edge);
        let refuse = || edge.stats().close(Bound::ProxyHeader, 1);
        if !edge.trust.holds(peer.address) {
            return refuse();
        }
        let header = socket.announcement(edge.bounds.proxy_header_bytes_max);
        let Ok(Ok(Some(announcement))) = timeout(edge.bounds.first_byte_timeout, header).await else { return refuse() };
        if let Announcement::Client(client) = &announcement {
            peer.address = client.address;
        }
        peer.announced = Some(announcement);
        let Ok(place) = edge.admit(peer.address) else { return edge.stats().close(Bound::Network, 1) };
        match inner {
            Transport::Clear => Box::pin(self.receive_clear(socket, peer, Arc::clone(&vigil))).await,
            Transport::Tls(tls) => Box::pin(self.receive_tls(tls, socket, peer, Arc::clone(&vigil))).await,
            // One header is what any proxy sends; a second one would be the client's own.
            Transport::Announced(_) => refuse(),
        }
        free(place, &vigil, &edge.bounds);
    }

    async fn receive_clear(self, mut socket: Socket, peer: Peer, vigil: Arc<Vigil>) {
        match timeout(self.edge.bounds.header_timeout, socket.begins_http2()).await {
            Ok(Ok(is_http2)) => Box::pin(self.converse(socket, is_http2, peer, vigil)).await,
            Ok(Err(_gone)) => {}
            Err(_late) => self.edge.stats().close(Bound::Header, 1),
        }
    }

    async fn receive_tls(self, tls: Tls, socket: Socket, mut peer: Peer, vigil: Arc<Vigil>) {
        // In memory of its own as well, which goes with the end of the handshake.
        let handshake = Box::pin(tls.acceptor.accept(socket));
        match timeout(self.edge.bounds.handshake_timeout, handshake).await {
            Ok(Ok(mut stream)) => {
                let session = stream.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
                if session.alpn_protocol() == Some(ALPN_ACME) {
                    // The handshake was all that the authority came for (RFC 8737, section 3).
                    return;
                }
                peer.tls = tls::session(session.protocol_version(), session.negotiated_cipher_suite());
                vigil.ready();
                // HTTP's buffers are not made before there is something to put into them: idle sessions are cheap to hold, and
                // so must they be for us.
                match timeout(self.edge.bounds.header_timeout, stream.fill_buf()).await {
                    Ok(Ok(_begun)) => Box::pin(self.converse(stream, is_http2, peer, vigil)).await,
                    Ok(Err(_gone)) => {}
                    Err(_late) => self.edge.stats().close(Bound::Header, 1),
                }
            }
            Ok(Err(_failed)) => self.edge.stats().handshakes_failed.add(1),
            Err(_late) => self.edge.stats().close(Bound::Handshake, 1),
        }
    }

    async fn converse<I>(self, io: I, is_http2: bool, peer: Peer, vigil: Arc<Vigil>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { edge, application, drain, transport } = self;
        let alternative = match transport {
            Transport::Tls(tls) => tls.alternative,
            Transport::Clear | Transport::Announced(_) => None,
        };
        let service = Identified { application, peer, vigil: Arc::clone(&vigil), alternative, drain: drain.clone() };
        let io = TokioIo::new(io);
        if is_http2 {
            let connection = http2_builder(&edge.bounds).serve_connection(io, service);
            attend(connection, &edge, &vigil, &drain, Duration::ZERO).await;
        } else {
            vigil.speaks_http1();
            let connection = http1_builder(&edge.bounds).serve_connection(io, service);
            attend(connection, &edge, &vigil, &drain, LAST_REQUEST).await;
        }
    }
}

/// Gives a connection's place free; one that flooded us keeps it for a while, so that its neighbourhood runs out of them.
fn free(place: Option<Place>, vigil: &Vigil, bounds: &Bounds) {
    if vigil.flood().is_some() {
        let penalty = bounds.flood_penalty;
        tokio::spawn(async move {
            sleep(penalty).await;
            drop(place);
        });
    }
}

fn http1_builder(bounds: &Bounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The vigil has an eye on how long a header takes: it needs no timer of its own for every request.
    builder
        .header_read_timeout(None)
        .max_header_size(bounds.header_bytes_max)
        .max_buf_size(bounds.header_bytes_max.max(BUFFER_BYTES_MIN));
    if bounds.header_lines_max != HEADER_LINES_READY {
        builder.max_headers(bounds.header_lines_max);
    }
    builder
}

fn http2_builder(bounds: &Bounds) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // No pings of our own: a peer that answers them may still be idle, and one that does not is found by its bounds.
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams_max)
        .max_header_list_size(u32::try_from(bounds.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(bounds.resets_max)
        .max_local_error_reset_streams(bounds.resets_max)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}

/// Whether HTTP/2 was ended from our side, which the library does to whoever breaks a rule or a bound of its own.
fn is_goodbye(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.is_library())
}

/// Drives a connection to its end: its own, the drain's, or that of a broken bound, which is counted once.
async fn attend<C>(connection: C, edge: &Edge, vigil: &Vigil, drain: &Drain, last_request: Duration)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut connection = pin!(connection);
    // A connection that has asked nothing yet may have its first request on the way: it is answered before it must go.
    let mut drained = pin!(async {
        drain.started().await;
        vigil.asked().await;
        sleep(last_request).await;
    });
    let mut leaving = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if ended.is_err_and(|error| is_goodbye(&error)) {
                    vigil.break_protocol();
                }
                if let Some(bound) = vigil.flood() {
                    edge.stats().close(bound, 1);
                }
                return;
            }
            () = drained.as_mut(), if !leaving => {}
            bound = vigil.broken() => {
                if leaving {
                    return;
                }
                edge.stats().close(bound, 1);
                if bound != Bound::Idle {
                    return;
                }
            }
        }
        leaving = true;
        vigil.leave();
        connection.as_mut().graceful_shutdown();
    }
}
