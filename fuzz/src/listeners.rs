//! Real listeners for arbitrary bytes: plaintext, TLS, PROXY protocol and QUIC. Whatever arrives, every connection ends
//! and the listeners keep working.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use ipseity_domain::Client;
use ipseity_edge::{
    CertResolver, CertificateFiles, Drain, EdgeLimits, EdgeState, ForwardingHeader, Listener, QuicListener,
    RequestBody, TlsServerConfig, Transport, Trust, serve, serve_quic,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const LOOPBACK_ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// Minimum size of a datagram with an Initial packet (RFC 9000, section 14.1).
const INITIAL_DATAGRAM_BYTES_MIN: usize = 1200;
/// A long header with a version that does not exist.
const UNKNOWN_VERSION: [u8; 5] = [0xc3, 0x1a, 0x2a, 0x3a, 0x4a];

pub(crate) struct FuzzListeners {
    runtime: Runtime,
    tcp: [SocketAddr; 4],
    quic: SocketAddr,
}

impl FuzzListeners {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime starts");
        let (tcp, quic) = runtime.block_on(async {
            let tls = tls_config();
            let with_proxy_protocol = |transport| Transport::ProxyProtocol(Box::new(transport));
            let tls_transport = Transport::Tls(tls.clone());
            let transports = [
                Transport::Plaintext,
                with_proxy_protocol(Transport::Plaintext),
                tls_transport.clone(),
                with_proxy_protocol(tls_transport),
            ];
            (transports.map(spawn_listener), spawn_quic_listener(tls))
        });
        Self { runtime, tcp, quic }
    }

    /// Sends all but the first byte to the listener that the first byte selects.
    pub(crate) fn send_input(&self, bytes: &[u8]) {
        let Some((listener_index, bytes)) = bytes.split_first() else { return };
        self.runtime.block_on(async {
            match self.tcp.get(usize::from(*listener_index) % (self.tcp.len() + 1)) {
                Some(address) => exchange_tcp(*address, bytes).await,
                None => send_datagrams(self.quic, bytes).await,
            }
        });
    }
}

async fn exchange_tcp(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.expect("client connects");
    let mut received = Vec::new();
    // The server may reset the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = timeout(CLOSE_TIMEOUT, stream.read_to_end(&mut received)).await.expect("connection closes in time");
}

/// Sends a datagram as is, then padded to the size of an Initial packet. Afterwards the listener must still answer a
/// version probe.
async fn send_datagrams(address: SocketAddr, bytes: &[u8]) {
    let socket = UdpSocket::bind(LOOPBACK_ANY_PORT).await.expect("socket opens");
    let mut padded = bytes.to_vec();
    padded.resize(INITIAL_DATAGRAM_BYTES_MIN.max(bytes.len()), 0);
    let mut version_probe = [0; INITIAL_DATAGRAM_BYTES_MIN];
    version_probe[..5].copy_from_slice(&UNKNOWN_VERSION);
    for datagram in [bytes, &padded, &version_probe] {
        // Input that exceeds the size of a datagram is not sent.
        let _ = socket.send_to(datagram, address).await;
    }
    let version_negotiated = async {
        let mut datagram = [0; 2048];
        // Version 0 marks version negotiation (RFC 9000, section 17.2.1). Other replies may come first.
        while socket.recv_from(&mut datagram).await.is_err() || datagram[1..5] != [0; 4] {}
    };
    timeout(CLOSE_TIMEOUT, version_negotiated).await.expect("QUIC listener replies in time");
}

fn tls_config() -> TlsServerConfig {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("certificate is generated");
    let files = ["certificate", "key"]
        .map(|name| std::env::temp_dir().join(format!("ipseity-fuzz-{}-{name}.pem", std::process::id())));
    std::fs::write(&files[0], issued.cert.pem()).expect("file is written");
    std::fs::write(&files[1], issued.signing_key.serialize_pem()).expect("file is written");
    let [certificate, private_key] = files.clone();
    let cert_resolver =
        CertResolver::open(&[CertificateFiles { certificate, private_key }]).expect("certificate loads");
    files.iter().for_each(|file| std::fs::remove_file(file).expect("file is removed"));
    TlsServerConfig::new(&Arc::new(cert_resolver))
}

fn edge_state() -> Arc<EdgeState> {
    let limits = EdgeLimits {
        connections_max: 1000,
        connections_per_subnet_max: 1000,
        accept_backoff: SHORT_TIMEOUT,
        first_byte_timeout: SHORT_TIMEOUT,
        proxy_header_bytes_max: 1024,
        handshake_timeout: SHORT_TIMEOUT,
        header_timeout: SHORT_TIMEOUT,
        idle_timeout: SHORT_TIMEOUT,
        write_timeout: SHORT_TIMEOUT,
        write_rate_min: 1,
        unread_body_timeout: SHORT_TIMEOUT,
        memory_per_connection_max: 1 << 30,
        memory_per_subnet_max: 1 << 30,
        memory_max: 1 << 30,
        drain_timeout: SHORT_TIMEOUT,
        header_bytes_max: 16384,
        headers_max: 100,
        streams_max: 100,
        resets_max: 100,
        quic_retry_threshold: 500,
        unsolicited_bytes_max: 65536,
        failed_attempts_max: u32::MAX,
        failed_attempt_interval: Duration::ZERO,
        refusal_delay: Duration::ZERO,
        flood_penalty: Duration::from_millis(1),
    };
    let trust = Trust::new(vec!["127.0.0.1/32".parse().expect("network parses")], ForwardingHeader::Forwarded);
    Arc::new(EdgeState::new(limits, trust.expect("trust is safe"), None))
}

/// A drain that never starts: the listeners run as long as the process does.
fn never_drain() -> Drain {
    let (switch, drain) = Drain::new();
    std::mem::forget(switch);
    drain
}

fn spawn_listener(transport: Transport) -> SocketAddr {
    let listener = Listener::bind(LOOPBACK_ANY_PORT.into(), false).expect("port is free");
    let address = listener.local_addr().expect("socket is bound");
    tokio::spawn(serve(listener, transport, edge_state(), respond, never_drain()));
    address
}

fn spawn_quic_listener(tls: TlsServerConfig) -> SocketAddr {
    let listener = QuicListener::bind(LOOPBACK_ANY_PORT.into(), false).expect("port is free");
    let address = listener.local_addr().expect("socket is bound");
    tokio::spawn(serve_quic(listener, tls, edge_state(), respond, never_drain()));
    address
}

async fn respond(_: Client, request: Request<RequestBody>) -> Response<Full<Bytes>> {
    // The body is arbitrary input too, so read it.
    let _ = request.into_body().collect().await;
    Response::new(Full::new(Bytes::from_static(b"ok")))
}
