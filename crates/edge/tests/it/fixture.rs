//! A small application behind a real listener, and helpers to send requests to it.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use ipseity_domain::{Client, Colo, HttpProtocol};
use ipseity_edge::{
    CertResolver, CertificateError, CertificateFiles, Drain, DrainSwitch, EdgeLimits, EdgeState, Listener,
    QuicListener, RequestBody, TlsServerConfig, Transport, Trust, serve, serve_quic,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer than any step of a passing test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// A limit that a test waits for.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
/// More than the kernel buffers of both ends can hold.
pub const LARGE_BODY_BYTES: usize = 32 << 20;

/// Limits that no test reaches by accident.
pub fn generous_limits() -> EdgeLimits {
    EdgeLimits {
        connections_max: 100,
        connections_per_subnet_max: 100,
        accept_backoff: SHORT_TIMEOUT,
        first_byte_timeout: TEST_TIMEOUT,
        proxy_header_bytes_max: 1024,
        handshake_timeout: TEST_TIMEOUT,
        header_timeout: TEST_TIMEOUT,
        idle_timeout: TEST_TIMEOUT,
        write_timeout: TEST_TIMEOUT,
        write_rate_min: 1,
        unread_body_timeout: SHORT_TIMEOUT,
        memory_per_connection_max: 1 << 30,
        memory_per_subnet_max: 1 << 30,
        memory_max: 1 << 30,
        drain_timeout: TEST_TIMEOUT,
        header_bytes_max: 16384,
        headers_max: 100,
        streams_max: 128,
        resets_max: 100,
        quic_retry_threshold: 100,
        unsolicited_bytes_max: 1 << 20,
        failed_attempts_max: u32::MAX,
        failed_attempt_interval: Duration::ZERO,
        refusal_delay: Duration::ZERO,
        flood_penalty: SHORT_TIMEOUT,
    }
}

/// Reports when a request to `/held` has arrived, and releases it.
pub struct RequestGate {
    pub entered: Notify,
    pub release: Semaphore,
}

/// A running listener.
pub struct EdgeFixture {
    pub address: SocketAddr,
    pub edge: Arc<EdgeState>,
    pub gate: Arc<RequestGate>,
    drain_switch: DrainSwitch,
    server_task: JoinHandle<()>,
}

impl EdgeFixture {
    pub fn start(limits: EdgeLimits, trust: Trust, transport: Transport) -> Self {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("port is free");
        Self::start_on(listener, limits, trust, transport)
    }

    pub fn start_on(listener: Listener, limits: EdgeLimits, trust: Trust, transport: Transport) -> Self {
        let address = listener.local_addr().expect("socket is bound");
        let edge = Arc::new(EdgeState::new(limits, trust, Colo::parse("FRA")));
        let gate = Arc::new(RequestGate { entered: Notify::new(), release: Semaphore::new(0) });
        let (drain_switch, drain) = Drain::new();
        let server_task = {
            let (edge, gate) = (Arc::clone(&edge), Arc::clone(&gate));
            let application = move |client, request| respond(client, request, Arc::clone(&gate));
            tokio::spawn(serve(listener, transport, edge, application, drain))
        };
        Self { address, edge, gate, drain_switch, server_task }
    }

    /// The same application over HTTP/3.
    pub fn start_quic(limits: EdgeLimits, tls: TlsServerConfig) -> Self {
        let listener = QuicListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("port is free");
        let address = listener.local_addr().expect("socket is bound");
        let edge = Arc::new(EdgeState::new(limits, Trust::none(), Colo::parse("FRA")));
        let gate = Arc::new(RequestGate { entered: Notify::new(), release: Semaphore::new(0) });
        let (drain_switch, drain) = Drain::new();
        let server_task = {
            let (edge, gate) = (Arc::clone(&edge), Arc::clone(&gate));
            let application = move |client, request| respond(client, request, Arc::clone(&gate));
            tokio::spawn(
                async move { serve_quic(listener, tls, edge, application, drain).await.expect("endpoint opens") },
            )
        };
        Self { address, edge, gate, drain_switch, server_task }
    }

    pub fn start_plaintext(limits: EdgeLimits) -> Self {
        Self::start(limits, Trust::none(), Transport::Plaintext)
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("client connects")
    }

    /// Connects from this loopback address.
    pub async fn connect_from(&self, source: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("socket opens");
        socket.bind((source, 0).into()).expect("source address binds");
        socket.connect(self.address).await.expect("client connects")
    }

    /// Starts the drain. The returned task ends when `serve` does.
    pub fn start_drain(self) -> JoinHandle<()> {
        self.drain_switch.start();
        self.server_task
    }
}

/// Responds with a description of the client. `/held` waits at the gate, `/big` responds with [`LARGE_BODY_BYTES`], and
/// `/echo` with the request body.
async fn respond(client: Client, request: Request<RequestBody>, gate: Arc<RequestGate>) -> Response<Full<Bytes>> {
    let body = match request.uri().path() {
        "/echo" => match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => Bytes::from_static(b"incomplete body"),
        },
        "/big" => Bytes::from(vec![b'.'; LARGE_BODY_BYTES]),
        "/held" => {
            gate.entered.notify_one();
            gate.release.acquire().await.expect("gate is open").forget();
            Bytes::from_static(b"released")
        }
        _ => Bytes::from(describe_client(&client)),
    };
    Response::new(Full::new(body))
}

fn describe_client(client: &Client) -> String {
    let connection = client.connection;
    let mut text = format!("ip={}", client.address.expose().map_or("-".to_owned(), |address| address.to_string()));
    let _ = write!(text, " protocol={}", connection.http_protocol.map_or("-", HttpProtocol::name));
    let _ = write!(text, " tls={}", connection.tls.map_or("-", |tls| tls.version.name()));
    let _ = write!(text, " cipher={}", connection.tls.and_then(|tls| tls.cipher).unwrap_or("-"));
    // On loopback the value is close to 0, so the test only checks that it was measured.
    let _ = write!(text, " rtt={}", connection.rtt_ms.map_or("-", |ms| if ms < 1000 { "short" } else { "long" }));
    let _ = write!(text, " colo={}", connection.colo.as_ref().map_or("-", Colo::as_str));
    text
}

/// Runs curl and returns its exit code and output.
pub async fn curl(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "20"]).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("thread does not panic")
        .expect("curl is installed");
    (output.status.code().expect("curl exits normally"), String::from_utf8(output.stdout).expect("text is UTF-8"))
}

/// Sends bytes and reads until the server closes the connection.
pub async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> String {
    // The server may close the connection before everything is sent.
    let _ = stream.write_all(bytes).await;
    read_to_end(stream).await
}

/// Reads until the server closes or resets the connection.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an error here, but closes the connection too.
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut text)).await.expect("connection closes in time");
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the text appears.
pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let seen = async {
        while !text.contains(end) {
            let byte = stream.read_u8().await.expect("byte arrives");
            text.push(char::from(byte));
        }
    };
    timeout(TEST_TIMEOUT, seen).await.expect("text arrives in time");
    text
}

/// Waits until a condition holds.
pub async fn wait_until(description: &str, condition: impl Fn() -> bool) {
    let condition_holds = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, condition_holds).await.unwrap_or_else(|_| panic!("timed out waiting until {description}"));
}

/// A certificate and its key, in separate files.
pub struct CertificateKeyPair {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

impl CertificateKeyPair {
    pub fn generate() -> Self {
        Self::generate_for(&["localhost"])
    }

    pub fn generate_for(names: &[&str]) -> Self {
        let (certificate, key) = generate_certificate(names, |_| {});
        Self { certificate_file: write_temp_file(&certificate), key_file: write_temp_file(&key) }
    }

    pub fn transport(&self) -> Transport {
        Transport::Tls(self.tls_config())
    }

    pub fn tls_config(&self) -> TlsServerConfig {
        TlsServerConfig::new(&Arc::new(self.cert_resolver().expect("certificate loads")))
    }

    pub fn files(&self) -> CertificateFiles {
        CertificateFiles { certificate: self.certificate_file.clone(), private_key: self.key_file.clone() }
    }

    pub fn cert_resolver(&self) -> Result<CertResolver, CertificateError> {
        CertResolver::open(&[self.files()])
    }
}

/// A certificate for these names and its key, both PEM.
pub fn generate_certificate(names: &[&str], customize: impl Fn(&mut rcgen::CertificateParams)) -> (String, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names are valid");
    customize(&mut params);
    let key = rcgen::KeyPair::generate().expect("key is generated");
    (params.self_signed(&key).expect("certificate is generated").pem(), key.serialize_pem())
}

/// Writes a file with a unique name.
pub fn write_temp_file(text: &str) -> PathBuf {
    static NEXT_ID: AtomicU32 = AtomicU32::new(0);
    let name = format!("edge-{}-{}.pem", std::process::id(), NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).expect("file is written");
    file
}
