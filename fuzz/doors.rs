//! Real listeners for arbitrary bytes: in clear, over TLS, behind a PROXY header, and over QUIC. Every connection ends,
//! and so does nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::Client;
use edge::{
    Bounds, CertificateFiles, Drain, Edge, ForwardingHeader, Listener, QuicListener, RequestBody, Tls, Transport,
    Trust, Wardrobe, serve, serve_quic,
};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);
const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// The least that a first packet's datagram must have (RFC 9000, section 14.1).
const FIRST_BYTES: usize = 1200;
/// A long header of a version that nobody speaks.
const UNKNOWN_VERSION: [u8; 5] = [0xc3, 0x1a, 0x2a, 0x3a, 0x4a];

pub struct Doors {
    runtime: Runtime,
    tcp: [SocketAddr; 4],
    quic: SocketAddr,
}

impl Doors {
    pub fn open() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (tcp, quic) = runtime.block_on(async {
            let tls = tls();
            let behind = |transport| Transport::Announced(Box::new(transport));
            let secure = Transport::Tls(tls.clone());
            ([Transport::Clear, behind(Transport::Clear), secure.clone(), behind(secure)].map(open), open_quic(tls))
        });
        Self { runtime, tcp, quic }
    }

    /// Sends all but the first byte to the door that the first byte names.
    pub fn knock(&self, bytes: &[u8]) {
        let Some((door, bytes)) = bytes.split_first() else { return };
        self.runtime.block_on(async {
            match self.tcp.get(usize::from(*door) % (self.tcp.len() + 1)) {
                Some(door) => exchange(*door, bytes).await,
                None => send(self.quic, bytes).await,
            }
        });
    }
}

async fn exchange(door: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(door).await.expect("a connection");
    let mut heard = Vec::new();
    // A reset ends a connection as well as a farewell does.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the connection was never closed");
}

/// Sends a datagram, as it is and as long as a first one must be; after it the door still tells which version it
/// speaks.
async fn send(door: SocketAddr, bytes: &[u8]) {
    let socket = UdpSocket::bind(ANYWHERE).await.expect("a socket");
    let mut long = bytes.to_vec();
    long.resize(FIRST_BYTES.max(bytes.len()), 0);
    let mut question = [0; FIRST_BYTES];
    question[..5].copy_from_slice(&UNKNOWN_VERSION);
    for datagram in [bytes, &long, &question] {
        // One that is too long for a datagram is not sent.
        let _ = socket.send_to(datagram, door).await;
    }
    let answered = async {
        let mut datagram = [0; 2048];
        // Version 0 is the answer (RFC 9000, section 17.2.1); whatever else was answered came before it.
        while socket.recv_from(&mut datagram).await.is_err() || datagram[1..5] != [0; 4] {}
    };
    timeout(PATIENCE, answered).await.expect("no answer over QUIC");
}

fn tls() -> Tls {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let files = ["certificate", "key"]
        .map(|name| std::env::temp_dir().join(format!("ipseity-doors-{}-{name}.pem", std::process::id())));
    std::fs::write(&files[0], issued.cert.pem()).expect("a file");
    std::fs::write(&files[1], issued.signing_key.serialize_pem()).expect("a file");
    let [certificate, private_key] = files.clone();
    let wardrobe = Wardrobe::open(&[CertificateFiles { certificate, private_key }]).expect("a pair");
    files.iter().for_each(|file| std::fs::remove_file(file).expect("the file is ours"));
    Tls::new(&Arc::new(wardrobe))
}

fn edge() -> Arc<Edge> {
    let bounds = Bounds {
        connections_max: 1000,
        connections_per_network_max: 1000,
        accept_pause: SHORT,
        first_byte_timeout: SHORT,
        proxy_header_bytes_max: 1024,
        handshake_timeout: SHORT,
        header_timeout: SHORT,
        idle_timeout: SHORT,
        write_timeout: SHORT,
        drain_timeout: SHORT,
        header_bytes_max: 16384,
        header_lines_max: 100,
        streams_max: 100,
        resets_max: 100,
        unproven_max: 500,
        unasked_bytes_max: 65536,
        flood_penalty: Duration::from_millis(1),
    };
    let trust = Trust::new(vec!["127.0.0.1/32".parse().expect("a network")], ForwardingHeader::Forwarded);
    Arc::new(Edge::new(bounds, trust.expect("a safe network"), None))
}

/// A drain that never starts: the doors stay open as long as the process does.
fn never() -> Drain {
    let (switch, drain) = Drain::new();
    std::mem::forget(switch);
    drain
}

fn open(transport: Transport) -> SocketAddr {
    let listener = Listener::bind(ANYWHERE.into(), false).expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, transport, edge(), answer, never()));
    address
}

fn open_quic(tls: Tls) -> SocketAddr {
    let listener = QuicListener::bind(ANYWHERE.into(), false).expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve_quic(listener, tls, edge(), answer, never()));
    address
}

async fn answer(_: Client, request: Request<RequestBody>) -> Response<Full<Bytes>> {
    // Also what reads a body reads a stranger's bytes.
    let _ = request.into_body().collect().await;
    Response::new(Full::new(Bytes::from_static(b"answered")))
}
