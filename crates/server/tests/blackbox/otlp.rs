//! OTLP export: traces and logs arrive without client data, and an unreachable collector does not slow requests.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{ReservedPort, eventually};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{fresh_key, shared_deployment};

const CANARY: &str = "203.0.113.77";

/// Path and body of every export.
type ReceivedExports = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A minimal collector: records every body and responds with 200.
async fn run_collector(listener: TcpListener, received: ReceivedExports) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(receive_exports(stream, Arc::clone(&received)));
    }
}

async fn receive_exports(stream: TcpStream, received: ReceivedExports) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut path, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        received.lock().expect("lock").push((path?, body));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}

fn otlp_env(port: u16) -> Env {
    let settings = [("ENDPOINT", format!("http://127.0.0.1:{port}")), ("TRACE_SAMPLE_RATIO", "1".to_owned())];
    let mut env: Env = settings.map(|(name, value)| (format!("IPSEITY__OTLP__{name}"), value)).into();
    env.insert("IPSEITY__LOG__ACCESS".to_owned(), "true".to_owned());
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_receives_spans_and_logs_without_client_data() {
    let deployment = shared_deployment().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind socket");
    let port = listener.local_addr().expect("local address").port();
    let received = ReceivedExports::default();
    let collector = tokio::spawn(run_collector(listener, Arc::clone(&received)));
    let mut node = deployment.start_node(&otlp_env(port)).await.expect("start node");
    let key = fresh_key(deployment, Scope::Full).await;
    let bearer = key.bearer();
    let headers = [("authorization", &*bearer), ("x-forwarded-for", CANARY)];
    for _ in 0..20 {
        assert_eq!(node.client().get("/api/v1/ip", &headers).await.expect("response").status, 200);
    }
    // A node flushes its queues before it exits.
    node.terminate().await.expect("stop node");
    collector.abort();
    let received = received.lock().expect("lock");
    let all = |of: &str| {
        received.iter().filter(|(path, _)| path == of).flat_map(|(_, body)| body.clone()).collect::<Vec<u8>>()
    };
    let (spans, lines) = (all("/v1/traces"), all("/v1/logs"));
    let count =
        |bytes: &[u8], what: &str| bytes.windows(what.len()).filter(|window| *window == what.as_bytes()).count();
    assert!(count(&spans, "charge") >= 20 && count(&spans, "lookup") >= 20, "{}", String::from_utf8_lossy(&spans));
    assert!(count(&lines, "duration_us") >= 20, "{}", String::from_utf8_lossy(&lines));
    for (name, bytes) in [("spans", &spans), ("lines", &lines)] {
        for needle in [CANARY, &*key.key, &*key.id] {
            assert_eq!(count(bytes, needle), 0, "{needle} in {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_collector_does_not_slow_requests() {
    let deployment = shared_deployment().await;
    let unused_port = ReservedPort::reserve_free().expect("free port");
    let mut node = deployment.start_node(&otlp_env(unused_port.address().port())).await.expect("start node");
    let start = Instant::now();
    for _ in 0..200 {
        assert_eq!(node.client().get("/api/v1/meta", &[]).await.expect("response").status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "200 requests took {:?}", start.elapsed());
    let is_logged = async || node.log().is_ok_and(|log| log.contains("opentelemetry"));
    eventually("the failure is logged", Duration::from_secs(20), is_logged).await.expect("happens in time");
    assert!(node.terminate().await.expect("stop node").success());
}
