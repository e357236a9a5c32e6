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
    let beginnings: [&[u8]; 3] = [b"G", b"GET / HTTP/1.1\r\nhost:", b"PRI * HT"];
    for beginning in beginnings {
        let mut stream = house.connect().await;
        assert_eq!(exchange(&mut stream, beginning).await, "", "{beginning:?}");
    }
    until("all three are counted", || closed(&house) == [(Bound::Header, 3)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_no_byte_is_closed() {
    let bounds = Bounds { first_byte_timeout: SHORT, ..wide() };
    for house in
        [House::clear(bounds.clone()), House::open(bounds.clone(), Trust::nobody(), crate::house::Pair::issue().open())]
    {
        assert_eq!(read_to_end(&mut house.connect().await).await, "");
        until("it is counted", || closed(&house) == [(Bound::FirstByte, 1)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_holds_no_more_connections_than_its_share() {
    let house = House::clear(Bounds { connections_per_network_max: 2, ..wide() });
    let [one, other] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().expect("an address"));
    let mut held = vec![house.connect_from(one).await, house.connect_from(one).await];
    for stream in &mut held {
        stream.write_all(ASK).await.expect("sent");
        read_until(stream, "colo=FRA").await;
    }
    assert_eq!(read_to_end(&mut house.connect_from(one).await).await, "");
    assert_eq!(closed(&house), [(Bound::Network, 1)]);
    let mut neighbour = house.connect_from(other).await;
    neighbour.write_all(ASK).await.expect("sent");
    read_until(&mut neighbour, "colo=FRA").await;
    held.pop();
    until("the place is free", || house.edge.stats().open.value() == 2).await;
    let mut next = house.connect_from(one).await;
    next.write_all(ASK).await.expect("sent");
    read_until(&mut next, "colo=FRA").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_floods_keeps_its_place_for_a_while() {
    let bounds = Bounds { unasked_bytes_max: 10_000, connections_per_network_max: 1, flood_penalty: SHORT, ..wide() };
    let house = House::clear(bounds);
    let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00honestly";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    exchange(&mut house.connect().await, &[&preface[..], &ping.repeat(1000)].concat()).await;
    until("it is counted", || house.edge.stats().closed_by(Bound::Unasked) == 1).await;
    assert_eq!(exchange(&mut house.connect().await, ASK).await, "");
    assert_eq!(house.edge.stats().closed_by(Bound::Network), 1);
    let mut answered = false;
    for _ in 0..100 {
        let mut stream = house.connect().await;
        answered = exchange(&mut stream, b"GET / HTTP/1.0\r\n\r\n").await.contains("colo=FRA");
        if answered {
            break;
        }
        tokio::time::sleep(SHORT / 10).await;
    }
    assert!(answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_much_and_asks_nothing_is_closed() {
    let house = House::clear(Bounds { unasked_bytes_max: 10_000, ..wide() });
    let settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00honestly";
    // A request whose body never ends, in pieces of nothing.
    let ask = b"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x82\x86\x84\x41\x01x";
    let data = b"\x00\x00\x00\x00\x00\x00\x00\x00\x01";
    for (first, frame) in [(&settings[..], &settings[..]), (settings, ping), (ask, data)] {
        let mut stream = house.connect().await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let flood = [preface, &settings[..], first, &frame.repeat(30_000 / frame.len())].concat();
        exchange(&mut stream, &flood).await;
    }
    // The library closes the last one by a bound of its own, or we do.
    until("they are counted", || house.edge.stats().closed_by(Bound::Unasked) >= 2).await;
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
