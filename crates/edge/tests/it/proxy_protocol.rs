//! Valid and invalid PROXY headers, and what they report about the client's connection.

use ipseity_edge::{CloseReason, EdgeLimits, ForwardingHeader, PassThrough, Transport};
use tokio::io::AsyncWriteExt;

use crate::fixture::{
    CertificateKeyPair, EdgeFixture, SHORT_TIMEOUT, generous_limits, read_to_end, read_until, wait_until,
};
use crate::spoofing::{TRUSTED_PROXY, UNKNOWN_CLIENT, request_bytes, response_summary, trust_with_header};

/// Number of test vectors in this file.
pub const VECTOR_COUNT: usize = 18 + 53 + 8;
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// 198.51.100.7, 192.0.2.1, ports 4711 and 443.
const V2_IPV4_ADDRESSES: &[u8] = b"\xc6\x33\x64\x07\xc0\x00\x02\x01\x12\x67\x01\xbb";

/// A header of version 2.
fn v2_header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("header fits into 16 bits").to_be_bytes();
    [V2_SIGNATURE, &[command, family], &length, rest].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("value fits into 16 bits").to_be_bytes();
    [&[kind], &length[..], value].concat()
}

fn v2_ipv6_addresses(source: &str) -> Vec<u8> {
    let source: std::net::Ipv6Addr = source.parse().expect("address parses");
    [&source.octets()[..], &[0; 16], b"\x12\x67\x01\xbb"].concat()
}

/// The extension that HAProxy sends for a client that used TLS.
fn tls_tlv(flags: u8, version: &str, cipher: &str) -> Vec<u8> {
    let inner = [tlv(0x21, version.as_bytes()), tlv(0x23, cipher.as_bytes())].concat();
    tlv(0x20, &[&[flags, 0, 0, 0, 0], &inner[..]].concat())
}

fn header_with_checksum(crc: [u8; 4]) -> Vec<u8> {
    v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x03, &crc)].concat())
}

/// Valid headers, and the client that they name.
pub fn valid_headers() -> [(Vec<u8>, &'static str); 18] {
    let unix = [0; 216];
    [
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 0 65535\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:198.51.100.7 ::ffff:192.0.2.1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP6 ::ffff:c633:6407 ::1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), UNKNOWN_CLIENT),
        (b"PROXY UNKNOWN 198.51.100.7 192.0.2.1 4711 443\r\n".to_vec(), UNKNOWN_CLIENT),
        (v2_header(0x21, 0x11, V2_IPV4_ADDRESSES), "198.51.100.7"),
        (v2_header(0x21, 0x12, V2_IPV4_ADDRESSES), "198.51.100.7"),
        (v2_header(0x21, 0x21, &v2_ipv6_addresses("2001:db8::7")), "2001:db8::7"),
        (v2_header(0x21, 0x21, &v2_ipv6_addresses("::ffff:198.51.100.7")), "198.51.100.7"),
        (v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x04, &[0; 300])].concat()), "198.51.100.7"),
        (header_with_checksum([0xad, 0xae, 0xa2, 0x58]), "198.51.100.7"),
        (v2_header(0x21, 0x00, b""), UNKNOWN_CLIENT),
        (v2_header(0x21, 0x31, &unix), UNKNOWN_CLIENT),
        (v2_header(0x20, 0x00, b""), TRUSTED_PROXY),
        (v2_header(0x20, 0x11, V2_IPV4_ADDRESSES), TRUSTED_PROXY),
        (v2_header(0x20, 0xff, b"anything"), TRUSTED_PROXY),
    ]
}

/// Truncated or invalid headers.
pub fn invalid_headers() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 33] = [
        b"",
        b"\r\n",
        b"PROXY\r\n",
        b"PROXY \r\n",
        b"PROXY  TCP4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"proxy TCP4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b" PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXYTCP4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXY tcp4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXY TCP5 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXY UDP4 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 4711 443\r\n",
        b"PROXY TCP6 198.51.100.7 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 198.51.100.7 2001:db8::1 4711 443\r\n",
        b"PROXY TCP4 198.51.100.07 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 198.51.100.256 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 198.51.100 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 3325256711 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 unknown 192.0.2.1 4711 443\r\n",
        b"PROXY TCP6 fe80::1%eth0 fe80::2 4711 443\r\n",
        b"PROXY TCP6 [2001:db8::7] [2001:db8::1] 4711 443\r\n",
        b"PROXY TCP4 198.51.100.7:4711 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 65536 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 +4711 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 04711 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 -1 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 4711\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443 \r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443 x\r\n",
        b"PROXY TCP4 198.51.100.7  192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\n",
        b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r",
        b"PROXY TCP4 \xff\xfe 192.0.2.1 4711 443\r\n",
    ];
    let long = [b"PROXY UNKNOWN ", &[b'x'; 100][..], b"\r\n"].concat();
    let mut headers: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).to_vec();
    headers.extend([
        long,
        b"\r\n\r\n\0\r\nQUIT\r".to_vec(),
        b"\r\n\r\n\r\nQUIT\n\0".to_vec(),
        v2_header(0x11, 0x11, V2_IPV4_ADDRESSES),
        v2_header(0x22, 0x11, V2_IPV4_ADDRESSES),
        v2_header(0x01, 0x11, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0x11, &V2_IPV4_ADDRESSES[..11]),
        v2_header(0x21, 0x11, b""),
        v2_header(0x21, 0x21, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0x31, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0x13, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0x41, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0xff, V2_IPV4_ADDRESSES),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, b"\x01"].concat()),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, b"\x01\x00\x09h2"].concat()),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x20, b"\x01\0")].concat()),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x20, b"\x01\0\0\0\0\x21\x00\x09TLS")].concat()),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x01, b"h2"), &tlv(0x01, b"http/1.1")].concat()),
        header_with_checksum([0; 4]),
        v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &tlv(0x04, &[0; 2000])].concat()),
    ]);
    headers
}

/// A PROXY header, a header line after it, and the expected client.
pub fn forwarding_header_cases() -> [(&'static [u8], &'static str, &'static str); 8] {
    const UNTRUSTED_CLIENT: &[u8] = b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n";
    const TRUSTED_CLIENT: &[u8] = b"PROXY TCP4 10.2.3.4 192.0.2.1 4711 443\r\n";
    [
        (UNTRUSTED_CLIENT, "x-forwarded-for: 203.0.113.9", "198.51.100.7"),
        (UNTRUSTED_CLIENT, "forwarded: for=203.0.113.9", "198.51.100.7"),
        (UNTRUSTED_CLIENT, "x-client-protocol: HTTP/3", "198.51.100.7"),
        (TRUSTED_CLIENT, "x-forwarded-for: 203.0.113.9", "203.0.113.9"),
        (TRUSTED_CLIENT, "x-forwarded-for: 203.0.113.9, unknown", UNKNOWN_CLIENT),
        (TRUSTED_CLIENT, "forwarded: for=203.0.113.9", "10.2.3.4"),
        (b"PROXY UNKNOWN\r\n", "x-forwarded-for: 203.0.113.9", UNKNOWN_CLIENT),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "x-forwarded-for: 203.0.113.9", TRUSTED_PROXY),
    ]
}

fn with_proxy_protocol(transport: Transport) -> Transport {
    Transport::ProxyProtocol(Box::new(transport))
}

#[test]
fn proxy_header_vector_count_is_correct() {
    assert_eq!(valid_headers().len() + invalid_headers().len() + forwarding_header_cases().len(), VECTOR_COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_reports_the_tls_session_of_the_client() {
    let (suite, iana_name) = ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    let header_with_tlvs =
        |extensions: &[Vec<u8>]| v2_header(0x21, 0x11, &[V2_IPV4_ADDRESSES, &extensions.concat()].concat());
    let vectors = [
        (header_with_tlvs(&[tls_tlv(1, "TLSv1.2", suite)]), "-", "TLSv1.2", iana_name),
        (
            header_with_tlvs(&[tlv(1, b"h2"), tls_tlv(1, "TLSv1.3", "TLS_AES_128_GCM_SHA256")]),
            "HTTP/2",
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
        ),
        (header_with_tlvs(&[tlv(1, b"http/1.1"), tls_tlv(1, "TLSv1.3", "odd")]), "HTTP/1.1", "TLSv1.3", "-"),
        (header_with_tlvs(&[tlv(1, b"spdy/3"), tls_tlv(1, "SSLv3", suite)]), "-", "-", "-"),
        // The flag says that the client did not use TLS.
        (header_with_tlvs(&[tls_tlv(0, "TLSv1.2", suite)]), "-", "-", "-"),
        (header_with_tlvs(&[]), "-", "-", "-"),
    ];
    let xff = ForwardingHeader::XForwardedFor;
    for (pass_through, passed_protocol) in [(PassThrough::Nothing, None), (PassThrough::Http, Some("HTTP/1.1"))] {
        let trust = trust_with_header(xff).with_pass_through(pass_through);
        let fixture = EdgeFixture::start(generous_limits(), trust, with_proxy_protocol(Transport::Plaintext));
        for (header, protocol, version, cipher) in &vectors {
            let response = response_summary(&fixture, TRUSTED_PROXY, &request_bytes(header, &[])).await;
            let protocol = passed_protocol.unwrap_or(protocol);
            let expected = format!("ip=198.51.100.7 protocol={protocol} tls={version} cipher={cipher} rtt=- colo=FRA");
            assert_eq!(response, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_proxy_header_reports_the_connection_of_the_proxy() {
    let fixture = EdgeFixture::start(
        generous_limits(),
        trust_with_header(ForwardingHeader::XForwardedFor),
        with_proxy_protocol(Transport::Plaintext),
    );
    let response = response_summary(&fixture, TRUSTED_PROXY, &request_bytes(&v2_header(0x20, 0, b""), &[])).await;
    assert_eq!(response, "ip=127.0.0.1 protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA");
    let response = response_summary(&fixture, TRUSTED_PROXY, &request_bytes(b"PROXY UNKNOWN\r\n", &[])).await;
    assert_eq!(response, "ip=- protocol=- tls=- cipher=- rtt=- colo=FRA");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_may_arrive_in_pieces_until_its_timeout() {
    let limits = EdgeLimits { first_byte_timeout: SHORT_TIMEOUT, ..generous_limits() };
    let fixture = EdgeFixture::start(
        limits,
        trust_with_header(ForwardingHeader::XForwardedFor),
        with_proxy_protocol(Transport::Plaintext),
    );
    let mut stream = fixture.connect().await;
    stream.set_nodelay(true).expect("TCP_NODELAY is set");
    for byte in request_bytes(&v2_header(0x21, 0x11, V2_IPV4_ADDRESSES), &[]) {
        stream.write_all(&[byte]).await.expect("bytes are sent");
        tokio::task::yield_now().await;
    }
    read_until(&mut stream, "ip=198.51.100.7 ").await;
    let mut stream = fixture.connect().await;
    stream.write_all(b"PROXY TCP4 ").await.expect("bytes are sent");
    assert_eq!(read_to_end(&mut stream).await, "");
    wait_until("the connection is counted", || {
        fixture.edge.stats().connections_closed(CloseReason::InvalidProxyHeader) == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_preface_after_a_proxy_header_is_detected() {
    let fixture = EdgeFixture::start(
        generous_limits(),
        trust_with_header(ForwardingHeader::XForwardedFor),
        with_proxy_protocol(Transport::Plaintext),
    );
    let mut stream = fixture.connect().await;
    let settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let bytes = [&v2_header(0x21, 0x11, V2_IPV4_ADDRESSES)[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings].concat();
    stream.write_all(&bytes).await.expect("bytes are sent");
    // The server's settings frame.
    read_until(&mut stream, "\u{4}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subnet_limit_counts_proxied_clients_and_not_the_proxy() {
    let limits = EdgeLimits { connections_per_subnet_max: 1, ..generous_limits() };
    let fixture = EdgeFixture::start(
        limits,
        trust_with_header(ForwardingHeader::XForwardedFor),
        with_proxy_protocol(CertificateKeyPair::generate().transport()),
    );
    let mut first = fixture.connect().await;
    first.write_all(&v2_header(0x21, 0x11, V2_IPV4_ADDRESSES)).await.expect("bytes are sent");
    let mut other = fixture.connect().await;
    other.write_all(&v2_header(0x21, 0x21, &v2_ipv6_addresses("2001:db8::7"))).await.expect("bytes are sent");
    wait_until("both are open", || fixture.edge.stats().connections_open.value() == 2).await;
    let mut second = fixture.connect().await;
    second.write_all(&v2_header(0x21, 0x11, V2_IPV4_ADDRESSES)).await.expect("bytes are sent");
    wait_until("the connection is counted", || fixture.edge.stats().connections_closed(CloseReason::SubnetLimit) == 1)
        .await;
}
