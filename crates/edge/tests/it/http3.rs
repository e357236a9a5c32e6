//! HTTP/3: the same responses and limits as over TCP.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use ipseity_edge::{CloseReason, EdgeLimits, Trust};
use ipseity_testkit::Http3TestClient;
use ipseity_testkit::client::quic::Http3TestOptions;
use rustls::CipherSuite;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{CertificateKeyPair, EdgeFixture, SHORT_TIMEOUT, TEST_TIMEOUT, curl, generous_limits, wait_until};

async fn connect_quic(
    fixture: &EdgeFixture,
    pair: &CertificateKeyPair,
    suite: Option<CipherSuite>,
) -> Option<Http3TestClient> {
    let options = Http3TestOptions {
        cipher_suite: suite,
        ..Http3TestOptions::localhost(fixture.address, &pair.certificate_file)
    };
    Http3TestClient::connect(options).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_reports_every_tls13_cipher_suite() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    let suites = [
        (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
        (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
        (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
    ];
    for (suite, name) in suites {
        let mut client = connect_quic(&fixture, &pair, Some(suite)).await.expect("client connects");
        assert_eq!(client.alpn_protocol().as_deref(), Some(&b"h3"[..]));
        let reply = client.get("/", &[]).await.expect("response arrives");
        assert_eq!(reply.text(), format!("ip=127.0.0.1 protocol=HTTP/3 tls=TLSv1.3 cipher={name} rtt=short colo=FRA"));
        assert_eq!(reply.header("content-length"), Some(&*reply.body.len().to_string()));
        assert!(reply.header("date").is_some() && reply.header("alt-svc").is_none());
        client.close().await;
    }
    wait_until("all connections are closed", || fixture.edge.stats().connections_open.value() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_responses_advertise_http3_in_alt_svc() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start(
        generous_limits(),
        Trust::none(),
        ipseity_edge::Transport::Tls(pair.tls_config().with_alt_svc(4433)),
    );
    for protocol in ["--http1.1", "--http2"] {
        let url = format!("https://{}/", fixture.address);
        let (code, head) = curl(&["--insecure", "--dump-header", "-", protocol, &url]).await;
        assert_eq!(code, 0, "{protocol}");
        assert!(head.to_ascii_lowercase().contains("alt-svc: h3=\":4433\"; ma=86400\r\n"), "{head}");
    }
    let networks = vec!["127.0.0.0/8".parse().expect("network parses")];
    let trust = Trust::new(networks, ipseity_edge::ForwardingHeader::XForwardedFor).expect("trust is safe");
    let fixture = EdgeFixture::start(
        generous_limits(),
        trust,
        ipseity_edge::Transport::Tls(pair.tls_config().with_alt_svc(4433)),
    );
    let url = format!("https://{}/", fixture.address);
    let (code, head) = curl(&["--insecure", "--dump-header", "-", "-HX-Forwarded-For: 192.0.2.1", &url]).await;
    assert_eq!(code, 0);
    assert!(!head.to_ascii_lowercase().contains("alt-svc"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_body_limit_is_enforced() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    let body = Bytes::from(vec![b'b'; 60 << 10]);
    let reply = client.send(Method::POST, "/echo", &[], body.clone()).await.expect("response arrives");
    assert_eq!(reply.body, body);
    let reply = client.get("/big", &[]).await.expect("response arrives");
    assert_eq!(reply.body.len(), crate::fixture::LARGE_BODY_BYTES);
    let huge = Bytes::from(vec![b'b'; 4 << 20]);
    let reply = client.send(Method::POST, "/echo", &[], huge).await;
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.text() == "incomplete body"));
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    assert_eq!(client.get("/", &[]).await.expect("response arrives").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_http3_header_is_rejected() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    let within = "v".repeat(15 << 10);
    assert_eq!(client.get("/", &[("x", &within)]).await.expect("response arrives").status, 200);
    let beyond = "v".repeat(200 << 10);
    assert!(client.get("/", &[("x", &beyond)]).await.is_err());
}

/// Opens raw QUIC streams and sends these bytes on each.
async fn send_raw_streams(
    fixture: &EdgeFixture,
    pair: &CertificateKeyPair,
    bytes: &'static [u8],
    count: usize,
) -> (Http3TestClient, Vec<quinn::SendStream>) {
    let client = connect_quic(fixture, pair, None).await.expect("client connects");
    let mut streams = Vec::new();
    for _ in 0..count {
        let Ok(Ok((mut send, _))) = timeout(TEST_TIMEOUT, client.connection.open_bi()).await else { break };
        if send.write_all(bytes).await.is_err() {
            break;
        }
        streams.push(send);
    }
    (client, streams)
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_http3_frame_is_stopped() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    for kind in [0x01_u8, 0x21] {
        // HEADERS, or a frame of an unknown type, of 2^30 − 1 bytes.
        let client = connect_quic(&fixture, &pair, None).await.expect("client connects");
        let (mut send, _receive) = client.connection.open_bi().await.expect("stream opens");
        send.write_all(&[kind, 0xbf, 0xff, 0xff, 0xff]).await.expect("bytes are sent");
        let mut sent = 0;
        let stopped = async {
            while send.write_all(&[0; 1024]).await.is_ok() {
                sent += 1024;
            }
        };
        timeout(TEST_TIMEOUT, stopped).await.expect("stream is stopped in time");
        assert!(sent < 256 << 10, "{sent} bytes of frame {kind:#x} were accepted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_connection_without_a_complete_request_times_out() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(
        EdgeLimits { header_timeout: SHORT_TIMEOUT, resets_max: 3, ..generous_limits() },
        pair.tls_config(),
    );
    let silent = connect_quic(&fixture, &pair, None).await.expect("client connects");
    timeout(TEST_TIMEOUT, silent.connection.closed()).await.expect("silent client is closed in time");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::HeaderTimeout), 1);
    let (slow, _streams) = send_raw_streams(&fixture, &pair, &[0x01], 8).await;
    timeout(TEST_TIMEOUT, slow.connection.closed()).await.expect("slow client is closed in time");
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::StreamResets), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http3_connection_is_closed() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(
        EdgeLimits { idle_timeout: Duration::from_secs(1), ..generous_limits() },
        pair.tls_config(),
    );
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    assert_eq!(client.get("/", &[]).await.expect("response arrives").status, 200);
    timeout(TEST_TIMEOUT, client.connection.closed()).await.expect("connection closes in time");
    wait_until("the permit is free", || fixture.edge.stats().connections_open.value() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn canceled_http3_streams_close_the_connection() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(EdgeLimits { resets_max: 10, ..generous_limits() }, pair.tls_config());
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    let flood = async {
        // Each request is canceled once the application has it.
        while timeout(Duration::from_millis(20), client.get("/held", &[])).await.is_err() {}
    };
    timeout(TEST_TIMEOUT, flood).await.expect("flood ends in time");
    wait_until("the connection is counted", || fixture.edge.stats().connections_closed(CloseReason::StreamResets) == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quic_clients_must_complete_a_retry_under_load() {
    let pair = CertificateKeyPair::generate();
    let fixture =
        EdgeFixture::start_quic(EdgeLimits { quic_retry_threshold: 0, ..generous_limits() }, pair.tls_config());
    let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
    assert_eq!(client.get("/", &[]).await.expect("response arrives").status, 200);
    assert_eq!(fixture.edge.stats().quic_retries.value(), 1);
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    connect_quic(&fixture, &pair, None).await.expect("client connects");
    assert_eq!(fixture.edge.stats().quic_retries.value(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn quic_connection_over_the_limit_is_refused_immediately() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(EdgeLimits { connections_max: 1, ..generous_limits() }, pair.tls_config());
    let first = connect_quic(&fixture, &pair, None).await.expect("client connects");
    let start = Instant::now();
    assert!(connect_quic(&fixture, &pair, None).await.is_none());
    assert!(start.elapsed() < Duration::from_secs(5));
    first.close().await;
    wait_until("the permit is free", || fixture.edge.stats().connections_open.value() == 0).await;
    connect_quic(&fixture, &pair, None).await.expect("client connects");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_finishes_http3_requests_and_closes_connections() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    let gate = fixture.gate.clone();
    let mut held = JoinSet::new();
    for _ in 0..5 {
        let mut client = connect_quic(&fixture, &pair, None).await.expect("client connects");
        held.spawn(async move {
            let text = client.get("/held", &[]).await.expect("response arrives").text();
            timeout(TEST_TIMEOUT, client.connection.closed()).await.expect("connection closes in time");
            text
        });
        gate.entered.notified().await;
    }
    let mut idle = connect_quic(&fixture, &pair, None).await.expect("client connects");
    assert_eq!(idle.get("/", &[]).await.expect("response arrives").status, 200);
    let server_task = fixture.start_drain();
    timeout(TEST_TIMEOUT, idle.connection.closed()).await.expect("idle client is closed in time");
    assert!(idle.got_goaway() && !server_task.is_finished());
    gate.release.add_permits(5);
    assert!(held.join_all().await.iter().all(|text| text == "released"));
    timeout(TEST_TIMEOUT, server_task).await.expect("drain ends in time").expect("task does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn quic_early_data_is_never_accepted() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start_quic(generous_limits(), pair.tls_config());
    let options = Http3TestOptions::localhost(fixture.address, &pair.certificate_file);
    let endpoint = ipseity_testkit::client::quic::client_endpoint(&options).expect("client endpoint opens");
    let first =
        endpoint.connect(fixture.address, "localhost").expect("configuration is valid").await.expect("client connects");
    // The session ticket arrives after the handshake, but before the control streams.
    for _ in 0..3 {
        first.accept_uni().await.expect("control stream opens");
    }
    first.close(0_u32.into(), b"");
    let again = endpoint.connect(fixture.address, "localhost").expect("configuration is valid");
    assert!(again.into_0rtt().is_err(), "the server's tickets allow early data");
}
