//! Invalid input: malformed, truncated, too long or too late requests, handshakes and PROXY headers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ipseity_testkit::{Node, TestClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

use super::canaries::PEER;
use super::fixture::{PROXY_PROTOCOL_NODE, PrivacyFixture};
use super::routes::{LOOKUP_PATH, as_str_pairs};

/// Longer than any timeout of an idle connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
const PROXY_V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

pub(crate) async fn send_malformed_input(fixture: &PrivacyFixture) {
    let nodes = &fixture.deployment().nodes;
    for node in [&nodes[0], &nodes[PROXY_PROTOCOL_NODE]] {
        malformed_requests(fixture, node).await;
    }
    incomplete_requests(fixture, &nodes[0]).await;
    handshakes(fixture, &nodes[0]).await;
    datagrams(fixture, &nodes[0]);
    proxy_headers(fixture, &nodes[PROXY_PROTOCOL_NODE]).await;
    untrusted_peers(fixture).await;
}

/// Malformed requests, each with addresses and a key.
async fn malformed_requests(fixture: &PrivacyFixture, node: &Node) {
    for key in &fixture.keys {
        let (address, long) = (fixture.canaries.next_spelling(), "x".repeat(20_000));
        let head = format!("Host: x\r\nX-Forwarded-For: {address}\r\nAuthorization: Bearer {key}\r\n");
        let lines: String = (0..200).map(|number| format!("X-{number}: {address}\r\n")).collect();
        for request in [
            format!("GET {LOOKUP_PATH}?key={key}&ip={address}&{long} HTTP/1.1\r\n{head}\r\n"),
            format!("GET {LOOKUP_PATH}?key={key}&{} HTTP/1.1\r\n{head}\r\n", &long[..6_000]),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}X-Long: {long}\r\n\r\n"),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}{lines}\r\n"),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}{key} {address}\r\n\r\n"),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}X-Forwarded-For: {address}\u{1}\r\n\r\n"),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}Content-Length: {address}\r\n\r\n"),
            format!("POST /signin HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n{key} {address}\r\n"),
            format!("GET {LOOKUP_PATH} HTTP/1.1\r\n{head}"),
            format!("GET http://{address}/?key={key} HTTP/9.9\r\n{head}\r\n"),
            format!("CONNECT {address}:443 HTTP/1.1\r\n{head}\r\n"),
            format!("{key} {address}\r\n\r\n"),
            format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{head}{key}{address}"),
        ] {
            send_bytes(fixture, node.http(), request.as_bytes(), true).await;
            send_bytes(fixture, node.https(), request.as_bytes(), true).await;
        }
    }
}

/// Incomplete requests, which the service must end.
async fn incomplete_requests(fixture: &PrivacyFixture, node: &Node) {
    let (key, address) = (&fixture.keys[0], fixture.canaries.next_spelling());
    let partial_head = format!("GET {LOOKUP_PATH}?key={key} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {address}\r\n");
    let body = format!(
        "POST /signin?key={key} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {address}\r\nContent-Length: 9\r\n\r\n{key}"
    );
    tokio::join!(
        send_bytes(fixture, node.http(), partial_head.as_bytes(), false),
        send_bytes(fixture, node.http(), body.as_bytes(), false),
        send_bytes(fixture, node.https(), partial_head.as_bytes(), false),
    );
}

/// Sends bytes and reads until the connection ends, which it must.
async fn send_bytes(fixture: &PrivacyFixture, server: SocketAddr, bytes: &[u8], closes_after: bool) {
    send_and_drain(fixture, TcpStream::connect(server).await.expect("connection opens"), bytes, closes_after).await;
}

async fn connect_from(source: Ipv4Addr, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("open a socket");
    socket.bind((source, 0).into()).expect("bind the source address");
    socket.connect(server).await.expect("connection opens")
}

async fn send_and_drain(fixture: &PrivacyFixture, mut stream: TcpStream, bytes: &[u8], closes_after: bool) {
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    if closes_after {
        let _ = stream.shutdown().await;
    }
    let mut response = Vec::new();
    let read = tokio::time::timeout(CLOSE_TIMEOUT, stream.read_to_end(&mut response)).await;
    let sent_text = String::from_utf8_lossy(bytes);
    assert!(read.is_ok(), "the connection is still open after {:?}", sent_text.chars().take(40).collect::<String>());
    let status =
        response.strip_prefix(b"HTTP/1.1 ").and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok());
    status.into_iter().for_each(|status| fixture.record_status(status));
}

/// Successful and failed TLS handshakes, with keys and addresses as the server name.
async fn handshakes(fixture: &PrivacyFixture, node: &Node) {
    let https = format!("https://{}{LOOKUP_PATH}", node.https());
    for key in &fixture.keys {
        let lines = fixture.canaries.client_headers();
        let lines: Vec<_> = lines.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let mut headers: Vec<&str> = lines.iter().flat_map(|line| ["-H", line.as_str()]).collect();
        let bearer = format!("authorization: Bearer {key}");
        headers.extend(["-H", &bearer]);
        let with_key = format!("{https}?key={key}");
        for (is_good, arguments) in [
            (true, vec!["--tls-max", "1.2", &https]),
            (true, vec!["--http2", &with_key]),
            (false, vec!["--tls-max", "1.1", &with_key]),
            (false, vec!["--ciphers", "NULL", "--tls-max", "1.2", &with_key]),
        ] {
            let outcome = fixture.deployment().curl(&[&headers[..], &arguments].concat()).await.expect("curl runs");
            assert_eq!(outcome.is_success(), is_good, "{arguments:?}: {}", outcome.stderr);
        }
        // Without the authority, the client aborts the handshake.
        assert!(
            !ipseity_testkit::curl(&["--interface", &PEER.to_string(), &with_key])
                .await
                .expect("curl runs")
                .is_success()
        );
        for name in [key.clone(), fixture.canaries.next_address().to_string(), format!("{key}.example.com")] {
            let mut openssl = Command::new("openssl");
            openssl.args(["s_client", "-connect", &node.https().to_string(), "-servername", &name]);
            let ended = tokio::time::timeout(CLOSE_TIMEOUT, openssl.stdin(std::process::Stdio::null()).output()).await;
            ended.expect("openssl exits").expect("openssl runs");
        }
    }
}

/// Datagrams that are not QUIC, and some that start like it.
fn datagrams(fixture: &PrivacyFixture, node: &Node) {
    let socket = UdpSocket::bind((PEER, 0)).expect("open a socket");
    for key in &fixture.keys {
        let text = format!("{key} {}", fixture.canaries.next_spelling());
        let long = [&b"\xc0\0\0\0\x01\x08"[..], text.as_bytes(), &[0; 1200]].concat();
        for datagram in [text.as_bytes(), &long, &long[..60]] {
            socket.send_to(datagram, node.https()).expect("send a datagram");
        }
    }
}

/// PROXY headers of a trusted peer: valid ones of both versions, and invalid ones.
async fn proxy_headers(fixture: &PrivacyFixture, node: &Node) {
    for key in &fixture.keys {
        let address = fixture.canaries.next_address();
        let request = format!("GET {LOOKUP_PATH}?key={key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        for header in [
            proxy_v1_header(address),
            proxy_v2_header(address),
            proxy_v2_header(address)[..20].to_vec(),
            b"PROXY TCP9 ".to_vec(),
            Vec::new(),
        ] {
            for server in [node.http(), node.https()] {
                send_bytes(fixture, server, &[&header, request.as_bytes()].concat(), true).await;
            }
        }
        let malformed = format!("PROXY TCP4 {} {key} 1 2 3\r\n", fixture.canaries.next_spelling());
        send_bytes(fixture, node.http(), malformed.as_bytes(), true).await;
    }
}

fn proxy_v1_header(address: IpAddr) -> Vec<u8> {
    let (family, server) = if address.is_ipv4() { ("TCP4", "192.0.2.1") } else { ("TCP6", "2001:db8::1") };
    format!("PROXY {family} {address} {server} 4711 443\r\n").into_bytes()
}

fn proxy_v2_header(address: IpAddr) -> Vec<u8> {
    let (family, addresses) = match address {
        IpAddr::V4(v4) => (0x11, [&v4.octets()[..], &[192, 0, 2, 1]].concat()),
        IpAddr::V6(v6) => (0x21, [&v6.octets()[..], &[0; 16]].concat()),
    };
    let length = u8::try_from(addresses.len() + 4).expect("header is short");
    [&PROXY_V2_SIGNATURE[..], &[0x21, family, 0, length], &addresses, &[0x12, 0x67, 0x01, 0xBB]].concat()
}

/// The headers of an untrusted peer are ignored, and it gets its socket address.
async fn untrusted_peers(fixture: &PrivacyFixture) {
    for (index, node) in fixture.deployment().nodes.iter().enumerate() {
        let mut caller = TestClient::from_source(node.http(), PEER.into());
        for key in &fixture.keys {
            let mut lines = fixture.canaries.client_headers();
            lines.push(("authorization".to_owned(), format!("Bearer {key}")));
            match caller.get(LOOKUP_PATH, &as_str_pairs(&lines)).await {
                Ok(reply) if key == &fixture.keys[0] => {
                    assert!(reply.text().contains(&PEER.to_string()), "{}", reply.text());
                }
                Ok(_) => {}
                Err(_) => assert_eq!(index, PROXY_PROTOCOL_NODE, "no response"),
            }
        }
        let address = fixture.canaries.next_address();
        for header in [proxy_v1_header(address), proxy_v2_header(address)] {
            let request = format!("GET {LOOKUP_PATH}?key={} HTTP/1.1\r\nHost: x\r\n\r\n", fixture.keys[0]);
            send_and_drain(
                fixture,
                connect_from(PEER, node.http()).await,
                &[&header, request.as_bytes()].concat(),
                true,
            )
            .await;
        }
    }
}
