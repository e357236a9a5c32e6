//! The identity of the client, and the facts about its connection.

use ipseity_edge::{ForwardingHeader, Listener, Transport, Trust};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::fixture::{EdgeFixture, curl, exchange, generous_limits, read_until};

fn trust_loopback() -> Trust {
    Trust::new(vec!["127.0.0.0/8".parse().expect("network parses")], ForwardingHeader::XForwardedFor)
        .expect("trust is safe")
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_listener_serves_http1_and_http2() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let url = format!("http://{}/", fixture.address);
    for (option, protocol) in
        [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2")]
    {
        let (_, text) = curl(&[option, &url]).await;
        assert_eq!(text, format!("ip=127.0.0.1 protocol={protocol} tls=- cipher=- rtt=short colo=FRA"));
    }
    assert_eq!(fixture.edge.stats().connections_accepted.value(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarding_header_from_untrusted_peer_is_ignored() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let url = format!("http://{}/", fixture.address);
    for line in ["X-Forwarded-For: 198.51.100.7", "Forwarded: for=198.51.100.7", "CF-Connecting-IP: 198.51.100.7"] {
        let (_, text) = curl(&["--header", line, &url]).await;
        assert_eq!(text, "ip=127.0.0.1 protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_client_has_no_connection_facts_of_the_proxy() {
    let fixture = EdgeFixture::start(generous_limits(), trust_loopback(), Transport::Plaintext);
    let url = format!("http://{}/", fixture.address);
    let (_, text) = curl(&["--header", "X-Forwarded-For: 203.0.113.9, 198.51.100.7", &url]).await;
    assert_eq!(text, "ip=198.51.100.7 protocol=- tls=- cipher=- rtt=- colo=FRA");
    let (_, text) = curl(&["--header", "X-Forwarded-For: 203.0.113.9, unknown", &url]).await;
    assert_eq!(text, "ip=- protocol=- tls=- cipher=- rtt=- colo=FRA");
    assert_eq!(fixture.edge.stats().unidentified_clients.value(), 1);
    let (_, text) = curl(&["--header", "Forwarded: for=198.51.100.7", &url]).await;
    assert_eq!(text, "ip=127.0.0.1 protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_identified_for_every_request() {
    let fixture = EdgeFixture::start(generous_limits(), trust_loopback(), Transport::Plaintext);
    let mut stream = fixture.connect().await;
    for client in ["198.51.100.7", "2001:db8::7", "198.51.100.8"] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {client}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("bytes are sent");
        let text = read_until(&mut stream, "colo=FRA").await;
        assert!(text.contains(&format!("ip={client} ")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_mapped_peer_is_reported_as_ipv4() {
    let listener =
        Listener::bind("[::ffff:127.0.0.1]:0".parse().expect("address parses"), false).expect("port is free");
    let fixture = EdgeFixture::start_on(listener, generous_limits(), Trust::none(), Transport::Plaintext);
    assert!(fixture.address.is_ipv6());
    let mut stream = TcpStream::connect(("127.0.0.1", fixture.address.port())).await.expect("client connects");
    let text = exchange(&mut stream, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(text.contains("ip=127.0.0.1 "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_resembling_the_http2_preface_is_http1() {
    let fixture = EdgeFixture::start_plaintext(generous_limits());
    let mut stream = fixture.connect().await;
    stream.set_nodelay(true).expect("TCP_NODELAY is set");
    for byte in b"PRI" {
        stream.write_all(&[*byte]).await.expect("bytes are sent");
        stream.flush().await.expect("bytes are flushed");
        tokio::task::yield_now().await;
    }
    let text = exchange(&mut stream, b"NT / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(text.contains("protocol=HTTP/1.1"), "{text}");
}
