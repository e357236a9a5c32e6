//! HTTP/3: the same answers as over TCP, under the same bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use edge::{Bound, Bounds, Trust};
use http::Method;
use rustls::CipherSuite;
use testkit::QuicCaller;
use testkit::quic::QuicOptions;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::house::{House, PATIENCE, Pair, SHORT, curl, until, wide};

async fn call(house: &House, pair: &Pair, suite: Option<CipherSuite>) -> Option<QuicCaller> {
    let options = QuicOptions { suite, ..QuicOptions::to(house.address, &pair.certificate_file) };
    QuicCaller::open(options).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_suite_of_tls_13_is_told_by_its_name() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    let suites = [
        (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
        (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
        (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
    ];
    for (suite, name) in suites {
        let mut caller = call(&house, &pair, Some(suite)).await.expect("a connection");
        assert_eq!(caller.protocol().as_deref(), Some(&b"h3"[..]));
        let reply = caller.get("/", &[]).await.expect("an answer");
        assert_eq!(reply.text(), format!("ip=127.0.0.1 protocol=HTTP/3 tls=TLSv1.3 cipher={name} rtt=short colo=FRA"));
        assert_eq!(reply.header("content-length"), Some(&*reply.body.len().to_string()));
        assert!(reply.header("date").is_some() && reply.header("alt-svc").is_none());
        caller.close().await;
    }
    until("all have gone", || house.edge.stats().open.value() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_over_tcp_name_the_port_of_http3() {
    let pair = Pair::issue();
    let house = House::open(wide(), Trust::nobody(), edge::Transport::Tls(pair.tls().announcing(4433)));
    for protocol in ["--http1.1", "--http2"] {
        let url = format!("https://{}/", house.address);
        let (code, head) = curl(&["--insecure", "--dump-header", "-", protocol, &url]).await;
        assert_eq!(code, 0, "{protocol}");
        assert!(head.to_ascii_lowercase().contains("alt-svc: h3=\":4433\"; ma=86400\r\n"), "{head}");
    }
    let networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let trust = Trust::new(networks, edge::ForwardingHeader::XForwardedFor).expect("a safe trust");
    let house = House::open(wide(), trust, edge::Transport::Tls(pair.tls().announcing(4433)));
    let url = format!("https://{}/", house.address);
    let (code, head) = curl(&["--insecure", "--dump-header", "-", "-HX-Forwarded-For: 192.0.2.1", &url]).await;
    assert_eq!(code, 0);
    assert!(!head.to_ascii_lowercase().contains("alt-svc"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_go_both_ways_up_to_their_bound() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    let body = Bytes::from(vec![b'b'; 60 << 10]);
    let reply = caller.send(Method::POST, "/echo", &[], body.clone()).await.expect("an answer");
    assert_eq!(reply.body, body);
    let reply = caller.get("/big", &[]).await.expect("an answer");
    assert_eq!(reply.body.len(), crate::house::BIG_BYTES);
    let huge = Bytes::from(vec![b'b'; 4 << 20]);
    let reply = caller.send(Method::POST, "/echo", &[], huge).await;
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.text() == "no whole body"));
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    assert_eq!(caller.get("/", &[]).await.expect("an answer").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_beyond_its_bound_is_refused() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    let within = "v".repeat(15 << 10);
    assert_eq!(caller.get("/", &[("x", &within)]).await.expect("an answer").status, 200);
    let beyond = "v".repeat(200 << 10);
    assert!(caller.get("/", &[("x", &beyond)]).await.is_err());
}

/// Opens raw streams, without HTTP/3's own client, and sends these bytes on each.
async fn raw(house: &House, pair: &Pair, bytes: &'static [u8], times: usize) -> (QuicCaller, Vec<quinn::SendStream>) {
    let caller = call(house, pair, None).await.expect("a connection");
    let mut streams = Vec::new();
    for _ in 0..times {
        let Ok(Ok((mut send, _))) = timeout(PATIENCE, caller.connection.open_bi()).await else { break };
        if send.write_all(bytes).await.is_err() {
            break;
        }
        streams.push(send);
    }
    (caller, streams)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_claims_to_be_endless_is_cut_off() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    for kind in [0x01_u8, 0x21] {
        // HEADERS, or a type that nobody knows, of 2^30 − 1 bytes.
        let caller = call(&house, &pair, None).await.expect("a connection");
        let (mut send, _receive) = caller.connection.open_bi().await.expect("a stream");
        send.write_all(&[kind, 0xbf, 0xff, 0xff, 0xff]).await.expect("sent");
        let mut sent = 0;
        let stopped = async {
            while send.write_all(&[0; 1024]).await.is_ok() {
                sent += 1024;
            }
        };
        timeout(PATIENCE, stopped).await.expect("it was never stopped");
        assert!(sent < 256 << 10, "{sent} bytes of frame {kind:#x} were taken");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_header_and_a_client_without_a_request_are_closed() {
    let pair = Pair::issue();
    let house = House::quic(Bounds { header_timeout: SHORT, resets_max: 3, ..wide() }, pair.tls());
    let silent = call(&house, &pair, None).await.expect("a connection");
    timeout(PATIENCE, silent.connection.closed()).await.expect("a silent client was never closed");
    assert_eq!(house.edge.stats().closed_by(Bound::Header), 1);
    let (slow, _streams) = raw(&house, &pair, &[0x01], 8).await;
    timeout(PATIENCE, slow.connection.closed()).await.expect("slow headers were never closed");
    assert_eq!(house.edge.stats().closed_by(Bound::Resets), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_sent_away() {
    let pair = Pair::issue();
    let house = House::quic(Bounds { idle_timeout: Duration::from_secs(1), ..wide() }, pair.tls());
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    assert_eq!(caller.get("/", &[]).await.expect("an answer").status, 200);
    timeout(PATIENCE, caller.connection.closed()).await.expect("it was never closed");
    until("the seat is free", || house.edge.stats().open.value() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_a_client_gives_up_are_counted_and_end_it() {
    let pair = Pair::issue();
    let house = House::quic(Bounds { resets_max: 10, ..wide() }, pair.tls());
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    let flood = async {
        // Each is given up once it is with the application.
        while timeout(Duration::from_millis(20), caller.get("/held", &[])).await.is_err() {}
    };
    timeout(PATIENCE, flood).await.expect("the flood was never ended");
    until("it is counted", || house.edge.stats().closed_by(Bound::Resets) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_callers_prove_their_address_first() {
    let pair = Pair::issue();
    let house = House::quic(Bounds { unproven_max: 0, ..wide() }, pair.tls());
    let mut caller = call(&house, &pair, None).await.expect("a connection");
    assert_eq!(caller.get("/", &[]).await.expect("an answer").status, 200);
    assert_eq!(house.edge.stats().retries.value(), 1);
    let house = House::quic(wide(), pair.tls());
    call(&house, &pair, None).await.expect("a connection");
    assert_eq!(house.edge.stats().retries.value(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_seat_is_refused_at_once() {
    let pair = Pair::issue();
    let house = House::quic(Bounds { connections_max: 1, ..wide() }, pair.tls());
    let first = call(&house, &pair, None).await.expect("a connection");
    let start = Instant::now();
    assert!(call(&house, &pair, None).await.is_none());
    assert!(start.elapsed() < Duration::from_secs(5));
    first.close().await;
    until("the seat is free", || house.edge.stats().open.value() == 0).await;
    call(&house, &pair, None).await.expect("a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drain_answers_what_was_asked_and_sends_everyone_away() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    let gate = house.gate.clone();
    let mut held = JoinSet::new();
    for _ in 0..5 {
        let mut caller = call(&house, &pair, None).await.expect("a connection");
        held.spawn(async move {
            let text = caller.get("/held", &[]).await.expect("an answer").text();
            timeout(PATIENCE, caller.connection.closed()).await.expect("it was never sent away");
            text
        });
        gate.entered.notified().await;
    }
    let mut idle = call(&house, &pair, None).await.expect("a connection");
    assert_eq!(idle.get("/", &[]).await.expect("an answer").status, 200);
    let serving = house.drain();
    timeout(PATIENCE, idle.connection.closed()).await.expect("an idle client was never sent away");
    assert!(idle.was_sent_away() && !serving.is_finished());
    gate.release.add_permits(5);
    assert!(held.join_all().await.iter().all(|text| text == "let go"));
    timeout(PATIENCE, serving).await.expect("never ended").expect("a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_early_data_is_ever_taken() {
    let pair = Pair::issue();
    let house = House::quic(wide(), pair.tls());
    let options = QuicOptions::to(house.address, &pair.certificate_file);
    let endpoint = testkit::quic::endpoint(&options).expect("an endpoint");
    let first = endpoint.connect(house.address, "localhost").expect("a call").await.expect("a connection");
    // A session's ticket comes after the handshake; when control streams have come, it has too.
    for _ in 0..3 {
        first.accept_uni().await.expect("a control stream");
    }
    first.close(0_u32.into(), b"");
    let again = endpoint.connect(house.address, "localhost").expect("a call");
    assert!(again.into_0rtt().is_err(), "the server's tickets allow early data");
}
