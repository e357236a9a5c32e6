//! What holds for any bytes at all, as the fuzz targets and the edge's own tests hold it against them.

use domain::{Address, Key, KeyId};
use edge::{Distance, ForwardingHeader, Reading, Trust, read_proxy_header};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Uri};

#[path = "../crates/api/src/credentials.rs"]
mod credentials;

const PROXY_HEADER_BYTES_MAX: usize = 512;

/// What is taken for a key has its form, and one letter off it is none.
pub fn key(text: &str) {
    if let Some(id) = KeyId::parse(text) {
        assert!(text.ends_with(id.as_str()));
    }
    let Some(key) = Key::parse(text) else { return };
    assert!(text.len() == 52 && text.starts_with("ips_") && text[4..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(key.id.as_str(), &text[4..14]);
    let off = if text.ends_with('0') { "1" } else { "0" };
    assert!(Key::parse(&[&text[..51], off].concat()).is_none());
}

/// Of a query and Authorization lines, the key that is found is the first one's, and never empty.
pub fn authorization(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let query = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut request = Request::new(());
    if let Ok(uri) = format!("/api/v1/ip?{query}").parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    for value in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        request.headers_mut().append(AUTHORIZATION, value);
    }
    let (mut parts, ()) = request.into_parts();
    assert!(credentials::presented(&parts).is_none_or(|key| !key.is_empty()));
    let _ = credentials::query(&parts, "scope");
    // The header wins, whatever stands in the query.
    parts.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer ips_own"));
    assert_eq!(credentials::presented(&parts).as_deref(), Some("ips_own"));
}

/// Whatever lines stand before what the proxy writes, the client is the one that the proxy names; and a stranger is itself.
pub fn forwarding(header: ForwardingHeader, bytes: &[u8]) {
    let address = |text: &str| Address::new(text.parse().expect("an address"));
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let trust = Trust::new(networks.to_vec(), header).expect("safe networks");
    let (proxy, stranger, client) = (address("10.0.0.1"), address("203.0.113.9"), address("198.51.100.7"));
    let own = if header == ForwardingHeader::Forwarded { "for=198.51.100.7" } else { "198.51.100.7" };
    let lines: Vec<HeaderValue> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();

    let mut headers = HeaderMap::new();
    for line in &lines {
        headers.append(header.name(), line.clone());
    }
    assert!(trust.origin(stranger, &headers).address == stranger);
    let _ = trust.origin(proxy, &headers);

    headers.append(header.name(), HeaderValue::from_static(own));
    let mut joined = HeaderMap::new();
    let last = lines.last().map_or(&b""[..], HeaderValue::as_bytes);
    let value = HeaderValue::from_bytes(&[last, b", ", own.as_bytes()].concat()).expect("a value");
    joined.append(header.name(), value);
    for headers in [headers, joined] {
        let origin = trust.origin(proxy, &headers);
        assert!(origin.address == client && origin.distance == Distance::NextDoor);
    }
}

/// A PROXY header is whole at one length, and its beginnings are beginnings.
pub fn proxy_header(bytes: &[u8]) {
    // Also past the signature and the line's beginning, which are hard to guess.
    for before in [&b""[..], b"\r\n\r\n\0\r\nQUIT\n\x21", b"PROXY TCP"] {
        let bytes = [before, bytes].concat();
        let Reading::Whole(_, length) = read_proxy_header(&bytes, PROXY_HEADER_BYTES_MAX) else { continue };
        assert!(length <= bytes.len() && length <= PROXY_HEADER_BYTES_MAX);
        for end in 0..length {
            let beginning = read_proxy_header(&bytes[..end], PROXY_HEADER_BYTES_MAX);
            assert!(matches!(beginning, Reading::Beginning), "at {end} of {length}");
        }
    }
}
