//! HTTP/3 on the built binary: the same interface, and the truth about the QUIC connection.

use std::net::UdpSocket;
use std::time::Duration;

use domain::Scope;
use serde_json::{Value, json};
use testkit::node::{Env, find_tool};
use testkit::quic::QuicOptions;
use testkit::{House, Line, Node, QuicCaller};

use crate::shared::{fresh_key, house};

const REQUESTS: usize = 12;
/// Noise of a busy machine is forgiven so often.
const TRIES_MAX: usize = 3;

async fn call(house: &House, node: &Node) -> QuicCaller {
    let options = QuicOptions::to(node.https(), &house.certificate.authority);
    QuicCaller::open(options).await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_over_quic_is_told_of_its_own_connection() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let mut caller = call(house, &house.nodes[0]).await;
    let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
    assert_eq!(reply.status, 200);
    let body = reply.json().expect("JSON");
    let told = ["ip", "http_protocol", "tls_version", "tls_cipher"].map(|name| body[name].clone());
    assert_eq!(told, ["127.0.0.1", "HTTP/3", "TLSv1.3", "TLS_AES_256_GCM_SHA384"].map(Value::from));
    assert!(body["rtt"].as_u64().is_some_and(|ms| ms < 1000), "{body}");
    assert_eq!(reply.header("x-ratelimit-limit"), Some("10000"));

    let forwarded = [("authorization", &*key.bearer()), ("x-forwarded-for", "198.51.100.77")];
    let body = caller.get("/api/v1/ip", &forwarded).await.expect("an answer").json().expect("JSON");
    let told = ["ip", "http_protocol", "tls_version", "tls_cipher", "rtt"].map(|name| body[name].clone());
    assert_eq!(told, [json!("198.51.100.77"), Value::Null, Value::Null, Value::Null, Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_preflights_are_the_same_over_quic() {
    let house = house().await;
    let mut quic = call(house, &house.nodes[0]).await;
    let mut tcp = house.nodes[0].caller();
    for path in ["/api/v1/ip", "/api/v1/nowhere", "/api/v1/meta", "/docs", "/api/v1/ip?scope=everything"] {
        for method in [http::Method::GET, http::Method::HEAD, http::Method::OPTIONS, http::Method::DELETE] {
            let over_quic = quic.send(method.clone(), path, &[], bytes::Bytes::new()).await.expect("an answer");
            let over_tcp = tcp.send(method.clone(), path, &[]).await.expect("an answer");
            assert_eq!(
                (over_quic.status, over_quic.body.len()),
                (over_tcp.status, over_tcp.body.len()),
                "{method} {path}"
            );
            let names = |headers: &http::HeaderMap| {
                let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
                names.sort();
                names
            };
            assert_eq!(names(&over_quic.headers), names(&over_tcp.headers), "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_callers_are_told_where_http3_is() {
    let house = house().await;
    let node = &house.nodes[0];
    let expected = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", node.https().port());
    for protocol in ["--http1.1", "--http2"] {
        let url = format!("https://{}/api/v1/meta", node.https());
        let head = house.curl(&["--head", protocol, &url]).await.expect("curl").success().expect("an answer").text();
        assert!(head.to_ascii_lowercase().contains(&expected), "{head}");
    }
    let clear = node.caller().get("/api/v1/meta", &[]).await.expect("an answer");
    assert_eq!(clear.header("alt-svc"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_turns_http3_off() {
    let house = house().await;
    let off: Env = [("IPSEITY__EDGE__HTTP3".to_owned(), "false".to_owned())].into();
    let node = house.start_node(&off).await.expect("a node");
    let url = format!("https://{}/api/v1/meta", node.https());
    let head = house.curl(&["--head", &url]).await.expect("curl").success().expect("an answer").text();
    assert!(!head.to_ascii_lowercase().contains("alt-svc"), "{head}");
    UdpSocket::bind(node.https()).expect("nobody listens there");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are the point")]
async fn rtt_over_quic_is_the_delay_of_the_clients_own_line() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let h3get = find_tool("h3get").expect("a built test kit");
    for each_way_ms in [40, 15] {
        let line = Line::open(Duration::from_millis(each_way_ms)).expect("a line");
        let free = UdpSocket::bind((line.server(), 0)).and_then(|port| port.local_addr()).expect("a port").to_string();
        let node = house.start_node(&[("IPSEITY__EDGE__HTTPS".to_owned(), free.clone())].into()).await.expect("a node");
        let line_ms = 2 * each_way_ms;
        let expected_ms = line_ms - line_ms / 10..=line_ms + line_ms / 10;
        let authorization = format!("authorization: {}", key.bearer());
        let (count, authority) = (REQUESTS.to_string(), house.certificate.authority.display().to_string());
        let mut settled = false;
        for _ in 0..TRIES_MAX {
            let arguments = [&*count, &free, "localhost", &authority, "/api/v1/ip", &authorization];
            let output = line.run(&h3get, &arguments).await.expect("h3get").success().expect("answers").text();
            let bodies = output.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let told_ms: Vec<_> = bodies.map(|body| body["rtt"].as_u64().expect("a time")).collect();
            println!("{line_ms} ms, HTTP/3: rtt {told_ms:?}, expected {expected_ms:?}");
            settled = told_ms.last().is_some_and(|ms| expected_ms.contains(ms));
            if settled {
                break;
            }
        }
        assert!(settled, "not in {expected_ms:?} in {TRIES_MAX} tries");
        drop(node);
    }
}
