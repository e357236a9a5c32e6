//! Files that do not change while the service runs. They are compressed once, at startup, and every response shares
//! their bytes, so that clients who read slowly take no memory.

use std::io::Write as _;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue};

/// A file, and its compressed form if that is smaller.
pub(crate) struct StaticFile {
    content_type: &'static str,
    bytes: Bytes,
    gzip: Option<Bytes>,
}

impl StaticFile {
    pub(crate) fn new(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let gzip = gzip(&bytes).filter(|gzip| gzip.len() < bytes.len());
        Self { content_type, bytes, gzip }
    }

    /// The response to a request with these headers.
    pub(crate) fn respond(&self, request_headers: &HeaderMap, cache_control: &'static str) -> Response {
        let headers = [(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, cache_control)];
        let Some(gzip) = &self.gzip else { return (headers, self.bytes.clone()).into_response() };
        let vary = (VARY, HeaderValue::from_static("accept-encoding"));
        if accepts_gzip(request_headers) {
            let encoding = (CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return (headers, [vary, encoding], gzip.clone()).into_response();
        }
        (headers, [vary], self.bytes.clone()).into_response()
    }
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether `Accept-Encoding` lists gzip with a weight above zero (RFC 9110, section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|element| {
        let mut parts = element.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_gzip && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_headers(accept_encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accept_encoding))])
    }

    #[test]
    fn only_clients_that_accept_gzip_get_it() {
        for accepted in ["gzip", "GZIP", "br, gzip;q=0.5", "deflate,gzip ; q=1"] {
            assert!(accepts_gzip(&request_headers(accepted)), "{accepted}");
        }
        for other in ["", "br", "gzip;q=0", "gzip;q=0.0", "x-gzip", "identity"] {
            assert!(!accepts_gzip(&request_headers(other)), "{other}");
        }
        let file = StaticFile::new("text/plain", "text ".repeat(100));
        let compressed = file.respond(&request_headers("gzip"), "no-cache");
        assert_eq!(compressed.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(compressed.headers()[VARY], "accept-encoding");
        let plain = file.respond(&HeaderMap::new(), "no-cache");
        assert!(plain.headers().contains_key(VARY) && !plain.headers().contains_key(CONTENT_ENCODING));
        let incompressible = StaticFile::new("image/png", vec![7]);
        assert!(!incompressible.respond(&request_headers("gzip"), "no-cache").headers().contains_key(CONTENT_ENCODING));
    }
}
