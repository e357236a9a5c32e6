//! HTTP/2: limits of connections and streams, with hyper's client.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ipseity_edge::{CloseReason, EdgeLimits, Trust};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::fixture::{
    CertificateKeyPair, EdgeFixture, SHORT_TIMEOUT, TEST_TIMEOUT, exchange, generous_limits, read_to_end, read_until,
    wait_until,
};

/// A client that sends one request and reads nothing: preface, empty SETTINGS, HEADERS for `GET /` on stream 1.
const UNRESPONSIVE_CLIENT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01x";

pub type Http2Sender = SendRequest<Empty<Bytes>>;

/// Opens an HTTP/2 connection with this stream window. The task ends with the connection.
pub async fn connect_http2(fixture: &EdgeFixture, window_bytes: u32) -> (Http2Sender, JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window_bytes)
        .handshake(TokioIo::new(fixture.connect().await))
        .await
        .expect("handshake succeeds");
    (sender, tokio::spawn(connection))
}

pub fn get_request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Empty::new()).expect("request is valid")
}

pub async fn get_text(sender: &mut Http2Sender, path: &str) -> String {
    let response = sender.send_request(get_request(path)).await.expect("response arrives");
    let body = response.into_body().collect().await.expect("body is complete").to_bytes();
    String::from_utf8(body.to_vec()).expect("text is UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_streams_share_one_connection() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let (sender, _connection) = connect_http2(&fixture, 65_535).await;
    let responses = (0..50).map(|_| {
        let mut sender = sender.clone();
        tokio::spawn(async move { get_text(&mut sender, "/").await })
    });
    for response in responses.collect::<Vec<_>>() {
        assert!(response.await.expect("task does not panic").starts_with("ip=127.0.0.1 protocol=HTTP/2 "));
    }
    assert_eq!(fixture.edge.stats().connections_accepted.value(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http2_connection_receives_goaway() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { idle_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let (mut sender, connection) = connect_http2(&fixture, 65_535).await;
    get_text(&mut sender, "/").await;
    timeout(TEST_TIMEOUT, connection)
        .await
        .expect("connection closes in time")
        .expect("task does not panic")
        .expect("connection closes gracefully");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::IdleTimeout), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_ignores_goaway_is_dropped() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits {
        idle_timeout: SHORT_TIMEOUT,
        write_timeout: SHORT_TIMEOUT,
        ..generous_limits()
    });
    let mut unresponsive = fixture.connect().await;
    unresponsive.write_all(UNRESPONSIVE_CLIENT).await.expect("bytes are sent");
    read_to_end(&mut unresponsive).await;
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::IdleTimeout), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_a_request_in_flight_is_not_idle() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits {
        idle_timeout: SHORT_TIMEOUT,
        write_timeout: SHORT_TIMEOUT,
        ..generous_limits()
    });
    let mut held = fixture.connect().await;
    held.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("bytes are sent");
    fixture.gate.entered.notified().await;
    // A later connection gets GOAWAY and is dropped while the first one is held.
    let mut unresponsive = fixture.connect().await;
    unresponsive.write_all(UNRESPONSIVE_CLIENT).await.expect("bytes are sent");
    read_to_end(&mut unresponsive).await;
    fixture.gate.release.add_permits(1);
    read_until(&mut held, "released").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_connection_without_a_request_times_out() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { header_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let (_sender, connection) = connect_http2(&fixture, 65_535).await;
    let _ = timeout(TEST_TIMEOUT, connection).await.expect("connection closes in time");
    wait_until("the connection is counted", || {
        fixture.edge.stats().connections_closed(CloseReason::HeaderTimeout) == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_http2_preface_after_alpn_times_out() {
    let pair = CertificateKeyPair::generate();
    let limits = EdgeLimits { header_timeout: SHORT_TIMEOUT, ..generous_limits() };
    let fixture = EdgeFixture::start(limits, Trust::none(), pair.transport());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&pair.certificate_file).expect("certificate parses"))
        .expect("root is accepted");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions are supported")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").expect("name is valid");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, fixture.connect().await).await;
    let mut stream = stream.expect("TLS handshake succeeds");
    let mut received = Vec::new();
    // The server's settings may arrive. Then the connection ends without GOAWAY.
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut received)).await.expect("connection closes in time");
    wait_until("the connection is counted", || {
        fixture.edge.stats().connections_closed(CloseReason::HeaderTimeout) == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_client_without_window_is_closed() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { write_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let (mut sender, connection) = connect_http2(&fixture, 0).await;
    let response = sender.send_request(get_request("/")).await.expect("response header arrives");
    let _ = timeout(TEST_TIMEOUT, connection).await.expect("connection closes in time");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::WriteTimeout), 1);
    assert!(response.into_body().collect().await.is_err());
}

/// A client whose other streams progress, which must not save the one that does not.
#[tokio::test(flavor = "multi_thread")]
async fn http2_stream_without_window_is_found_among_others_that_progress() {
    let limits = EdgeLimits { write_timeout: SHORT_TIMEOUT, write_rate_min: 1000, ..generous_limits() };
    let fixture = EdgeFixture::start_plaintext(limits);
    let (mut sender, connection) = connect_http2(&fixture, 40).await;
    let unread = sender.send_request(get_request("/")).await.expect("response header arrives");
    let start = Instant::now();
    while !connection.is_finished() && start.elapsed() < TEST_TIMEOUT {
        // The response is longer than the window, which opens as it is read.
        if let Ok(read) = sender.send_request(get_request("/")).await {
            let _ = read.into_body().collect().await;
        }
    }
    assert!(start.elapsed() < SHORT_TIMEOUT * 10, "{:?}", start.elapsed());
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::WriteTimeout), 1);
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_client_below_the_minimum_rate_is_closed() {
    let limits = EdgeLimits { write_timeout: SHORT_TIMEOUT, write_rate_min: 1 << 20, ..generous_limits() };
    let fixture = EdgeFixture::start_plaintext(limits);
    let (mut sender, connection) = connect_http2(&fixture, 20_000).await;
    let mut body = sender.send_request(get_request("/big")).await.expect("response header arrives").into_body();
    let mut received = 0;
    // 20,000 bytes each 100 ms are less than the minimum.
    while let Some(Ok(frame)) = body.frame().await {
        received += frame.data_ref().map_or(0, Bytes::len);
        tokio::time::sleep(SHORT_TIMEOUT / 3).await;
    }
    assert!(received < 1 << 20, "{received}");
    let _ = timeout(TEST_TIMEOUT, connection).await.expect("connection closes in time");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::WriteTimeout), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_memory_limits_are_refused_and_others_served() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { memory_per_connection_max: 40_000, ..generous_limits() });
    let (sender, _connection) = connect_http2(&fixture, 0).await;
    let mut outcomes = Vec::new();
    for _ in 0..20 {
        let mut sender = sender.clone();
        outcomes.push(sender.send_request(get_request("/")).await);
    }
    let answered = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!((2..10).contains(&answered), "{answered} of 20");
    assert!(fixture.edge.stats().requests_out_of_memory.value() >= 10);
    // Other connections have memory, and this one has it again after its streams end.
    let (mut other, _other_connection) = connect_http2(&fixture, 65_535).await;
    assert!(get_text(&mut other, "/").await.starts_with("ip=127.0.0.1"));
    drop(outcomes);
    let mut sender = sender.clone();
    wait_until_served(&mut sender).await;
}

async fn wait_until_served(sender: &mut Http2Sender) {
    let served = async {
        while sender.send_request(get_request("/")).await.is_err() {
            tokio::time::sleep(SHORT_TIMEOUT / 10).await;
        }
    };
    timeout(TEST_TIMEOUT, served).await.expect("memory is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_all_connections_of_a_subnet_is_limited() {
    let limits = EdgeLimits { memory_per_subnet_max: 100_000, streams_max: 1, ..generous_limits() };
    let fixture = EdgeFixture::start_plaintext(limits);
    let mut held = Vec::new();
    let mut answered = 0;
    for _ in 0..20 {
        let (mut sender, connection) = connect_http2(&fixture, 0).await;
        let outcome = sender.send_request(get_request("/")).await;
        answered += usize::from(outcome.is_ok());
        held.push((sender, connection, outcome));
    }
    assert!((2..15).contains(&answered), "{answered} of 20");
    let mut elsewhere = fixture.connect_from("127.0.0.9".parse().expect("address parses")).await;
    let reply = exchange(&mut elsewhere, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(reply.ends_with("colo=FRA"), "{reply}");
}

/// Opens a connection and returns the number of concurrent streams that the server allows. `None` if it closes the connection.
async fn allowed_streams(fixture: &EdgeFixture) -> Option<(TcpStream, u32)> {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let mut stream = TcpStream::connect(fixture.address).await.expect("connection opens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("preface is sent");
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let mut settings = vec![0; usize::from(header[2])];
    stream.read_exact(&mut settings).await.ok()?;
    let values = settings.chunks(6).map(|setting| setting.split_at(2));
    let allowed = values.filter(|(id, _)| *id == MAX_CONCURRENT_STREAMS.to_be_bytes()).map(|(_, value)| value).next();
    Some((stream, u32::from_be_bytes(allowed?.try_into().ok()?)))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_have_few_streams_when_memory_is_low_and_are_closed_without() {
    // A quarter suffices for the 128 streams of one connection, and three quarters for an HTTP/1 connection and another 30 with 8.
    let memory_per_subnet_max = 4 * 128 * 3 * 1024;
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { memory_per_subnet_max, ..generous_limits() });
    let mut held = Vec::from_iter(allowed_streams(&fixture).await);
    let mut http1 = TcpStream::connect(fixture.address).await.expect("connection opens");
    http1.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("request is sent");
    read_until(&mut http1, "colo=FRA").await;
    while let Some(connection) = allowed_streams(&fixture).await {
        held.push(connection);
    }
    let allowed: Vec<u32> = held.iter().map(|(_, streams)| *streams).collect();
    assert_eq!((allowed.len(), allowed[0], &allowed[1..]), (31, 128, [8; 30].as_slice()));
    let mut late = TcpStream::connect(fixture.address).await.expect("connection opens");
    assert_eq!(exchange(&mut late, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await, "");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::OutOfMemory), 2);
    // The last quarter is for requests.
    let reply = exchange(&mut http1, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(reply.ends_with("colo=FRA"), "{reply}");
    drop(held);
    let (mut sender, _connection) = connect_http2(&fixture, 65_535).await;
    wait_until_served(&mut sender).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_whose_streams_are_rejected_again_and_again_is_closed() {
    let limits = EdgeLimits { memory_per_connection_max: 1, resets_max: 10, ..generous_limits() };
    let fixture = EdgeFixture::start_plaintext(limits);
    let (mut sender, connection) = connect_http2(&fixture, 65_535).await;
    for _ in 0..=10 {
        assert!(sender.send_request(get_request("/")).await.is_err());
    }
    let _ = timeout(TEST_TIMEOUT, connection).await.expect("connection closes in time");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::StreamResets), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_reset_flood_closes_the_connection() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { resets_max: 10, ..generous_limits() });
    let (mut sender, connection) = connect_http2(&fixture, 65_535).await;
    for reset in 1..=11 {
        let pending_response = sender.send_request(get_request("/held"));
        // Dropping the pending response resets its stream.
        tokio::select! {
            _ = pending_response => panic!("a held request was answered"),
            () = fixture.gate.entered.notified() => {}
        }
        assert!(reset == 11 || !connection.is_finished(), "closed after {reset}");
    }
    // Immediately, and not at the watchdog's next check.
    let _ = timeout(TEST_TIMEOUT / 2, connection).await.expect("connection closes in time");
    wait_until("the connection is counted", || fixture.edge.stats().connections_closed(CloseReason::StreamResets) == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_protocol_error_is_closed_and_counted() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { resets_max: 10, ..generous_limits() });
    let mut stream = fixture.connect().await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec();
    for id in (1..1000_u32).step_by(2) {
        flood.extend_from_slice(b"\x00\x00\x06\x01\x05");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\x82\x86\x84\x41\x01x\x00\x00\x04\x03\x00");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\x00\x00\x00\x08");
    }
    exchange(&mut stream, &flood).await;
    let stats = fixture.edge.stats();
    wait_until("the connection is counted", || {
        stats.connections_closed(CloseReason::ProtocolError) + stats.connections_closed(CloseReason::StreamResets) == 1
    })
    .await;
}
