//! 1,000 malformed requests over HTTP/1, HTTP/2 and HTTP/3. Each gets a complete refusal with the CORS header.

use std::time::Duration;

use ipseity_testkit::client::quic::{Http3TestClient, Http3TestOptions};
use ipseity_testkit::client::streams::{StreamProtocol, StreamTestClient};
use ipseity_testkit::{Node, TestClient, TestResponse};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::shared_deployment;
use crate::proxies::{edge_env, snippet, start_nginx};

const LOOKUP_PATH: &str = "/api/v1/ip";
const HTTP1_ROUNDS: usize = 60;
const HTTP2_REQUESTS: usize = 200;
const HTTP3_REQUESTS: usize = 200;

fn assert_error_body(body: &Value, request: &str) {
    for field in ["error", "message", "docs"] {
        assert!(body[field].is_string(), "{request}: {body}");
    }
}

/// Requests that no parser accepts, with the status that each gets. They differ by round.
fn http1_requests(round: usize) -> [(String, &'static str); 10] {
    let (filler, control) = ("y".repeat(17_000 + 500 * round), char::from(1 + u8::try_from(round % 8).unwrap_or(1)));
    let head = format!("GET {LOOKUP_PATH}?round={round} HTTP/1.1\r\nconnection: close\r\nhost: localhost\r\n");
    [
        (format!("{round} nonsense\r\n\r\n"), "400"),
        (format!("GET {LOOKUP_PATH} HTTP/{}.7\r\nhost: localhost\r\n\r\n", round + 2), "400"),
        (format!("GET {LOOKUP_PATH}{control} HTTP/1.1\r\nhost: localhost\r\n\r\n"), "400"),
        (format!("{head}x-{round} : value\r\n\r\n"), "400"),
        (format!("{head}content-length: {round}\r\ncontent-length: {}\r\n\r\n", round + 1), "400"),
        (format!("{head}x: {control}\r\n\r\n"), "400"),
        (format!("{head}host: localhost\r\n\r\n"), "400"),
        (format!("GET {LOOKUP_PATH}?round={round} HTTP/1.1\r\nconnection: close\r\n\r\n"), "400"),
        (format!("{head}x: {filler}\r\n\r\n"), "431"),
        (format!("{head}{}\r\n", format!("x-{round}: y\r\n").repeat(101)), "431"),
    ]
}

async fn assert_http1_refusal(node: &Node, request: &str, status: &str) {
    let mut stream = TcpStream::connect(node.http()).await.expect("connection opens");
    stream.write_all(request.as_bytes()).await.expect("request is sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("reply is complete");
    let start: String = request.chars().take(60).collect();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{start:?}: {reply:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{start:?}: {head}");
    assert!(head.contains("access-control-allow-origin: *") && head.contains("x-request-id: "), "{start:?}: {head}");
    assert_error_body(&serde_json::from_str(body).expect("body is JSON"), &start);
}

fn assert_refusal(response: &TestResponse, request: &str) {
    assert!([400, 431].contains(&response.status), "{request}: {}", response.status);
    assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{request}");
    assert_error_body(&response.json().expect("body is JSON"), request);
}

/// Headers that HTTP/2 and HTTP/3 can carry, but that are too large, too many, or a wrong Host.
fn stream_headers(number: usize) -> (String, Vec<(String, String)>) {
    let name = format!("x-{number}");
    match number % 4 {
        0 => ("large header".to_owned(), vec![(name, "y".repeat(16_400 + 50 * number))]),
        1 => ("many headers".to_owned(), (0..101 + number).map(|_| (name.clone(), "y".to_owned())).collect()),
        2 => ("two hosts".to_owned(), vec![("host".to_owned(), "localhost".to_owned()); 2]),
        _ => ("invalid host".to_owned(), vec![("host".to_owned(), format!("a b/{number}"))]),
    }
}

fn as_pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_malformed_request_gets_a_complete_refusal() {
    let deployment = shared_deployment().await;
    let (node, ca_file) = (&deployment.nodes[0], &deployment.certificate.ca_file);
    for (request, status) in (0..HTTP1_ROUNDS).flat_map(http1_requests) {
        assert_http1_refusal(node, &request, status).await;
    }
    let mut http2 = StreamTestClient::new(node.https(), StreamProtocol::Http2, Some(ca_file)).expect("client");
    for number in 0..HTTP2_REQUESTS {
        let (kind, headers) = stream_headers(number);
        let response = http2.get(LOOKUP_PATH, &as_pairs(&headers)).await.expect("response arrives");
        assert_refusal(&response, &format!("HTTP/2, {kind} {number}"));
    }
    for number in 0..HTTP3_REQUESTS {
        // The client sends no wrong Host.
        let (kind, headers) = stream_headers(number / 2 * 4 + number % 2);
        let options = Http3TestOptions::localhost(node.https(), ca_file);
        let mut http3 = Http3TestClient::connect(options).await.expect("connection opens");
        let response = http3.get(LOOKUP_PATH, &as_pairs(&headers)).await.expect("response arrives");
        assert_refusal(&response, &format!("HTTP/3, {kind} {number}"));
        http3.close_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_a_tls_port_gets_a_readable_error() {
    let node = &shared_deployment().await.nodes[0];
    let mut stream = TcpStream::connect(node.https()).await.expect("connection opens");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("request is sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("reply is complete");
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.contains("This port expects HTTPS"), "{reply}");
}

/// Requests whose length a proxy and a server may read differently. The body starts another request.
fn ambiguous_requests() -> Vec<String> {
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let chunked = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    let post =
        |headers: &str, body: &str| format!("POST {LOOKUP_PATH} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{body}");
    let short = format!("0\r\n\r\n{smuggled}");
    let (all, all_chunked) = (smuggled.len(), chunked.len());
    vec![
        post(&format!("content-length: {all_chunked}\r\ntransfer-encoding: chunked\r\n"), &chunked),
        post("content-length: 5\r\ntransfer-encoding: chunked\r\n", &short),
        post("transfer-encoding: chunked\r\ncontent-length: 5\r\n", &short),
        post(&format!("content-length: 0\r\ncontent-length: {all}\r\n"), smuggled),
        post(&format!("content-length: 0, {all}\r\n"), smuggled),
        post(&format!("content-length: +{all}\r\n"), smuggled),
        post(&format!("content-length: 0x{all:x}\r\n"), smuggled),
        post(&format!("content-length : {all}\r\n"), smuggled),
        post(&format!("content-length:\r\n {all}\r\n"), smuggled),
        post("transfer-encoding: chunked, identity\r\n", &short),
        post("transfer-encoding: identity\r\ntransfer-encoding: chunked, x\r\n", &short),
        post("transfer-encoding : chunked\r\n", &short),
        post("transfer-encoding: xchunked\r\n", &short),
        post("transfer-encoding:\u{b}chunked\r\n", &short),
        post("transfer-encoding: chunked\r\n", &format!("0;\n\r\n{smuggled}")),
        post("transfer-encoding: chunked\r\n", &format!("-1\r\n\r\n{smuggled}")),
        post("transfer-encoding: chunked\r\n", &format!("fffffffffffffffff\r\n{smuggled}")),
        post("x: y\rtransfer-encoding: chunked\r\n", &short),
        post("x: y\0\r\ntransfer-encoding: xchunked\r\n", &short),
        format!("CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n{smuggled}"),
        format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: {all}\r\n\r\n{smuggled}"
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_length_never_starts_another_request() {
    let deployment = shared_deployment().await;
    let settings = edge_env(&[("PRESET", "nginx"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let nginx = start_nginx(&snippet("nginx"), node.http()).await;
    for address in [deployment.nodes[0].http(), nginx.addresses()[0]] {
        for request in ambiguous_requests() {
            let mut stream = TcpStream::connect(address).await.expect("connection opens");
            stream.write_all(request.as_bytes()).await.expect("request is sent");
            stream.shutdown().await.expect("sending side closes");
            let mut reply = Vec::new();
            // A reset is as good as a refusal.
            let _ = stream.read_to_end(&mut reply).await;
            let reply = String::from_utf8_lossy(&reply);
            assert!(reply.matches("HTTP/1.1 ").count() <= 1, "{request:?}: {reply}");
            let next = TestClient::new(address).get("/api/v1/meta", &[]).await;
            assert_eq!(next.expect("response arrives").status, 200, "after {request:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_form_body_gets_503_before_the_request_timeout() {
    let settings = [
        ("IPSEITY__LEDGER__TIMEOUT_MS", "200"),
        ("IPSEITY__STORE__TIMEOUT_MS", "500"),
        ("IPSEITY__PORTAL__QUERY_TIMEOUT_MS", "500"),
        ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "2000"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let node = shared_deployment().await.start_node(&settings).await.expect("node starts");
    let mut stream = TcpStream::connect(node.http()).await.expect("connection opens");
    let head = "POST /signin HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: same-origin\r\n\
                content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("header is sent");
    let mut start = [0; 12];
    for _ in 0..8 {
        // A byte now and then does not help.
        stream.write_all(b"a").await.expect("byte is sent");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    timeout(Duration::from_secs(4), stream.read_exact(&mut start)).await.expect("in time").expect("response arrives");
    assert_eq!(&start, b"HTTP/1.1 503");
}
