//! HTTP/3 on the built binary: the same API, and correct fields of the QUIC connection.

use std::net::UdpSocket;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::deployment::node::{Env, find_test_binary};
use ipseity_testkit::{DelayedLink, Deployment, Http3TestClient, Node};
use serde_json::{Value, json};

use crate::fixture::{fresh_key, shared_deployment};

const REQUESTS: usize = 12;
/// Retries on a busy machine.
const ATTEMPTS_MAX: usize = 3;

async fn connect_http3(deployment: &Deployment, node: &Node) -> Http3TestClient {
    let options = Http3TestOptions::localhost(node.https(), &deployment.certificate.ca_file);
    Http3TestClient::connect(options).await.expect("connection opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_client_sees_its_connection_facts() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let mut caller = connect_http3(deployment, &deployment.nodes[0]).await;
    let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
    assert_eq!(reply.status, 200);
    let body = reply.json().expect("valid JSON");
    let reported = ["ip", "http_protocol", "tls_version", "tls_cipher"].map(|name| body[name].clone());
    assert_eq!(reported, ["127.0.0.1", "HTTP/3", "TLSv1.3", "TLS_AES_256_GCM_SHA384"].map(Value::from));
    assert!(body["rtt"].as_u64().is_some_and(|ms| ms < 1000), "{body}");
    assert_eq!(reply.header("x-ratelimit-limit"), Some("10000"));

    let forwarded = [("authorization", &*key.bearer()), ("x-forwarded-for", "198.51.100.77")];
    let body = caller.get("/api/v1/ip", &forwarded).await.expect("response arrives").json().expect("valid JSON");
    let reported = ["ip", "http_protocol", "tls_version", "tls_cipher", "rtt"].map(|name| body[name].clone());
    assert_eq!(reported, [json!("198.51.100.77"), Value::Null, Value::Null, Value::Null, Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_preflights_match_over_http3() {
    let deployment = shared_deployment().await;
    let mut quic = connect_http3(deployment, &deployment.nodes[0]).await;
    let mut tcp = deployment.nodes[0].client();
    for path in ["/api/v1/ip", "/api/v1/nowhere", "/api/v1/meta", "/docs", "/api/v1/ip?scope=everything"] {
        for method in [http::Method::GET, http::Method::HEAD, http::Method::OPTIONS, http::Method::DELETE] {
            let over_quic = quic.send(method.clone(), path, &[], bytes::Bytes::new()).await.expect("response arrives");
            let over_tcp = tcp.send(method.clone(), path, &[]).await.expect("response arrives");
            assert_eq!(
                (over_quic.status, over_quic.body.len()),
                (over_tcp.status, over_tcp.body.len()),
                "{method} {path}"
            );
            let names = |headers: &http::HeaderMap| {
                let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
                // Sent over TLS only.
                names.retain(|name| name != "strict-transport-security");
                names.sort();
                names
            };
            assert_eq!(names(&over_quic.headers), names(&over_tcp.headers), "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alt_svc_is_sent_over_tls_only() {
    let deployment = shared_deployment().await;
    let node = &deployment.nodes[0];
    let expected = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", node.https().port());
    for protocol in ["--http1.1", "--http2"] {
        let url = format!("https://{}/api/v1/meta", node.https());
        let head = deployment
            .curl(&["--head", protocol, &url])
            .await
            .expect("curl runs")
            .ensure_success()
            .expect("request succeeds")
            .text();
        assert!(head.to_ascii_lowercase().contains(&expected), "{head}");
    }
    let clear = node.client().get("/api/v1/meta", &[]).await.expect("response arrives");
    assert_eq!(clear.header("alt-svc"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_can_be_disabled() {
    let deployment = shared_deployment().await;
    let off: Env = [("IPSEITY__EDGE__HTTP3".to_owned(), "false".to_owned())].into();
    let node = deployment.start_node(&off).await.expect("node starts");
    let url = format!("https://{}/api/v1/meta", node.https());
    let head =
        deployment.curl(&["--head", &url]).await.expect("curl runs").ensure_success().expect("request succeeds").text();
    assert!(!head.to_ascii_lowercase().contains("alt-svc"), "{head}");
    UdpSocket::bind(node.https()).expect("port is free");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are printed")]
async fn rtt_over_http3_matches_the_link_delay() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let h3get = find_test_binary("h3get").expect("testkit is built");
    for one_way_ms in [40, 15] {
        let link = DelayedLink::open(Duration::from_millis(one_way_ms)).expect("create a link");
        let free =
            UdpSocket::bind((link.server_ip(), 0)).and_then(|port| port.local_addr()).expect("bind a port").to_string();
        let node = deployment
            .start_node(&[("IPSEITY__EDGE__HTTPS".to_owned(), free.clone())].into())
            .await
            .expect("node starts");
        let link_rtt_ms = 2 * one_way_ms;
        let expected_ms = link_rtt_ms - link_rtt_ms / 10..=link_rtt_ms + link_rtt_ms / 10;
        let authorization = format!("authorization: {}", key.bearer());
        let (count, authority) = (REQUESTS.to_string(), deployment.certificate.ca_file.display().to_string());
        let mut has_converged = false;
        for _ in 0..ATTEMPTS_MAX {
            let arguments = [&*count, &free, "localhost", &authority, "/api/v1/ip", &authorization];
            let output = link
                .run_program(&h3get, &arguments)
                .await
                .expect("h3get runs")
                .ensure_success()
                .expect("responses arrive")
                .text();
            let bodies = output.lines().map(|link| serde_json::from_str::<Value>(link).expect("valid JSON"));
            let reported_ms: Vec<_> = bodies.map(|body| body["rtt"].as_u64().expect("valid time")).collect();
            println!("{link_rtt_ms} ms, HTTP/3: rtt {reported_ms:?}, expected {expected_ms:?}");
            has_converged = reported_ms.last().is_some_and(|ms| expected_ms.contains(ms));
            if has_converged {
                break;
            }
        }
        assert!(has_converged, "not in {expected_ms:?} after {ATTEMPTS_MAX} attempts");
        drop(node);
    }
}
