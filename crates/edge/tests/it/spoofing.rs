//! Attempts to spoof the client's address, over real sockets. The response always has the true one.
//!
//! 127.0.0.1 is a trusted proxy and 127.0.0.2 is not. Other trusted proxies are in 10.0.0.0/8 and fd00::/8.

use http::HeaderName;
use ipseity_edge::{CloseReason, ConnectionHeaders, ForwardingHeader, Transport, Trust};

use crate::fixture::{EdgeFixture, exchange, generous_limits};
use crate::proxy_protocol;
use crate::spoofing_vectors::{self, SpoofingVector};

pub const TRUSTED_PROXY: &str = "127.0.0.1";
pub const UNTRUSTED_PEER: &str = "127.0.0.2";
/// A client that the trusted proxy does not name.
pub const UNKNOWN_CLIENT: &str = "-";
/// The summary of a connection that ends without a response.
pub const NO_RESPONSE: &str = "";
const VECTORS_MIN: usize = 150;

/// Trusts this header and all connection headers.
pub fn trust_with_header(header: ForwardingHeader) -> Trust {
    let networks = ["127.0.0.1/32", "10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("network parses"));
    let name = |name| Some(HeaderName::from_static(name));
    Trust::new(networks.to_vec(), header).expect("trust is safe").with_connection_headers(ConnectionHeaders {
        scheme: name("x-client-scheme"),
        tls_version: name("x-client-tls-version"),
        tls_cipher: name("x-client-tls-cipher"),
        http_protocol: name("x-client-protocol"),
        rtt: name("x-client-rtt"),
        colo: name("x-client-colo"),
    })
}

/// A request with a prefix and these header lines.
pub fn request_bytes(prefix: &[u8], header_lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [prefix, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"].concat();
    for header_line in header_lines {
        bytes.extend_from_slice(header_line);
        bytes.extend_from_slice(b"\r\n");
    }
    [bytes, b"\r\n".to_vec()].concat()
}

/// The response to a peer that sends these bytes: the description of the client, a status other than 200, or nothing.
pub async fn response_summary(fixture: &EdgeFixture, peer: &str, bytes: &[u8]) -> String {
    let mut stream = fixture.connect_from(peer.parse().expect("address parses")).await;
    let text = exchange(&mut stream, bytes).await;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => body.to_owned(),
        _ => text.split(' ').nth(1).unwrap_or(NO_RESPONSE).to_owned(),
    }
}

fn ip_of(response: &str) -> &str {
    response.strip_prefix("ip=").and_then(|rest| rest.split(' ').next()).unwrap_or(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarding_headers_cannot_spoof_the_client_address() {
    let mut checked = 0;
    for header in ForwardingHeader::ALL {
        let fixture = EdgeFixture::start(generous_limits(), trust_with_header(header), Transport::Plaintext);
        for SpoofingVector { peer, header_lines, client } in spoofing_vectors::vectors_for(header) {
            let response = response_summary(&fixture, peer, &request_bytes(b"", &header_lines)).await;
            let shown: Vec<_> = header_lines.iter().map(|header_line| String::from_utf8_lossy(header_line)).collect();
            assert_eq!(ip_of(&response), client, "{shown:?} from {peer} where {} is read", header.name());
            checked += 1;
        }
    }
    assert!(
        checked + proxy_protocol::VECTOR_COUNT >= VECTORS_MIN,
        "only {checked} and {} vectors",
        proxy_protocol::VECTOR_COUNT
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpected_proxy_header_is_a_bad_request() {
    let fixture =
        EdgeFixture::start(generous_limits(), trust_with_header(ForwardingHeader::XForwardedFor), Transport::Plaintext);
    for peer in [TRUSTED_PROXY, UNTRUSTED_PEER] {
        for (prefix, _) in proxy_protocol::valid_headers() {
            assert_eq!(
                response_summary(&fixture, peer, &request_bytes(&prefix, &[])).await,
                "400",
                "{prefix:?} from {peer}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_from_untrusted_peer_closes_the_connection() {
    let transport = Transport::ProxyProtocol(Box::new(Transport::Plaintext));
    let fixture = EdgeFixture::start(generous_limits(), trust_with_header(ForwardingHeader::XForwardedFor), transport);
    let mut checked = 0;
    for (prefix, _) in proxy_protocol::valid_headers() {
        assert_eq!(
            response_summary(&fixture, UNTRUSTED_PEER, &request_bytes(&prefix, &[])).await,
            NO_RESPONSE,
            "{prefix:?}"
        );
        checked += 1;
    }
    assert_eq!(response_summary(&fixture, UNTRUSTED_PEER, &request_bytes(b"", &[])).await, NO_RESPONSE);
    assert_eq!(fixture.edge.stats().connections_closed(CloseReason::InvalidProxyHeader), checked + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_valid_proxy_header_sets_the_client_address() {
    let transport = Transport::ProxyProtocol(Box::new(Transport::Plaintext));
    let fixture = EdgeFixture::start(generous_limits(), trust_with_header(ForwardingHeader::XForwardedFor), transport);
    for (prefix, client) in proxy_protocol::valid_headers() {
        assert_eq!(
            ip_of(&response_summary(&fixture, TRUSTED_PROXY, &request_bytes(&prefix, &[])).await),
            client,
            "{prefix:?}"
        );
    }
    for prefix in proxy_protocol::invalid_headers() {
        assert_eq!(
            response_summary(&fixture, TRUSTED_PROXY, &request_bytes(&prefix, &[])).await,
            NO_RESPONSE,
            "{prefix:?}"
        );
    }
    // After a PROXY header, all header lines come from the client. They count only if it is a trusted proxy.
    for (prefix, header_line, client) in proxy_protocol::forwarding_header_cases() {
        let response =
            response_summary(&fixture, TRUSTED_PROXY, &request_bytes(prefix, &[header_line.as_bytes().to_vec()])).await;
        assert_eq!(ip_of(&response), client, "{header_line} behind {prefix:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_headers_sent_by_the_client_are_ignored() {
    let fixture =
        EdgeFixture::start(generous_limits(), trust_with_header(ForwardingHeader::XForwardedFor), Transport::Plaintext);
    let direct_facts = "protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA";
    for header_line in spoofing_vectors::CONNECTION_HEADER_LINES {
        for peer in [TRUSTED_PROXY, UNTRUSTED_PEER] {
            let response =
                response_summary(&fixture, peer, &request_bytes(b"", &[header_line.as_bytes().to_vec()])).await;
            assert_eq!(response, format!("ip={peer} {direct_facts}"), "{header_line}");
        }
        let forwarded = [header_line.as_bytes().to_vec(), b"x-forwarded-for: 198.51.100.7".to_vec()];
        assert_eq!(
            response_summary(&fixture, UNTRUSTED_PEER, &request_bytes(b"", &forwarded)).await,
            format!("ip={UNTRUSTED_PEER} {direct_facts}")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_headers_describe_only_the_next_hop() {
    let fixture =
        EdgeFixture::start(generous_limits(), trust_with_header(ForwardingHeader::XForwardedFor), Transport::Plaintext);
    let report_lines = spoofing_vectors::CONNECTION_HEADER_LINES.map(|header_line| header_line.as_bytes().to_vec());
    let with_hops = |hops: &str| [&[format!("x-forwarded-for: {hops}").into_bytes()], &report_lines[..]].concat();
    let reported = "protocol=HTTP/2 tls=TLSv1.2 cipher=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 rtt=short colo=SJC";
    let unreported = "protocol=- tls=- cipher=- rtt=- colo=FRA";
    let vectors = [
        ("198.51.100.7", "198.51.100.7", reported),
        ("203.0.113.9, 198.51.100.7", "198.51.100.7", reported),
        // The proxy reports the connection of the proxy before it.
        ("198.51.100.7, 10.2.3.4", "198.51.100.7", unreported),
        ("198.51.100.7, unknown", UNKNOWN_CLIENT, unreported),
        ("198.51.100.7,", "198.51.100.7", reported),
    ];
    for (hops, client, facts) in vectors {
        assert_eq!(
            response_summary(&fixture, TRUSTED_PROXY, &request_bytes(b"", &with_hops(hops))).await,
            format!("ip={client} {facts}"),
            "{hops}"
        );
    }
    let repeated = [&with_hops("198.51.100.7")[..], &report_lines[..]].concat();
    assert_eq!(
        response_summary(&fixture, TRUSTED_PROXY, &request_bytes(b"", &repeated)).await,
        format!("ip=198.51.100.7 {unreported}")
    );
}
