//! Arbitrary bytes sent to real listeners: in clear, over TLS, and behind a PROXY header. Every connection ends, and so does nothing else.
#![no_main]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use domain::Client;
use edge::{Bounds, Drain, Edge, ForwardingHeader, Listener, Tls, Transport, Trust, serve};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

struct House {
    runtime: Runtime,
    doors: [SocketAddr; 4],
}

static HOUSE: LazyLock<House> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let doors = runtime.block_on(async {
        let behind = |transport| Transport::Announced(Box::new(transport));
        let tls = Transport::Tls(tls());
        [Transport::Clear, behind(Transport::Clear), tls.clone(), behind(tls)].map(open)
    });
    House { runtime, doors }
});

fn tls() -> Tls {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let files = ["certificate", "key"].map(|name| {
        std::env::temp_dir().join(format!("ipseity-fuzz-{}-{name}.pem", std::process::id()))
    });
    std::fs::write(&files[0], issued.cert.pem()).expect("a file");
    std::fs::write(&files[1], issued.signing_key.serialize_pem()).expect("a file");
    let tls = Tls::open(&files[0], &files[1]).expect("a pair");
    files.iter().for_each(|file| std::fs::remove_file(file).expect("the file is ours"));
    tls
}

fn open(transport: Transport) -> SocketAddr {
    let bounds = Bounds {
        connections_max: 100,
        connections_per_network_max: 100,
        accept_pause: SHORT,
        first_byte_timeout: SHORT,
        proxy_header_bytes_max: 1024,
        handshake_timeout: SHORT,
        header_timeout: SHORT,
        idle_timeout: SHORT,
        write_timeout: SHORT,
        drain_timeout: SHORT,
        header_bytes_max: 16384,
        header_lines_max: 100,
        streams_max: 100,
        resets_max: 100,
        unasked_bytes_max: 65536,
        flood_penalty: Duration::from_millis(1),
    };
    let trust = Trust::new(vec!["127.0.0.1/32".parse().expect("a network")], ForwardingHeader::Forwarded);
    let edge = Arc::new(Edge::new(bounds, trust.expect("a safe network"), None));
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (switch, drain) = Drain::new();
    // The doors stay open as long as the process does.
    std::mem::forget(switch);
    tokio::spawn(serve(listener, transport, edge, tower::service_fn(answer), drain));
    address
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert!(request.extensions().get::<Client>().is_some());
    Ok(Response::new(Full::new(Bytes::from_static(b"answered"))))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((door, bytes)) = bytes.split_first() else { return };
    let address = HOUSE.doors[usize::from(*door) % HOUSE.doors.len()];
    HOUSE.runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let mut heard = Vec::new();
        // A reset ends a connection as well as a farewell does.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the connection was never closed");
    });
});
