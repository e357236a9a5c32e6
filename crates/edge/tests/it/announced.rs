//! PROXY headers, good and bad, and what they say of the client's connection.

use edge::{Bound, Bounds, ForwardingHeader, PassThrough, Transport};
use tokio::io::AsyncWriteExt;

use crate::house::{House, Pair, SHORT, read_to_end, read_until, until, wide};
use crate::spoofing::{PROXY, answered, request, trust};

/// Vectors that this file holds.
pub const COUNT: usize = 18 + 53 + 8;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// 198.51.100.7, 192.0.2.1, ports 4711 and 443.
const IPV4: &[u8] = b"\xc6\x33\x64\x07\xc0\x00\x02\x01\x12\x67\x01\xbb";

/// A header of version 2.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a short header").to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("a short value").to_be_bytes();
    [&[kind], &length[..], value].concat()
}

fn ipv6(source: &str) -> Vec<u8> {
    let source: std::net::Ipv6Addr = source.parse().expect("an address");
    [&source.octets()[..], &[0; 16], b"\x12\x67\x01\xbb"].concat()
}

/// What haproxy sends of a client that used TLS.
fn tls(flags: u8, version: &str, cipher: &str) -> Vec<u8> {
    let inner = [tlv(0x21, version.as_bytes()), tlv(0x23, cipher.as_bytes())].concat();
    tlv(0x20, &[&[flags, 0, 0, 0, 0], &inner[..]].concat())
}

fn checksum(crc: [u8; 4]) -> Vec<u8> {
    v2(0x21, 0x11, &[IPV4, &tlv(0x03, &crc)].concat())
}

/// Headers that are whole, and the client that they name.
pub fn good() -> [(Vec<u8>, &'static str); 18] {
    let unix = [0; 216];
    [
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 0 65535\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:198.51.100.7 ::ffff:192.0.2.1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY TCP6 ::ffff:c633:6407 ::1 4711 443\r\n".to_vec(), "198.51.100.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), PROXY),
        (b"PROXY UNKNOWN 198.51.100.7 192.0.2.1 4711 443\r\n".to_vec(), PROXY),
        (v2(0x21, 0x11, IPV4), "198.51.100.7"),
        (v2(0x21, 0x12, IPV4), "198.51.100.7"),
        (v2(0x21, 0x21, &ipv6("2001:db8::7")), "2001:db8::7"),
        (v2(0x21, 0x21, &ipv6("::ffff:198.51.100.7")), "198.51.100.7"),
        (v2(0x21, 0x11, &[IPV4, &tlv(0x04, &[0; 300])].concat()), "198.51.100.7"),
        (checksum([0xad, 0xae, 0xa2, 0x58]), "198.51.100.7"),
        (v2(0x21, 0x00, b""), PROXY),
        (v2(0x21, 0x31, &unix), PROXY),
        (v2(0x20, 0x00, b""), PROXY),
        (v2(0x20, 0x11, IPV4), PROXY),
        (v2(0x20, 0xff, b"anything"), PROXY),
    ]
}

/// Headers that are torn, odd or no headers at all.
pub fn bad() -> Vec<Vec<u8>> {
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
        v2(0x11, 0x11, IPV4),
        v2(0x22, 0x11, IPV4),
        v2(0x01, 0x11, IPV4),
        v2(0x21, 0x11, &IPV4[..11]),
        v2(0x21, 0x11, b""),
        v2(0x21, 0x21, IPV4),
        v2(0x21, 0x31, IPV4),
        v2(0x21, 0x13, IPV4),
        v2(0x21, 0x41, IPV4),
        v2(0x21, 0xff, IPV4),
        v2(0x21, 0x11, &[IPV4, b"\x01"].concat()),
        v2(0x21, 0x11, &[IPV4, b"\x01\x00\x09h2"].concat()),
        v2(0x21, 0x11, &[IPV4, &tlv(0x20, b"\x01\0")].concat()),
        v2(0x21, 0x11, &[IPV4, &tlv(0x20, b"\x01\0\0\0\0\x21\x00\x09TLS")].concat()),
        v2(0x21, 0x11, &[IPV4, &tlv(0x01, b"h2"), &tlv(0x01, b"http/1.1")].concat()),
        checksum([0; 4]),
        v2(0x21, 0x11, &[IPV4, &tlv(0x04, &[0; 2000])].concat()),
    ]);
    headers
}

/// A header line behind a PROXY header, and the client.
pub fn with_headers() -> [(&'static [u8], &'static str, &'static str); 8] {
    const STRANGER: &[u8] = b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n";
    const TRUSTED: &[u8] = b"PROXY TCP4 10.2.3.4 192.0.2.1 4711 443\r\n";
    [
        (STRANGER, "x-forwarded-for: 203.0.113.9", "198.51.100.7"),
        (STRANGER, "forwarded: for=203.0.113.9", "198.51.100.7"),
        (STRANGER, "x-client-protocol: HTTP/3", "198.51.100.7"),
        (TRUSTED, "x-forwarded-for: 203.0.113.9", "203.0.113.9"),
        (TRUSTED, "x-forwarded-for: 203.0.113.9, unknown", "10.2.3.4"),
        (TRUSTED, "forwarded: for=203.0.113.9", "10.2.3.4"),
        (b"PROXY UNKNOWN\r\n", "x-forwarded-for: 203.0.113.9", PROXY),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "x-forwarded-for: 203.0.113.9", PROXY),
    ]
}

fn behind(transport: Transport) -> Transport {
    Transport::Announced(Box::new(transport))
}

#[test]
fn the_vectors_are_counted_right() {
    assert_eq!(good().len() + bad().len() + with_headers().len(), COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_told_as_the_proxy_saw_it() {
    let (suite, told) = ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    let with = |extensions: &[Vec<u8>]| v2(0x21, 0x11, &[IPV4, &extensions.concat()].concat());
    let vectors = [
        (with(&[tls(1, "TLSv1.2", suite)]), "-", "TLSv1.2", told),
        (
            with(&[tlv(1, b"h2"), tls(1, "TLSv1.3", "TLS_AES_128_GCM_SHA256")]),
            "HTTP/2",
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
        ),
        (with(&[tlv(1, b"http/1.1"), tls(1, "TLSv1.3", "odd")]), "HTTP/1.1", "TLSv1.3", "-"),
        (with(&[tlv(1, b"spdy/3"), tls(1, "SSLv3", suite)]), "-", "-", "-"),
        // The flag says that the client used none.
        (with(&[tls(0, "TLSv1.2", suite)]), "-", "-", "-"),
        (with(&[]), "-", "-", "-"),
    ];
    let xff = ForwardingHeader::XForwardedFor;
    for (pass_through, seen) in [(PassThrough::Nothing, None), (PassThrough::Http, Some("HTTP/1.1"))] {
        let trust = trust(xff).with_pass_through(pass_through);
        let house = House::open(wide(), trust, behind(Transport::Clear));
        for (header, protocol, version, cipher) in &vectors {
            let answer = answered(&house, PROXY, &request(header, &[])).await;
            let protocol = seen.unwrap_or(protocol);
            let expected = format!("ip=198.51.100.7 protocol={protocol} tls={version} cipher={cipher} rtt=- colo=FRA");
            assert_eq!(answer, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_itself_is_told_its_own_connection() {
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), behind(Transport::Clear));
    let answer = answered(&house, PROXY, &request(&v2(0x20, 0, b""), &[])).await;
    assert_eq!(answer, "ip=127.0.0.1 protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA");
    let answer = answered(&house, PROXY, &request(b"PROXY UNKNOWN\r\n", &[])).await;
    assert_eq!(answer, "ip=127.0.0.1 protocol=- tls=- cipher=- rtt=- colo=FRA");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_may_come_byte_by_byte_and_not_too_slowly() {
    let bounds = Bounds { first_byte_timeout: SHORT, ..wide() };
    let house = House::open(bounds, trust(ForwardingHeader::XForwardedFor), behind(Transport::Clear));
    let mut stream = house.connect().await;
    stream.set_nodelay(true).expect("no delay");
    for byte in request(&v2(0x21, 0x11, IPV4), &[]) {
        stream.write_all(&[byte]).await.expect("sent");
        tokio::task::yield_now().await;
    }
    read_until(&mut stream, "ip=198.51.100.7 ").await;
    let mut stream = house.connect().await;
    stream.write_all(b"PROXY TCP4 ").await.expect("sent");
    assert_eq!(read_to_end(&mut stream).await, "");
    until("it is counted", || house.edge.stats().closed_by(Bound::ProxyHeader) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_seen_behind_a_header_that_comes_with_it() {
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), behind(Transport::Clear));
    let mut stream = house.connect().await;
    let settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let bytes = [&v2(0x21, 0x11, IPV4)[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings].concat();
    stream.write_all(&bytes).await.expect("sent");
    // The server's own settings frame.
    read_until(&mut stream, "\u{4}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_clients_share_their_networks_bound_and_the_proxy_has_none() {
    let bounds = Bounds { connections_per_network_max: 1, ..wide() };
    let house = House::open(bounds, trust(ForwardingHeader::XForwardedFor), behind(Pair::issue().open()));
    let mut first = house.connect().await;
    first.write_all(&v2(0x21, 0x11, IPV4)).await.expect("sent");
    let mut other = house.connect().await;
    other.write_all(&v2(0x21, 0x21, &ipv6("2001:db8::7"))).await.expect("sent");
    until("both are held", || house.edge.stats().open.value() == 2).await;
    let mut second = house.connect().await;
    second.write_all(&v2(0x21, 0x11, IPV4)).await.expect("sent");
    until("it is counted", || house.edge.stats().closed_by(Bound::Network) == 1).await;
}
