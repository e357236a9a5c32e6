//! What clients get that send malformed, unusual or partial requests.

use std::time::{Duration, Instant};

use ipseity_edge::{EdgeLimits, Trust};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::fixture::{
    CertificateKeyPair, EdgeFixture, SHORT_TIMEOUT, TEST_TIMEOUT, curl, exchange, generous_limits, read_to_end,
    read_until, write_temp_file,
};

const REFUSAL_BODY: &str = "request refused\n";

fn assert_refused(reply: &str, status: &str) {
    assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")) && reply.ends_with(REFUSAL_BODY), "{reply}");
    let (head, body) = reply.split_once("\r\n\r\n").expect("reply has a header");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unparsable_http1_request_gets_the_refusal_of_the_application() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let long = "y".repeat(17_000);
    let longest = "y".repeat(60_000);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.2\r\nhost: x\r\n\r\n".to_owned(), "400"),
        ("GET /\u{1} HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nhost: x\r\nx-a : b\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nx: {long}\r\n\r\n"), "431"),
        (format!("GET /{longest} HTTP/1.1\r\nhost: x\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: y\r\n".repeat(200)), "431"),
    ] {
        assert_refused(&exchange(&mut fixture.connect().await, request.as_bytes()).await, status);
    }
    // After a valid request, in the same packet.
    let mut stream = fixture.connect().await;
    let replies = exchange(&mut stream, b"GET / HTTP/1.1\r\nhost: x\r\n\r\nnonsense\r\n\r\n").await;
    let (first, second) = replies.split_once("colo=FRA").expect("first request is answered");
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    assert_refused(second, "400");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_repeated_or_invalid_host_is_refused() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    for hosts in ["", "host: a\r\nhost: a\r\n", "host: a b/c\r\n", "host:\r\n", "host: user@x\r\n"] {
        let request = format!("GET / HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        assert_refused(&exchange(&mut fixture.connect().await, request.as_bytes()).await, "400");
    }
    for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nhost: [::1]:80\r\nconnection: close\r\n\r\n"] {
        let reply = exchange(&mut fixture.connect().await, request.as_bytes()).await;
        assert!(reply.contains(" 200 OK"), "{reply}");
    }
    let head = b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n";
    let reply = exchange(&mut fixture.connect().await, head).await;
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.ends_with("\r\n\r\n"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_header_is_refused_with_a_body_over_http2() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let url = format!("http://{}/", fixture.address);
    for length in [17_000, 50_000] {
        let header = format!("x: {}", "y".repeat(length));
        let arguments = ["--http2-prior-knowledge", "--write-out", "%{http_code}", "--header", &header, &url];
        assert_eq!(curl(&arguments).await, (0, format!("{REFUSAL_BODY}431")), "{length}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_a_tls_port_gets_a_readable_refusal() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start(generous_limits(), Trust::none(), pair.transport());
    assert_refused(&exchange(&mut fixture.connect().await, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await, "400");
    assert_eq!(fixture.edge.stats().handshakes_failed.value(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http1_connection_outlives_the_header_timeout() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { header_timeout: SHORT_TIMEOUT, ..generous_limits() });
    let mut stream = fixture.connect().await;
    for _ in 0..3 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("bytes are sent");
        read_until(&mut stream, "colo=FRA").await;
        sleep(SHORT_TIMEOUT * 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_nobody_reads_does_not_cost_the_response() {
    // Longer than curl waits for `100 Continue`.
    let limits = EdgeLimits { unread_body_timeout: Duration::from_secs(5), ..generous_limits() };
    let fixture = EdgeFixture::start_plaintext(limits);
    let url = format!("http://{}/", fixture.address);
    let [small, large] = [60_000, 1 << 20].map(|length| write_temp_file(&"x".repeat(length)));
    for (option, file, expect) in [
        ("--http1.1", &small, "expect:"),
        ("--http1.1", &small, "expect: 100-continue"),
        ("--http1.1", &large, "expect:"),
        ("--http2-prior-knowledge", &small, "expect:"),
        ("--http2-prior-knowledge", &small, "expect: 100-continue"),
    ] {
        let data = format!("@{}", file.display());
        let (code, text) = curl(&[option, "--data-binary", &data, "--header", expect, &url]).await;
        // curl reports 55 if it could not send the rest of a large body, and still has the response.
        assert!([0, 55].contains(&code) && text.starts_with("ip=127.0.0.1"), "{option} {expect}: {code} {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_does_not_wait_long_for_a_body_that_never_comes() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let start = Instant::now();
    let mut stream = fixture.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n").await.expect("bytes are sent");
    read_until(&mut stream, "colo=FRA").await;
    assert!((SHORT_TIMEOUT..Duration::from_secs(5)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_closes_its_sending_side_gets_its_response() {
    let fixture = EdgeFixture::start_plaintext(EdgeLimits { unread_body_timeout: TEST_TIMEOUT, ..generous_limits() });
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "colo=FRA"),
        ("GET /held HTTP/1.1\r\nhost: x\r\n\r\n", "released"),
        ("POST /held HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", "released"),
        ("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", "hello"),
        ("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
        // The rest of a body is not waited for.
        ("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\nhello", ""),
    ] {
        let release = async {
            if request.contains("/held") {
                fixture.gate.entered.notified().await;
                sleep(SHORT_TIMEOUT).await;
                fixture.gate.release.add_permits(1);
            }
        };
        let exchange = async {
            let mut stream = fixture.connect().await;
            stream.write_all(request.as_bytes()).await.expect("bytes are sent");
            stream.shutdown().await.expect("sending side closes");
            read_to_end(&mut stream).await
        };
        let start = Instant::now();
        let (reply, ()) = tokio::join!(exchange, release);
        assert!(reply.ends_with(expected), "{request}: {reply}");
        assert!(start.elapsed() < TEST_TIMEOUT / 2, "{request}: {:?}", start.elapsed());
    }
}
