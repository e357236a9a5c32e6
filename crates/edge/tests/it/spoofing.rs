//! Everything that a stranger can say about who they are, over real sockets: the answer is always the true one.
//!
//! 127.0.0.1 is a trusted proxy and 127.0.0.2 is not; further proxies stand in 10.0.0.0/8 and fd00::/8.

use edge::{Bound, ForwardingHeader, Reports, Transport, Trust};
use http::HeaderName;

use crate::announced;
use crate::house::{House, exchange, wide};
use crate::vectors::{self, Vector};

pub const PROXY: &str = "127.0.0.1";
pub const STRANGER: &str = "127.0.0.2";
/// How a connection is named that ends without an answer.
pub const CLOSED: &str = "";
const VECTORS_MIN: usize = 150;

/// Trusts this header, and reports of the client's connection.
pub fn trust(header: ForwardingHeader) -> Trust {
    let networks = ["127.0.0.1/32", "10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let name = |name| Some(HeaderName::from_static(name));
    Trust::new(networks.to_vec(), header).expect("safe networks").with_reports(Reports {
        tls_version: name("x-client-tls-version"),
        tls_cipher: name("x-client-tls-cipher"),
        http_protocol: name("x-client-protocol"),
        rtt: name("x-client-rtt"),
        colo: name("x-client-colo"),
    })
}

/// A request with these bytes before it and these header lines.
pub fn request(before: &[u8], lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [before, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"].concat();
    for line in lines {
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\n");
    }
    [bytes, b"\r\n".to_vec()].concat()
}

/// What is answered to a peer that sends these bytes: the line about the client, a status that is no 200, or nothing.
pub async fn answered(house: &House, peer: &str, bytes: &[u8]) -> String {
    let mut stream = house.connect_from(peer.parse().expect("an address")).await;
    let text = exchange(&mut stream, bytes).await;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => body.to_owned(),
        _ => text.split(' ').nth(1).unwrap_or(CLOSED).to_owned(),
    }
}

fn ip(answer: &str) -> &str {
    answer.strip_prefix("ip=").and_then(|rest| rest.split(' ').next()).unwrap_or(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_header_makes_a_stranger_somebody_else() {
    let mut tried = 0;
    for header in ForwardingHeader::ALL {
        let house = House::open(wide(), trust(header), Transport::Clear);
        for Vector { peer, lines, client } in vectors::of(header) {
            let answer = answered(&house, peer, &request(b"", &lines)).await;
            let shown: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
            assert_eq!(ip(&answer), client, "{shown:?} from {peer} where {} is read", header.name());
            tried += 1;
        }
    }
    assert!(tried + announced::COUNT >= VECTORS_MIN, "only {tried} and {} vectors", announced::COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_header_where_none_is_expected_changes_nothing() {
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), Transport::Clear);
    for peer in [PROXY, STRANGER] {
        for (before, _) in announced::good() {
            assert_eq!(answered(&house, peer, &request(&before, &[])).await, "400", "{before:?} from {peer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_header_from_a_stranger_ends_the_connection() {
    let behind = Transport::Announced(Box::new(Transport::Clear));
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), behind);
    let mut tried = 0;
    for (before, _) in announced::good() {
        assert_eq!(answered(&house, STRANGER, &request(&before, &[])).await, CLOSED, "{before:?}");
        tried += 1;
    }
    assert_eq!(answered(&house, STRANGER, &request(b"", &[])).await, CLOSED);
    assert_eq!(house.edge.stats().closed_by(Bound::ProxyHeader), tried + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_header_from_a_proxy_names_the_client_and_a_bad_one_nobody() {
    let behind = Transport::Announced(Box::new(Transport::Clear));
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), behind);
    for (before, client) in announced::good() {
        assert_eq!(ip(&answered(&house, PROXY, &request(&before, &[])).await), client, "{before:?}");
    }
    for before in announced::bad() {
        assert_eq!(answered(&house, PROXY, &request(&before, &[])).await, CLOSED, "{before:?}");
    }
    // In TCP mode all headers are the client's own: they count only when the client is itself a trusted proxy.
    for (before, line, client) in announced::with_headers() {
        let answer = answered(&house, PROXY, &request(before, &[line.as_bytes().to_vec()])).await;
        assert_eq!(ip(&answer), client, "{line} behind {before:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_report_of_its_connection_changes_nothing() {
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), Transport::Clear);
    let own = "protocol=HTTP/1.1 tls=- cipher=- rtt=short colo=FRA";
    for line in vectors::REPORTS {
        for peer in [PROXY, STRANGER] {
            let answer = answered(&house, peer, &request(b"", &[line.as_bytes().to_vec()])).await;
            assert_eq!(answer, format!("ip={peer} {own}"), "{line}");
        }
        let forwarded = [line.as_bytes().to_vec(), b"x-forwarded-for: 198.51.100.7".to_vec()];
        assert_eq!(answered(&house, STRANGER, &request(b"", &forwarded)).await, format!("ip={STRANGER} {own}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_report_is_of_the_client_that_it_took_itself() {
    let house = House::open(wide(), trust(ForwardingHeader::XForwardedFor), Transport::Clear);
    let reports = vectors::REPORTS.map(|line| line.as_bytes().to_vec());
    let with = |hops: &str| [&[format!("x-forwarded-for: {hops}").into_bytes()], &reports[..]].concat();
    let told = "protocol=HTTP/2 tls=TLSv1.2 cipher=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 rtt=short colo=SJC";
    let untold = "protocol=- tls=- cipher=- rtt=- colo=FRA";
    let vectors = [
        ("198.51.100.7", "198.51.100.7", told),
        ("203.0.113.9, 198.51.100.7", "198.51.100.7", told),
        // The proxy tells of the proxy before it.
        ("198.51.100.7, 10.2.3.4", "198.51.100.7", untold),
        ("198.51.100.7, unknown", PROXY, untold),
    ];
    for (hops, client, facts) in vectors {
        assert_eq!(answered(&house, PROXY, &request(b"", &with(hops))).await, format!("ip={client} {facts}"), "{hops}");
    }
    let twice = [&with("198.51.100.7")[..], &reports[..]].concat();
    assert_eq!(answered(&house, PROXY, &request(b"", &twice)).await, format!("ip=198.51.100.7 {untold}"));
}
