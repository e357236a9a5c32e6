//! HTTP/2: bounds of a connection whose streams come and go, with hyper's client on the other side.

use std::sync::Arc;

use bytes::Bytes;
use edge::{Bound, Bounds, Trust};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::house::{House, PATIENCE, Pair, SHORT, exchange, read_to_end, read_until, until, wide};

/// A client that asks once and then hears nothing: preface, empty SETTINGS, and HEADERS for `GET /` on stream 1.
const DEAF: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01x";

pub type Sender = SendRequest<Empty<Bytes>>;

/// Opens an HTTP/2 connection whose streams have this window; the task ends with the connection.
pub async fn open(house: &House, window_bytes: u32) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window_bytes)
        .handshake(TokioIo::new(house.connect().await))
        .await
        .expect("a connection");
    (sender, tokio::spawn(connection))
}

pub fn ask(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Empty::new()).expect("a request")
}

pub async fn text(sender: &mut Sender, path: &str) -> String {
    let response = sender.send_request(ask(path)).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_share_one_connection() {
    let house = House::clear(wide());
    let (sender, _connection) = open(&house, 65_535).await;
    let answers = (0..50).map(|_| {
        let mut sender = sender.clone();
        tokio::spawn(async move { text(&mut sender, "/").await })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert!(answer.await.expect("a task").starts_with("ip=127.0.0.1 protocol=HTTP/2 "));
    }
    assert_eq!(house.edge.stats().accepted.value(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_told_to_go() {
    let house = House::clear(Bounds { idle_timeout: SHORT, ..wide() });
    let (mut sender, connection) = open(&house, 65_535).await;
    text(&mut sender, "/").await;
    timeout(PATIENCE, connection).await.expect("never closed").expect("a task").expect("closed in peace");
    assert_eq!(house.edge.stats().closed_by(Bound::Idle), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_go_when_told_is_dropped() {
    let house = House::clear(Bounds { idle_timeout: SHORT, write_timeout: SHORT, ..wide() });
    let mut deaf = house.connect().await;
    deaf.write_all(DEAF).await.expect("sent");
    read_to_end(&mut deaf).await;
    assert_eq!(house.edge.stats().closed_by(Bound::Idle), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_not_idle() {
    let house = House::clear(Bounds { idle_timeout: SHORT, write_timeout: SHORT, ..wide() });
    let mut held = house.connect().await;
    held.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    house.gate.entered.notified().await;
    // A later connection is told to go, and dropped, while the first one is held.
    let mut deaf = house.connect().await;
    deaf.write_all(DEAF).await.expect("sent");
    read_to_end(&mut deaf).await;
    house.gate.release.add_permits(1);
    read_until(&mut held, "let go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_nothing_is_closed() {
    let house = House::clear(Bounds { header_timeout: SHORT, ..wide() });
    let (_sender, connection) = open(&house, 65_535).await;
    let _ = timeout(PATIENCE, connection).await.expect("never closed");
    until("it is counted", || house.edge.stats().closed_by(Bound::Header) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_agrees_on_http_2_and_sends_no_preface_is_closed() {
    let pair = Pair::issue();
    let bounds = Bounds { header_timeout: SHORT, ..wide() };
    let house = House::open(bounds, Trust::nobody(), pair.open());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&pair.certificate_file).expect("a certificate")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, house.connect().await).await;
    let mut stream = stream.expect("a session");
    let mut heard = Vec::new();
    // The server's settings may come; then the connection ends, without a farewell.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("never closed");
    until("it is counted", || house.edge.stats().closed_by(Bound::Header) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_makes_no_room_for_the_answer_is_closed() {
    let house = House::clear(Bounds { write_timeout: SHORT, ..wide() });
    let (mut sender, connection) = open(&house, 0).await;
    let response = sender.send_request(ask("/")).await.expect("a head");
    let _ = timeout(PATIENCE, connection).await.expect("never closed");
    assert_eq!(house.edge.stats().closed_by(Bound::Write), 1);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_resets_too_many_streams_is_closed() {
    let house = House::clear(Bounds { resets_max: 10, ..wide() });
    let (mut sender, connection) = open(&house, 65_535).await;
    for reset in 1..=11 {
        let asked = sender.send_request(ask("/held"));
        // Dropping the pending answer resets its stream.
        tokio::select! {
            _ = asked => panic!("answered"),
            () = house.gate.entered.notified() => {}
        }
        assert!(reset == 11 || !connection.is_finished(), "closed after {reset}");
    }
    // At once, and not when the watch looks up next.
    let _ = timeout(PATIENCE / 2, connection).await.expect("never closed");
    until("it is counted", || house.edge.stats().closed_by(Bound::Resets) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_the_librarys_bounds_is_closed_and_counted() {
    let house = House::clear(Bounds { resets_max: 10, ..wide() });
    let mut stream = house.connect().await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec();
    for id in (1..1000_u32).step_by(2) {
        flood.extend_from_slice(b"\x00\x00\x06\x01\x05");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\x82\x86\x84\x41\x01x\x00\x00\x04\x03\x00");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\x00\x00\x00\x08");
    }
    exchange(&mut stream, &flood).await;
    let stats = house.edge.stats();
    until("it is counted", || stats.closed_by(Bound::Protocol) + stats.closed_by(Bound::Resets) == 1).await;
}
