//! Keys, credentials, forwarding headers and PROXY headers.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Uri};
use ipseity_domain::{Address, ApiKey, KeyId};
use ipseity_edge::{Distance, ForwardingHeader, ProxyHeaderStatus, Trust, parse_proxy_header};

#[path = "../../crates/api/src/admission/credentials.rs"]
mod credentials;

const PROXY_HEADER_BYTES_MAX: usize = 512;

/// A parsed key has the documented format, and a wrong last character is rejected.
pub(crate) fn check_key(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    if let Some(id) = KeyId::parse(text) {
        assert!(text.ends_with(id.as_str()));
    }
    let Some(key) = ApiKey::parse(text) else { return };
    assert!(text.len() == 52 && text.starts_with("ips_") && text[4..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(key.id.as_str(), &text[4..14]);
    let wrong_character = if text.ends_with('0') { "1" } else { "0" };
    assert!(ApiKey::parse(&[&text[..51], wrong_character].concat()).is_none());
}

/// The key of a request is never empty, and a bearer token wins over the query.
pub(crate) fn check_authorization(bytes: &[u8]) {
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
    assert!(credentials::find_api_key(&parts).is_none_or(|key| !key.is_empty()));
    assert!(credentials::has_key(&parts) || credentials::find_api_key(&parts).is_none());
    let _ = credentials::query_param(&parts, "scope");
    parts.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer ips_own"));
    assert_eq!(credentials::find_api_key(&parts).as_deref(), Some("ips_own"));
}

/// Whatever precedes the proxy's entry, the client is the one that the proxy names. An untrusted peer is itself.
pub(crate) fn check_forwarding(header: ForwardingHeader, bytes: &[u8]) {
    let address = |text: &str| Address::new(text.parse().expect("address parses"));
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("network parses"));
    let trust = Trust::new(networks.to_vec(), header).expect("trust is safe");
    let (proxy, untrusted_peer, client) = (address("10.0.0.1"), address("203.0.113.9"), address("198.51.100.7"));
    let proxy_entry = if header == ForwardingHeader::Forwarded { "for=198.51.100.7" } else { "198.51.100.7" };
    let lines: Vec<HeaderValue> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();

    let mut headers = HeaderMap::new();
    for line in &lines {
        headers.append(header.name(), line.clone());
    }
    assert!(trust.client_origin(untrusted_peer, &headers).address == untrusted_peer);
    let _ = trust.client_origin(proxy, &headers);

    headers.append(header.name(), HeaderValue::from_static(proxy_entry));
    let mut joined = HeaderMap::new();
    let last = lines.last().map_or(&b""[..], HeaderValue::as_bytes);
    let value = HeaderValue::from_bytes(&[last, b", ", proxy_entry.as_bytes()].concat()).expect("value is valid");
    joined.append(header.name(), value);
    for headers in [headers, joined] {
        let origin = trust.client_origin(proxy, &headers);
        assert!(origin.address == client && origin.distance == Distance::OneHop);
    }
}

/// A PROXY header is complete at exactly one length. Every shorter prefix is partial.
pub(crate) fn check_proxy_header(bytes: &[u8]) {
    // With the v2 signature and the v1 prefix too, which are hard to guess.
    for prefix in [&b""[..], b"\r\n\r\n\0\r\nQUIT\n\x21", b"PROXY TCP"] {
        let bytes = [prefix, bytes].concat();
        let ProxyHeaderStatus::Complete(_, length) = parse_proxy_header(&bytes, PROXY_HEADER_BYTES_MAX) else {
            continue;
        };
        assert!(length <= bytes.len() && length <= PROXY_HEADER_BYTES_MAX);
        for end in 0..length {
            let status = parse_proxy_header(&bytes[..end], PROXY_HEADER_BYTES_MAX);
            assert!(matches!(status, ProxyHeaderStatus::Partial), "at {end} of {length}");
        }
    }
}
