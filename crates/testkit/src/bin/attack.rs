//! `attack KIND ADDRESS CA_FILE SECONDS COUNT NETWORKS PATHS`: attacks a listener on the loopback from this many
//! networks, for the abuse suite.
//!
//! `idle_tls` holds COUNT idle TLS sessions and replaces each one that the server closes. `junk` sends invalid
//! datagrams from COUNT sockets. `handshakes` holds COUNT unfinished QUIC handshakes. `unread_http3` requests PATHS on
//! COUNT connections and reads nothing, `trickle_http3` reads a few bytes per second. The result is printed as JSON.

use std::cell::Cell;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use ipseity_testkit::client::quic::{self, Http3TestOptions};
use ipseity_testkit::client::streams::{StreamProtocol, tls_connector};
use quinn_proto::{ClientConfig, Connection, DatagramEvent, Endpoint, EndpointConfig};
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::Mutex;
use tokio::task::LocalSet;
use tokio::time::{Instant, Interval, interval, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;

/// Sessions and handshakes started per second, in total.
const STARTS_PER_S: u32 = 500;
/// Junk datagrams sent per millisecond, in total.
const JUNK_PER_MS: usize = 10;
const DATAGRAM_BYTES: usize = 1200;
/// Longer than a server should wait for a handshake.
const HANDSHAKE_HOLD: Duration = Duration::from_secs(6);
/// Requests per connection whose responses are not read.
const STREAMS: usize = 100;
/// Larger than an HTTP/3 control stream needs, smaller than any response.
const STREAM_WINDOW_BYTES: u32 = 64;
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The bits of the first byte that identify a Retry packet of QUIC version 1 (RFC 9000, section 17.2.5).
const RETRY_PACKET_MASK: u8 = 0b1111_0000;

struct Attack {
    server: SocketAddr,
    end: Instant,
    pacing: Mutex<Interval>,
    started: Cell<usize>,
    open: Cell<usize>,
    open_max: Cell<usize>,
    closed: Cell<usize>,
    retries_answered: Cell<usize>,
    /// Attackers that failed locally, for example because of resource limits.
    failed: Cell<usize>,
}

fn increment(count: &Cell<usize>) {
    count.set(count.get() + 1);
}

impl Attack {
    /// Waits until one more may start. Returns whether there is time for it.
    async fn wait_for_turn(&self) -> bool {
        self.pacing.lock().await.tick().await;
        Instant::now() < self.end
    }

    async fn idle_tls(&self, source: IpAddr, tls: &TlsConnector) -> Result<()> {
        while self.wait_for_turn().await {
            increment(&self.started);
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(source, 0))?;
            // From this line, an error means that the server rejected the connection.
            if !self.hold_session(socket, tls).await.unwrap_or(false) {
                increment(&self.closed);
            }
        }
        Ok(())
    }

    /// Holds an idle session. Returns whether it is still open at the end.
    async fn hold_session(&self, socket: TcpSocket, tls: &TlsConnector) -> Result<bool> {
        let connect = async {
            anyhow::Ok(tls.connect(ServerName::try_from("localhost")?, socket.connect(self.server).await?).await?)
        };
        let Ok(connected) = timeout_at(self.end, connect).await else { return Ok(true) };
        let mut session = connected?;
        increment(&self.open);
        self.open_max.set(self.open_max.get().max(self.open.get()));
        let is_open = timeout_at(self.end, session.read_to_end(&mut Vec::new())).await.is_err();
        self.open.set(self.open.get() - 1);
        Ok(is_open)
    }

    async fn junk(&self, source: IpAddr) -> Result<()> {
        let socket = UdpSocket::bind((source, 0)).await?;
        let mut datagram = [0; DATAGRAM_BYTES];
        while self.wait_for_turn().await {
            for _ in 0..JUNK_PER_MS {
                fastrand::fill(&mut datagram);
                match fastrand::u8(..4) {
                    // Looks like an Initial packet of version 1, with connection IDs of eight bytes and no token.
                    0 => {
                        datagram[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
                        datagram[14] = 8;
                        datagram[23..26].copy_from_slice(&[0, 0x44, 0x9e]);
                    }
                    // An unknown version, and an unknown connection.
                    1 => datagram[..6].copy_from_slice(&[0xc3, 0x1a, 0x2a, 0x3a, 0x4a, 8]),
                    2 => datagram[0] = 0x40 | (datagram[0] & 0x3f),
                    _ => {}
                }
                if socket.send_to(&datagram, self.server).await.is_ok() {
                    increment(&self.started);
                }
            }
        }
        Ok(())
    }

    async fn handshakes(&self, source: IpAddr, config: &ClientConfig, answers_retry: bool) -> Result<()> {
        while self.wait_for_turn().await {
            increment(&self.started);
            self.handshake_once(source, config.clone(), answers_retry).await?;
        }
        Ok(())
    }

    /// Starts a handshake and ignores the response, except a Retry if `answers_retry` is set.
    async fn handshake_once(&self, source: IpAddr, config: ClientConfig, answers_retry: bool) -> Result<()> {
        let socket = UdpSocket::bind((source, 0)).await?;
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let (_handle, mut connection) =
            endpoint.connect(std::time::Instant::now(), config, self.server, "localhost")?;
        self.send(&socket, &mut connection).await?;
        let end = self.end.min(Instant::now() + HANDSHAKE_HOLD);
        let mut datagram = [0; 2048];
        while let Ok(Ok((length, _server))) = timeout_at(end, socket.recv_from(&mut datagram)).await {
            if answers_retry && datagram[0] & RETRY_PACKET_MASK == RETRY_PACKET_MASK {
                let (now, bytes) = (std::time::Instant::now(), BytesMut::from(&datagram[..length]));
                let event = endpoint.handle(now, self.server, None, None, bytes, &mut Vec::new());
                if let Some(DatagramEvent::ConnectionEvent(_handle, event)) = event {
                    connection.handle_event(event);
                    self.send(&socket, &mut connection).await?;
                    increment(&self.retries_answered);
                }
            }
        }
        Ok(())
    }

    async fn unread_http3(&self, endpoint: &quinn::Endpoint, paths: &str, reads: bool) -> Result<()> {
        while self.wait_for_turn().await {
            increment(&self.started);
            let held = timeout_at(self.end, self.hold_responses(endpoint, paths, reads)).await;
            if held.is_ok() {
                increment(&self.closed);
            }
        }
        Ok(())
    }

    /// Sends requests until the server closes the connection.
    async fn hold_responses(&self, endpoint: &quinn::Endpoint, paths: &str, reads: bool) -> Result<()> {
        let connection = endpoint.connect(self.server, "localhost")?.await?;
        let (mut driver, mut requests) = h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
        let driving = tokio::task::spawn_local(async move { driver.wait_idle().await });
        let mut streams = Vec::new();
        for path in paths.split(',').cycle().take(STREAMS) {
            let request = http::Request::get(format!("https://localhost{path}")).body(())?;
            let Ok(mut stream) = requests.send_request(request).await else { break };
            stream.finish().await.ok();
            streams.push(stream);
        }
        while connection.close_reason().is_none() {
            tokio::time::sleep(READ_INTERVAL).await;
            for stream in streams.iter_mut().filter(|_| reads) {
                // What has arrived is read; the rest of the header takes several intervals.
                let _ = timeout_at(Instant::now(), stream.recv_response()).await;
            }
        }
        driving.abort();
        Ok(())
    }

    async fn send(&self, socket: &UdpSocket, connection: &mut Connection) -> Result<()> {
        let mut packet = Vec::new();
        while connection.poll_transmit(std::time::Instant::now(), 1, &mut packet).is_some() {
            socket.send_to(&packet, self.server).await?;
            packet.clear();
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, server, authority, seconds, count, networks, paths] = &arguments[..] else {
        bail!("usage: attack KIND ADDRESS CA_FILE SECONDS COUNT NETWORKS PATHS");
    };
    let server = server.parse().context("ADDRESS must be IP:PORT")?;
    let (count, networks): (usize, u8) = (count.parse()?, networks.parse()?);
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let start_interval = match kind.as_str() {
        "junk" => Duration::from_millis(1),
        "idle_tls" | "handshakes" | "unread_http3" | "trickle_http3" => Duration::from_secs(1) / STARTS_PER_S,
        other => bail!("unknown attack: {other}"),
    };
    let authority = Path::new(authority);
    let tls = [tls_connector(StreamProtocol::Http11, authority)?, tls_connector(StreamProtocol::Http2, authority)?];
    let options = Http3TestOptions::localhost(server, authority);
    let mut quic = quic::client_config(&options)?;
    let is_unread = ["unread_http3", "trickle_http3"].contains(&kind.as_str());
    if is_unread {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(STREAM_WINDOW_BYTES.into());
        quic.transport_config(Arc::new(transport));
    }
    let attack = Rc::new(Attack {
        server,
        end,
        pacing: Mutex::new(interval(start_interval)),
        started: Cell::default(),
        open: Cell::default(),
        open_max: Cell::default(),
        closed: Cell::default(),
        retries_answered: Cell::default(),
        failed: Cell::default(),
    });
    let tasks = LocalSet::new();
    let endpoint = |source| {
        let mut endpoint = quic::client_endpoint(&Http3TestOptions { source_ip: Some(source), ..options.clone() })?;
        endpoint.set_default_client_config(quic.clone());
        anyhow::Ok(endpoint)
    };
    for (number, last_byte) in (0..count).zip((1..=networks).cycle()) {
        let source = IpAddr::from(Ipv4Addr::new(127, 0, 1, last_byte));
        let (attack, kind, tls, quic) = (Rc::clone(&attack), kind.clone(), tls[number % 2].clone(), quic.clone());
        let (endpoint, paths) = (if is_unread { Some(endpoint(source)?) } else { None }, paths.clone());
        tasks.spawn_local(async move {
            let result = match (kind.as_str(), endpoint) {
                ("junk", _) => attack.junk(source).await,
                ("idle_tls", _) => attack.idle_tls(source, &tls).await,
                (kind, Some(endpoint)) => attack.unread_http3(&endpoint, &paths, kind == "trickle_http3").await,
                _ => attack.handshakes(source, &quic, number % 2 == 0).await,
            };
            if result.is_err() {
                increment(&attack.failed);
            }
        });
    }
    tasks.run_until(sleep_until(end)).await;
    let report = serde_json::json!({
        "started": attack.started.get(), "open_max": attack.open_max.get(), "closed": attack.closed.get(),
        "retries_answered": attack.retries_answered.get(), "failed": attack.failed.get(),
    });
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}
