//! The drain: which requests finish, which are refused, and which are dropped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipseity_edge::{CloseReason, EdgeLimits, Listener, Transport, Trust};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{
    EdgeFixture, SHORT_TIMEOUT, TEST_TIMEOUT, exchange, generous_limits, read_to_end, read_until, wait_until,
};
use crate::http2;

const HELD_REQUEST: &[u8] = b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n";
const GET_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

async fn wait_until_refused(address: SocketAddr) {
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(TEST_TIMEOUT, refused).await.expect("listener closes in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_finishes_requests_in_flight_and_stops_accepting() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let (address, gate) = (fixture.address, fixture.gate.clone());
    let mut held = fixture.connect().await;
    held.write_all(HELD_REQUEST).await.expect("bytes are sent");
    gate.entered.notified().await;
    let (mut sender, connection) = http2::connect_http2(&fixture, 65_535).await;
    let stream = tokio::spawn(async move { http2::get_text(&mut sender, "/held").await });
    gate.entered.notified().await;

    let server_task = fixture.start_drain();
    wait_until_refused(address).await;
    assert!(!server_task.is_finished());
    gate.release.add_permits(2);

    let text = read_to_end(&mut held).await;
    assert!(text.ends_with("released") && text.contains("connection: close"), "{text}");
    assert_eq!(stream.await.expect("task does not panic"), "released");
    timeout(TEST_TIMEOUT, connection)
        .await
        .expect("connection closes in time")
        .expect("task does not panic")
        .expect("connection closes gracefully");
    timeout(TEST_TIMEOUT, server_task).await.expect("drain ends in time").expect("task does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_the_drain() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let mut idle = fixture.connect().await;
    idle.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut idle, "colo=FRA").await;
    let (mut sender, _connection) = http2::connect_http2(&fixture, 65_535).await;
    http2::get_text(&mut sender, "/").await;
    let start = Instant::now();
    timeout(TEST_TIMEOUT, fixture.start_drain()).await.expect("drain ends in time").expect("task does not panic");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(read_to_end(&mut idle).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_request_sent_before_the_drain_is_served() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let (address, edge) = (fixture.address, fixture.edge.clone());
    let mut fresh = fixture.connect().await;
    wait_until("the connection is accepted", || edge.stats().connections_open.value() == 1).await;
    let server_task = fixture.start_drain();
    wait_until_refused(address).await;
    assert!(exchange(&mut fresh, GET_REQUEST).await.contains("colo=FRA"));
    timeout(TEST_TIMEOUT, server_task).await.expect("drain ends in time").expect("task does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_during_the_drain_gets_connection_close() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let address = fixture.address;
    let mut kept = fixture.connect().await;
    kept.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut kept, "colo=FRA").await;
    let server_task = fixture.start_drain();
    wait_until_refused(address).await;
    let response = exchange(&mut kept, GET_REQUEST).await;
    assert!(response.contains("connection: close") && response.contains("colo=FRA"), "{response}");
    timeout(TEST_TIMEOUT, server_task).await.expect("drain ends in time").expect("task does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_serves_connections_in_the_accept_queue() {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("port is free");
    let address = listener.local_addr().expect("socket is bound");
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(TcpStream::connect(address).await.expect("client connects"));
    }
    let server_task =
        EdgeFixture::start_on(listener, generous_limits(), Trust::none(), Transport::Plaintext).start_drain();
    for stream in &mut waiting {
        assert!(exchange(stream, GET_REQUEST).await.contains("colo=FRA"));
    }
    timeout(TEST_TIMEOUT, server_task).await.expect("drain ends in time").expect("task does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_open_after_the_drain_timeout_are_dropped() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { drain_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let edge = fixture.edge.clone();
    let mut held = fixture.connect().await;
    held.write_all(HELD_REQUEST).await.expect("bytes are sent");
    fixture.gate.entered.notified().await;
    timeout(TEST_TIMEOUT, fixture.start_drain()).await.expect("drain ends in time").expect("task does not panic");
    assert_eq!(read_to_end(&mut held).await, "");
    assert_eq!(
        (edge.stats().connections_closed(CloseReason::DrainTimeout), edge.stats().connections_open.value()),
        (1, 0)
    );
}
