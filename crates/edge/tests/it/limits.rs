//! Limits of every connection, tested over HTTP/1.

use std::time::{Duration, Instant};

use ipseity_edge::{CloseReason, EdgeLimits, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::fixture::{
    EdgeFixture, LARGE_BODY_BYTES, SHORT_TIMEOUT, curl, exchange, generous_limits, read_to_end, read_until, wait_until,
};

const GET_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn close_counts(fixture: &EdgeFixture) -> Vec<(CloseReason, u64)> {
    let stats = fixture.edge.stats();
    CloseReason::ALL
        .into_iter()
        .map(|reason| (reason, stats.connections_closed(reason)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_request_header_times_out() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { header_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let partial_requests: [&[u8]; 3] = [b"G", b"GET / HTTP/1.1\r\nhost:", b"PRI * HT"];
    for partial_request in partial_requests {
        let mut stream = fixture.connect().await;
        assert_eq!(exchange(&mut stream, partial_request).await, "", "{partial_request:?}");
    }
    wait_until("all three connections are counted", || close_counts(&fixture) == [(CloseReason::HeaderTimeout, 3)])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_a_first_byte_times_out() {
    let limits = EdgeLimits { first_byte_timeout: SHORT_TIMEOUT, ..generous_limits() };
    for fixture in [
        EdgeFixture::start_plaintext(limits.clone()),
        EdgeFixture::start(limits.clone(), Trust::none(), crate::fixture::CertificateKeyPair::generate().transport()),
    ] {
        assert_eq!(read_to_end(&mut fixture.connect().await).await, "");
        wait_until("the connection is counted", || close_counts(&fixture) == [(CloseReason::FirstByteTimeout, 1)])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subnet_connection_limit_is_enforced() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { connections_per_subnet_max: 2, ..generous_limits() });
    let [one, other] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().expect("address parses"));
    let mut held = vec![fixture.connect_from(one).await, fixture.connect_from(one).await];
    for stream in &mut held {
        stream.write_all(GET_REQUEST).await.expect("bytes are sent");
        read_until(stream, "colo=FRA").await;
    }
    assert_eq!(read_to_end(&mut fixture.connect_from(one).await).await, "");
    assert_eq!(close_counts(&fixture), [(CloseReason::SubnetLimit, 1)]);
    let mut other_client = fixture.connect_from(other).await;
    other_client.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut other_client, "colo=FRA").await;
    held.pop();
    wait_until("the permit is free", || fixture.edge.stats().connections_open.value() == 2).await;
    let mut next = fixture.connect_from(one).await;
    next.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut next, "colo=FRA").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_beyond_the_subnet_limit_waits_unless_a_tenth_of_all_do() {
    let limits = EdgeLimits {
        connections_max: 20,
        connections_per_subnet_max: 1,
        refusal_delay: SHORT_TIMEOUT,
        ..generous_limits()
    };
    let fixture = EdgeFixture::start_plaintext(limits);
    let mut held = fixture.connect().await;
    held.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut held, "colo=FRA").await;
    let start = Instant::now();
    let mut ends = JoinSet::new();
    for _ in 0..3 {
        let mut refused = fixture.connect().await;
        ends.spawn(async move {
            assert_eq!(read_to_end(&mut refused).await, "");
            start.elapsed() >= SHORT_TIMEOUT
        });
    }
    let waited = ends.join_all().await.into_iter().filter(|has_waited| *has_waited).count();
    assert_eq!((waited, close_counts(&fixture)), (2, vec![(CloseReason::SubnetLimit, 3)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_connection_counts_until_the_penalty_ends() {
    let limits = EdgeLimits {
        unsolicited_bytes_max: 10_000,
        connections_per_subnet_max: 1,
        flood_penalty: SHORT_TIMEOUT,
        ..generous_limits()
    };
    let fixture = EdgeFixture::start_plaintext(limits);
    let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00honestly";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    exchange(&mut fixture.connect().await, &[&preface[..], &ping.repeat(1000)].concat()).await;
    wait_until("the connection is counted", || {
        fixture.edge.stats().connections_closed(CloseReason::UnsolicitedBytes) == 1
    })
    .await;
    assert_eq!(exchange(&mut fixture.connect().await, GET_REQUEST).await, "");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::SubnetLimit), 1);
    let mut is_served = false;
    for _ in 0..100 {
        let mut stream = fixture.connect().await;
        is_served = exchange(&mut stream, b"GET / HTTP/1.0\r\n\r\n").await.contains("colo=FRA");
        if is_served {
            break;
        }
        tokio::time::sleep(SHORT_TIMEOUT / 10).await;
    }
    assert!(is_served);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsolicited_bytes_close_the_connection() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { unsolicited_bytes_max: 10_000, ..generous_limits() });
    let settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00honestly";
    // A request whose body never ends, in empty frames.
    let headers_frame = b"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x82\x86\x84\x41\x01x";
    let data = b"\x00\x00\x00\x00\x00\x00\x00\x00\x01";
    for (first, frame) in [(&settings[..], &settings[..]), (settings, ping), (headers_frame, data)] {
        let mut stream = fixture.connect().await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let flood = [preface, &settings[..], first, &frame.repeat(30_000 / frame.len())].concat();
        exchange(&mut stream, &flood).await;
    }
    // Either the watchdog or a built-in limit of h2 closes the last one.
    wait_until("the connections are counted", || {
        fixture.edge.stats().connections_closed(CloseReason::UnsolicitedBytes) >= 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_header_after_a_response_times_out() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { header_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let mut stream = fixture.connect().await;
    stream.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut stream, "colo=FRA").await;
    assert_eq!(exchange(&mut stream, b"GET / HTT").await, "");
    wait_until("the connection is counted", || close_counts(&fixture) == [(CloseReason::HeaderTimeout, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http1_connection_is_closed() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { idle_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let mut stream = fixture.connect().await;
    stream.write_all(GET_REQUEST).await.expect("bytes are sent");
    read_until(&mut stream, "colo=FRA").await;
    assert_eq!(read_to_end(&mut stream).await, "");
    wait_until("the connection is counted", || close_counts(&fixture) == [(CloseReason::IdleTimeout, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_reads_nothing_is_closed() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { write_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let mut stream = fixture.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("bytes are sent");
    wait_until("the stall is counted", || close_counts(&fixture) == [(CloseReason::WriteTimeout, 1)]).await;
    wait_until("the connection is closed", || fixture.edge.stats().connections_open.value() == 0).await;
    assert!(read_to_end(&mut stream).await.len() < LARGE_BODY_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_reads_slowly_is_served() {
    let fixture =
        EdgeFixture::start_plaintext(EdgeLimits { write_timeout: Duration::from_secs(1), ..generous_limits() });
    let mut stream = fixture.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("bytes are sent");
    read_until(&mut stream, "\r\n\r\n").await;
    // Eight chunks at this pace take longer than the timeout, but no single one does.
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    let mut piece = vec![0; LARGE_BODY_BYTES / 8];
    for _ in 0..8 {
        pace.tick().await;
        stream.read_exact(&mut piece).await.expect("chunk arrives");
    }
    assert_eq!(close_counts(&fixture), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn total_connection_limit_is_enforced() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { connections_max: 2, ..generous_limits() });
    let (mut first, mut second, mut third) =
        (fixture.connect().await, fixture.connect().await, fixture.connect().await);
    for stream in [&mut first, &mut second] {
        stream.write_all(GET_REQUEST).await.expect("bytes are sent");
        read_until(stream, "colo=FRA").await;
    }
    third.write_all(GET_REQUEST).await.expect("bytes are sent");
    assert_eq!(
        (fixture.edge.stats().connections_accepted.value(), fixture.edge.stats().connections_open.value()),
        (2, 2)
    );
    drop(first);
    read_until(&mut third, "colo=FRA").await;
    assert_eq!(
        (fixture.edge.stats().connections_accepted.value(), fixture.edge.stats().connections_open.value()),
        (3, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_request_header_is_rejected_with_431() {
    let fixture =
        EdgeFixture::start_plaintext(EdgeLimits { header_bytes_max: 2000, headers_max: 20, ..generous_limits() });
    let url = format!("http://{}/", fixture.address);
    let long = format!("x: {}", "y".repeat(3000));
    let mut stream = fixture.connect().await;
    let many = "x: y\r\n".repeat(30);
    let text = exchange(&mut stream, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    for option in ["--http1.1", "--http2-prior-knowledge"] {
        let (_, text) = curl(&[option, "--write-out", "%{http_code}", "--header", &long, &url]).await;
        assert_eq!(text, "request refused\n431", "{option}");
    }
    let (_, status) = curl(&["--output", "/dev/null", "--write-out", "%{http_code}", &url]).await;
    assert_eq!(status, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_survives_malformed_requests() {
    let fixture = EdgeFixture::start(generous_limits(), Trust::none(), ipseity_edge::Transport::Plaintext);
    for _ in 0..50 {
        let mut stream = fixture.connect().await;
        stream.write_all(b"\x00\xff nonsense\r\n\r\n").await.expect("bytes are sent");
        read_to_end(&mut stream).await;
    }
    let (code, _) = curl(&[&format!("http://{}/", fixture.address)]).await;
    assert_eq!(code, 0);
    wait_until("all permits are free", || fixture.edge.stats().connections_open.value() == 0).await;
}
