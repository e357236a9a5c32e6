//! The drain: what is finished, what is refused, what is dropped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use edge::{Bound, Bounds, Listener, Transport, Trust};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::house::{House, PATIENCE, SHORT, exchange, read_to_end, read_until, until, wide};
use crate::streams;

const HELD: &[u8] = b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n";
const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

async fn refuses(address: SocketAddr) {
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("it still listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_finished_and_nobody_new_is_taken() {
    let house = House::clear(wide());
    let (address, gate) = (house.address, house.gate.clone());
    let mut held = house.connect().await;
    held.write_all(HELD).await.expect("sent");
    gate.entered.notified().await;
    let (mut sender, connection) = streams::open(&house, 65_535).await;
    let stream = tokio::spawn(async move { streams::text(&mut sender, "/held").await });
    gate.entered.notified().await;

    let serving = house.drain();
    refuses(address).await;
    assert!(!serving.is_finished());
    gate.release.add_permits(2);

    let text = read_to_end(&mut held).await;
    assert!(text.ends_with("let go") && text.contains("connection: close"), "{text}");
    assert_eq!(stream.await.expect("a task"), "let go");
    timeout(PATIENCE, connection).await.expect("never closed").expect("a task").expect("closed in peace");
    timeout(PATIENCE, serving).await.expect("never ended").expect("a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_it_up() {
    let house = House::clear(wide());
    let mut idle = house.connect().await;
    idle.write_all(ASK).await.expect("sent");
    read_until(&mut idle, "colo=FRA").await;
    let (mut sender, _connection) = streams::open(&house, 65_535).await;
    streams::text(&mut sender, "/").await;
    let start = Instant::now();
    timeout(PATIENCE, house.drain()).await.expect("never ended").expect("a task");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(read_to_end(&mut idle).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_on_its_way_is_answered() {
    let house = House::clear(wide());
    let (address, edge) = (house.address, house.edge.clone());
    let mut fresh = house.connect().await;
    until("it is accepted", || edge.stats().open.value() == 1).await;
    let serving = house.drain();
    refuses(address).await;
    assert!(exchange(&mut fresh, ASK).await.contains("colo=FRA"));
    timeout(PATIENCE, serving).await.expect("never ended").expect("a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_crosses_the_drain_is_answered_and_told_to_close() {
    let house = House::clear(wide());
    let address = house.address;
    let mut kept = house.connect().await;
    kept.write_all(ASK).await.expect("sent");
    read_until(&mut kept, "colo=FRA").await;
    let serving = house.drain();
    refuses(address).await;
    let answer = exchange(&mut kept, ASK).await;
    assert!(answer.contains("connection: close") && answer.contains("colo=FRA"), "{answer}");
    timeout(PATIENCE, serving).await.expect("never ended").expect("a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_in_the_kernels_queue_are_answered() {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(TcpStream::connect(address).await.expect("a connection"));
    }
    let serving = House::on(listener, wide(), Trust::nobody(), Transport::Clear).drain();
    for stream in &mut waiting {
        assert!(exchange(stream, ASK).await.contains("colo=FRA"));
    }
    timeout(PATIENCE, serving).await.expect("never ended").expect("a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_outlives_the_drain_is_dropped() {
    let house = House::clear(Bounds { drain_timeout: SHORT, ..wide() });
    let edge = house.edge.clone();
    let mut held = house.connect().await;
    held.write_all(HELD).await.expect("sent");
    house.gate.entered.notified().await;
    timeout(PATIENCE, house.drain()).await.expect("never ended").expect("a task");
    assert_eq!(read_to_end(&mut held).await, "");
    assert_eq!((edge.stats().closed_by(Bound::Drain), edge.stats().open.value()), (1, 0));
}
