//! Bounds of every connection, shown with HTTP/1.

use std::time::Duration;

use edge::{Bound, Bounds, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::house::{BIG_BYTES, House, SHORT, curl, exchange, read_to_end, read_until, until, wide};

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn closed(house: &House) -> Vec<(Bound, u64)> {
    let stats = house.edge.stats();
    Bound::ALL.into_iter().map(|bound| (bound, stats.closed_by(bound))).filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_no_whole_header_is_closed() {
    let house = House::clear(Bounds { header_timeout: SHORT, ..wide() });
    let beginnings: [&[u8]; 4] = [b"", b"G", b"GET / HTTP/1.1\r\nhost:", b"PRI * HT"];
    for beginning in beginnings {
        let mut stream = house.connect().await;
        assert_eq!(exchange(&mut stream, beginning).await, "", "{beginning:?}");
    }
    until("all four are counted", || closed(&house) == [(Bound::Header, 4)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_header_after_an_answer_is_closed() {
    let house = House::clear(Bounds { header_timeout: SHORT, ..wide() });
    let mut stream = house.connect().await;
    stream.write_all(ASK).await.expect("sent");
    read_until(&mut stream, "colo=FRA").await;
    assert_eq!(exchange(&mut stream, b"GET / HTT").await, "");
    until("it is counted", || closed(&house) == [(Bound::Header, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed() {
    let house = House::clear(Bounds { idle_timeout: SHORT, ..wide() });
    let mut stream = house.connect().await;
    stream.write_all(ASK).await.expect("sent");
    read_until(&mut stream, "colo=FRA").await;
    assert_eq!(read_to_end(&mut stream).await, "");
    until("it is counted", || closed(&house) == [(Bound::Idle, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_nothing_is_closed() {
    let house = House::clear(Bounds { write_timeout: SHORT, ..wide() });
    let mut stream = house.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    until("the stall is counted", || closed(&house) == [(Bound::Write, 1)]).await;
    until("the connection is gone", || house.edge.stats().open.value() == 0).await;
    assert!(read_to_end(&mut stream).await.len() < BIG_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_slowly_is_served() {
    let house = House::clear(Bounds { write_timeout: Duration::from_secs(1), ..wide() });
    let mut stream = house.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    read_until(&mut stream, "\r\n\r\n").await;
    // Eight pieces at this pace take longer than the bound, and none of them does.
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    let mut piece = vec![0; BIG_BYTES / 8];
    for _ in 0..8 {
        pace.tick().await;
        stream.read_exact(&mut piece).await.expect("a piece");
    }
    assert_eq!(closed(&house), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_connections_are_held_than_allowed() {
    let house = House::clear(Bounds { connections_max: 2, ..wide() });
    let (mut first, mut second, mut third) = (house.connect().await, house.connect().await, house.connect().await);
    for stream in [&mut first, &mut second] {
        stream.write_all(ASK).await.expect("sent");
        read_until(stream, "colo=FRA").await;
    }
    third.write_all(ASK).await.expect("sent");
    assert_eq!((house.edge.stats().accepted.value(), house.edge.stats().open.value()), (2, 2));
    drop(first);
    read_until(&mut third, "colo=FRA").await;
    assert_eq!((house.edge.stats().accepted.value(), house.edge.stats().open.value()), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_block_beyond_its_bounds_is_refused() {
    let house = House::clear(Bounds { header_bytes_max: 2000, header_lines_max: 20, ..wide() });
    let url = format!("http://{}/", house.address);
    let long = format!("x: {}", "y".repeat(3000));
    let mut stream = house.connect().await;
    let many = "x: y\r\n".repeat(30);
    let text = exchange(&mut stream, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    for option in ["--http1.1", "--http2-prior-knowledge"] {
        let (_, status) = curl(&[option, "--write-out", "%{http_code}", "--header", &long, &url]).await;
        assert_eq!(status, "431", "{option}");
    }
    let (_, status) = curl(&["--output", "/dev/null", "--write-out", "%{http_code}", &url]).await;
    assert_eq!(status, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_outlives_its_connections() {
    let house = House::open(wide(), Trust::nobody(), edge::Transport::Clear);
    for _ in 0..50 {
        let mut stream = house.connect().await;
        stream.write_all(b"\x00\xff nonsense\r\n\r\n").await.expect("sent");
        read_to_end(&mut stream).await;
    }
    let (code, _) = curl(&[&format!("http://{}/", house.address)]).await;
    assert_eq!(code, 0);
    until("all seats are free", || house.edge.stats().open.value() == 0).await;
}
