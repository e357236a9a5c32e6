//! The QUIC endpoint. Its connections share permits and limits with TCP.
//!
//! Three features of QUIC are off. A 0-RTT request can be replayed and would be charged twice. Datagrams have no use
//! here. With migration, a client could send one request from a forged address and read the facts about that address.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use ipseity_domain::Address;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::release_subnet_permit;
use crate::http::h3::Http3Connection;
use crate::identify::Peer;
use crate::quic::reuseport::{CidPrefix, PrefixedCids, attach_reuseport_bpf};
use crate::quic::session::{QUIC_V1, QuicServerCrypto};
use crate::serve::log_panic;
use crate::sys::rtt::Rtt;
use crate::watchdog::{ConnectionWatchdog, FEW_STREAMS};
use crate::{Application, CloseReason, Drain, EdgeLimits, EdgeState, TlsServerConfig};

/// Connection attempts in the queue.
const INCOMING_MAX: usize = 1024;
/// Bytes that queued connection attempts may send, each and together.
const INCOMING_BUFFER_BYTES_MAX: u64 = 16 << 10;
const INCOMING_BUFFERS_TOTAL_BYTES_MAX: u64 = 4 << 20;
/// How much a client may send before it is read, per stream and per connection. Small, because request bodies are.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of responses that may wait for a client's acknowledgment.
const SEND_WINDOW_BYTES: u64 = 256 << 10;
/// The control stream, two QPACK streams, and some reserved ones without meaning (RFC 9114, section 6.2.3).
const UNI_STREAMS_MAX: u32 = 8;
/// HTTP/3's H3_NO_ERROR.
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// A bound UDP socket.
pub struct QuicListener {
    socket: UdpSocket,
    cid_prefix: CidPrefix,
}

impl QuicListener {
    /// Binds an address. `[::]` accepts IPv4 too if the system is configured so.
    ///
    /// With `reuse_port`, a second process of the same user may bind the address to take over. It then receives all new
    /// connections, and the first process keeps its open ones.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_port(reuse_port)?;
        socket.bind(&address.into())?;
        let (socket, cid_prefix) = (socket.into(), CidPrefix::new());
        if reuse_port {
            attach_reuseport_bpf(&socket, cid_prefix)?;
        }
        Ok(Self { socket, cid_prefix })
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Serves HTTP/3 on a UDP socket. Needs a running tokio runtime.
///
/// When the drain starts, it refuses new connections, lets open requests finish, and returns when all connections have
/// ended. Connections that are still open after `drain_timeout` are dropped.
pub async fn serve_quic<S: Application>(
    listener: QuicListener,
    tls: TlsServerConfig,
    edge: Arc<EdgeState>,
    application: S,
    drain: Drain,
) -> io::Result<()> {
    let mut config = EndpointConfig::default();
    let cid_prefix = listener.cid_prefix;
    config.supported_versions(vec![QUIC_V1]).cid_generator(move || Box::new(PrefixedCids::new(cid_prefix)));
    let server = server_config(tls, &edge.limits);
    let endpoint = Endpoint::new(config, Some(server), listener.socket, Arc::new(TokioRuntime))?;
    let mut acceptor =
        QuicAcceptor { edge, application, drain: drain.clone(), connections: JoinSet::new(), handshakes: Arc::new(()) };
    loop {
        tokio::select! {
            () = drain.started() => break,
            Some(ended) = acceptor.connections.join_next() => log_panic(ended),
            Some(incoming) = endpoint.accept() => acceptor.accept(incoming),
        }
    }
    let QuicAcceptor { edge, mut connections, .. } = acceptor;
    let all_ended = async {
        while !connections.is_empty() {
            tokio::select! {
                Some(ended) = connections.join_next() => log_panic(ended),
                // Refused without delay, so that the client tries TCP.
                Some(incoming) = endpoint.accept() => incoming.refuse(),
            }
        }
        endpoint.wait_idle().await;
    };
    if timeout(edge.limits.drain_timeout, all_ended).await.is_err() {
        edge.stats().record_closed(CloseReason::DrainTimeout, connections.len());
        connections.shutdown().await;
    }
    endpoint.close(H3_NO_ERROR, b"");
    Ok(())
}

fn server_config(tls: TlsServerConfig, limits: &EdgeLimits) -> ServerConfig {
    let mut transport = TransportConfig::default();
    transport
        // More after the handshake, if there is memory.
        .max_concurrent_bidi_streams(limits.streams_max.min(FEW_STREAMS).into())
        .max_concurrent_uni_streams(UNI_STREAMS_MAX.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(IdleTimeout::try_from(limits.idle_timeout).ok())
        .datagram_receive_buffer_size(None);
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerCrypto::new(tls.quic_config)));
    config
        .transport_config(Arc::new(transport))
        .migration(false)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BUFFER_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BUFFERS_TOTAL_BYTES_MAX);
    config
}

struct QuicAcceptor<S> {
    edge: Arc<EdgeState>,
    application: S,
    drain: Drain,
    connections: JoinSet<()>,
    /// Cloned into every running handshake, to count them.
    handshakes: Arc<()>,
}

impl<S: Application> QuicAcceptor<S> {
    /// Accepts a connection if permits are left. Under load, the client must have validated its address.
    fn accept(&mut self, incoming: Incoming) {
        let handshake_count = Arc::strong_count(&self.handshakes) - 1;
        if handshake_count >= self.edge.limits.quic_retry_threshold && !incoming.remote_address_validated() {
            self.edge.stats().quic_retries.add(1);
            // Fails only if the address is already validated.
            let _ = incoming.retry();
            return;
        }
        let Some(permit) = self.edge.try_acquire_connection_permit() else {
            incoming.refuse();
            return;
        };
        let address = Address::new(incoming.remote_address().ip());
        let Ok(subnet_permit) = self.edge.acquire_subnet_permit(address) else {
            self.edge.stats().record_closed(CloseReason::SubnetLimit, 1);
            incoming.refuse();
            return;
        };
        let permit = permit.into_open_connection(&self.edge);
        let (edge, application, drain) = (Arc::clone(&self.edge), self.application.clone(), self.drain.clone());
        let handshake_count = Arc::clone(&self.handshakes);
        self.connections.spawn(async move {
            let connection = handshake(incoming, &edge).await;
            drop(handshake_count);
            let limits = edge.limits.clone();
            let watchdog = Arc::new(ConnectionWatchdog::new(Arc::clone(&edge)));
            if let Some(connection) = connection {
                let tls_session = connection.handshake_data().and_then(|tls_session| tls_session.downcast().ok());
                let rtt = Rtt::quic(connection.clone());
                let peer =
                    Peer { edge, address, proxy_header: None, tls: tls_session.map(|tls_session| *tls_session), rtt };
                watchdog.set_client_network(subnet_permit.as_ref());
                let watchdog = Arc::clone(&watchdog);
                Http3Connection { application, peer, watchdog, drain }.serve(connection).await;
            }
            drop(permit);
            release_subnet_permit(subnet_permit, &watchdog, &limits);
        });
    }
}

async fn handshake(incoming: Incoming, edge: &EdgeState) -> Option<quinn::Connection> {
    match timeout(edge.limits.handshake_timeout, incoming.into_future()).await {
        Ok(Ok(connection)) => return Some(connection),
        Ok(Err(_failed)) => edge.stats().handshakes_failed.add(1),
        Err(_elapsed) => edge.stats().record_closed(CloseReason::HandshakeTimeout, 1),
    }
    None
}
