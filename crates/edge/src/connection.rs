//! One TCP connection. ALPN or the HTTP/2 preface selects the protocol, within a timeout.

use std::sync::Arc;

use ipseity_domain::{Address, RequestError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::h1h2;
use crate::http::refusal::{encode_http1, linger};
use crate::http::service::{Application, ConnectionService};
use crate::identify::Peer;
use crate::proxy::protocol::ProxyHeader;
use crate::socket::AcceptedSocket;
use crate::state::OpenConnection;
use crate::subnet_limit::SubnetPermit;
use crate::tls::resolver::ALPN_ACME;
use crate::tls::{self, ALPN_HTTP2};
use crate::watchdog::ConnectionWatchdog;
use crate::{CloseReason, Drain, EdgeLimits, EdgeState, TlsServerConfig};

/// What a listener's connections carry below HTTP.
#[derive(Clone)]
pub enum Transport {
    /// No encryption: HTTP/1.1, or HTTP/2 with prior knowledge.
    Plaintext,
    /// TLS: HTTP/1.1 or HTTP/2, negotiated by ALPN.
    Tls(TlsServerConfig),
    /// A PROXY header, accepted from trusted proxies only, followed by one of the others.
    ProxyProtocol(Box<Self>),
}

/// What a connection needs from its listener.
#[derive(Clone)]
pub(crate) struct ListenerContext<S> {
    pub(crate) transport: Transport,
    pub(crate) edge: Arc<EdgeState>,
    pub(crate) application: S,
    pub(crate) drain: Drain,
}

impl<S: Application> ListenerContext<S> {
    /// Serves an accepted connection until it ends or exceeds a limit. It holds its connection permit until then.
    pub(crate) async fn serve_connection(self, stream: TcpStream, address: Address, _open_connection: OpenConnection) {
        let edge = Arc::clone(&self.edge);
        let Ok(subnet_permit) = edge.acquire_subnet_permit(address) else {
            return edge.refuse_for_subnet_limit(&self.drain).await;
        };
        // Fails only if the peer has already disconnected, which the first read reports.
        let _ = stream.set_nodelay(true);
        if timeout(edge.limits.first_byte_timeout, stream.peek(&mut [0])).await.is_err() {
            return edge.stats().record_closed(CloseReason::FirstByteTimeout, 1);
        }
        let limits = edge.limits.clone();
        let watchdog = Arc::new(ConnectionWatchdog::new(Arc::clone(&edge)));
        let socket = AcceptedSocket::new(stream, Arc::clone(&watchdog));
        let peer = Peer { edge, address, proxy_header: None, tls: None, rtt: socket.rtt() };
        // Boxed separately, so that a waiting connection takes the memory of its transport and not of the largest one.
        match self.transport.clone() {
            Transport::Plaintext => {
                watchdog.set_client_network(subnet_permit.as_ref());
                Box::pin(self.serve_plaintext(socket, peer, Arc::clone(&watchdog))).await;
            }
            Transport::Tls(tls) => {
                watchdog.set_client_network(subnet_permit.as_ref());
                Box::pin(self.serve_tls(tls, socket, peer, Arc::clone(&watchdog))).await;
            }
            Transport::ProxyProtocol(inner) => {
                Box::pin(self.serve_proxy_protocol(*inner, socket, peer, Arc::clone(&watchdog))).await;
            }
        }
        release_subnet_permit(subnet_permit, &watchdog, &limits);
    }

    /// Reads the PROXY header and replaces the peer's address with the client's.
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
            return edge.refuse_for_subnet_limit(&self.drain).await;
        };
        watchdog.set_client_network(subnet_permit.as_ref());
        match inner {
            Transport::Plaintext => Box::pin(self.serve_plaintext(socket, peer, Arc::clone(&watchdog))).await,
            Transport::Tls(tls) => Box::pin(self.serve_tls(tls, socket, peer, Arc::clone(&watchdog))).await,
            // Every proxy sends one header. A second one would come from the client.
            Transport::ProxyProtocol(_) => refuse(),
        }
        release_subnet_permit(subnet_permit, &watchdog, &edge.limits);
    }

    async fn serve_plaintext(self, mut socket: AcceptedSocket, peer: Peer, watchdog: Arc<ConnectionWatchdog>) {
        match timeout(self.edge.limits.header_timeout, socket.has_http2_preface()).await {
            Ok(Ok(is_http2)) => Box::pin(h1h2::serve(socket, is_http2, self.into_service(peer, watchdog))).await,
            Ok(Err(_disconnected)) => {}
            Err(_elapsed) => self.edge.stats().record_closed(CloseReason::HeaderTimeout, 1),
        }
    }

    async fn serve_tls(
        self,
        tls: TlsServerConfig,
        socket: AcceptedSocket,
        mut peer: Peer,
        watchdog: Arc<ConnectionWatchdog>,
    ) {
        match timeout(self.edge.limits.handshake_timeout, socket.peek_byte()).await {
            // No TLS record starts with a letter, and every HTTP request does.
            Ok(Ok(byte)) if byte.is_ascii_uppercase() => return self.refuse_plain_http(socket).await,
            Ok(Ok(_) | Err(_)) => {}
            Err(_elapsed) => return self.edge.stats().record_closed(CloseReason::HandshakeTimeout, 1),
        }
        // Boxed, so that its memory is freed when the handshake ends.
        let handshake = Box::pin(tls.acceptor.accept(socket));
        match timeout(self.edge.limits.handshake_timeout, handshake).await {
            Ok(Ok(mut stream)) => {
                let session = stream.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
                if session.alpn_protocol() == Some(ALPN_ACME) {
                    // The certificate authority needs only the handshake (RFC 8737, section 3).
                    return;
                }
                peer.tls = tls::negotiated_session(session.protocol_version(), session.negotiated_cipher_suite());
                watchdog.mark_ready();
                // HTTP buffers are allocated when the first byte arrives. Idle sessions cost a client little to hold,
                // so they must cost us little too.
                match timeout(self.edge.limits.header_timeout, stream.fill_buf()).await {
                    Ok(Ok(_first_bytes)) => {
                        Box::pin(h1h2::serve(stream, is_http2, self.into_service(peer, watchdog))).await;
                    }
                    Ok(Err(_disconnected)) => {}
                    Err(_elapsed) => self.edge.stats().record_closed(CloseReason::HeaderTimeout, 1),
                }
            }
            Ok(Err(_failed)) => self.edge.stats().handshakes_failed.add(1),
            Err(_elapsed) => self.edge.stats().record_closed(CloseReason::HandshakeTimeout, 1),
        }
    }

    /// Answers plain HTTP on a port for TLS, so that the client learns its mistake.
    async fn refuse_plain_http(self, mut socket: AcceptedSocket) {
        let refusal = encode_http1(&self.application.refuse(RequestError::PlainHttp));
        // The send buffer of a new socket is larger than this. An error means that the client has gone.
        if socket.write_all(&refusal).await.is_ok() {
            linger(socket).await;
        }
    }

    fn into_service(self, peer: Peer, watchdog: Arc<ConnectionWatchdog>) -> ConnectionService<S> {
        let alt_svc = match self.transport {
            Transport::Tls(tls) => tls.alt_svc,
            Transport::Plaintext | Transport::ProxyProtocol(_) => None,
        };
        ConnectionService { application: self.application, peer, watchdog, alt_svc, drain: self.drain }
    }
}

/// Releases the subnet permit. After a flood, or without memory, it stays taken for a penalty time, so that the subnet reaches
/// its limit.
pub(crate) fn release_subnet_permit(
    subnet_permit: Option<SubnetPermit>,
    watchdog: &ConnectionWatchdog,
    limits: &EdgeLimits,
) {
    if watchdog.flood_reason().is_some() {
        let penalty = limits.flood_penalty;
        tokio::spawn(async move {
            sleep(penalty).await;
            drop(subnet_permit);
        });
    }
}
