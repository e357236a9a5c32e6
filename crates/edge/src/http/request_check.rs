//! The checks that every request passes before the application sees it.

use http::header::HOST;
use http::{HeaderMap, Request, Version};
use ipseity_domain::RequestError;

use crate::EdgeLimits;

/// Bytes of a header field besides its name and value, as in HTTP/1: a colon, a space and a line break.
const FIELD_OVERHEAD_BYTES: usize = 4;

/// Checks the size of a request's header block, and its `Host`.
///
/// HTTP/1 has the size limit in its parser as well. HTTP/2 and HTTP/3 accept larger blocks, so that the response to one
/// comes from here.
pub(crate) fn check_request<B>(request: &Request<B>, limits: &EdgeLimits) -> Result<(), RequestError> {
    let headers = request.headers();
    let field_bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD_BYTES);
    let uri = request.uri();
    let uri_bytes = uri.path().len() + uri.query().map_or(0, str::len);
    if headers.len() > limits.headers_max || field_bytes.sum::<usize>() + uri_bytes > limits.header_bytes_max {
        return Err(RequestError::HeadersTooLarge);
    }
    let needs_host = match request.version() {
        Version::HTTP_09 | Version::HTTP_10 => false,
        Version::HTTP_11 => true,
        _ => uri.authority().is_none(),
    };
    check_host(headers, needs_host)
}

/// RFC 9112, section 3.2: exactly one valid `Host`. HTTP/1.0 may omit it, and HTTP/2 and HTTP/3 have `:authority`.
fn check_host(headers: &HeaderMap, is_required: bool) -> Result<(), RequestError> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if is_required => Err(RequestError::InvalidHost),
        (None, _) => Ok(()),
        (Some(host), None) if is_valid_host(host.as_bytes()) => Ok(()),
        (Some(_), _) => Err(RequestError::InvalidHost),
    }
}

/// Whether the bytes can be a host and a port (RFC 3986, section 3.2.2), without a user.
fn is_valid_host(host: &[u8]) -> bool {
    !host.is_empty() && host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_and_ports_are_valid() {
        for valid in ["example.org", "example.org:8443", "[2001:db8::1]:443", "127.0.0.1", "xn--bcher-kva.example"] {
            assert!(is_valid_host(valid.as_bytes()), "{valid}");
        }
        for invalid in ["", "a b", "a/b", "user@example.org", "a\tb", "bücher.example", "a?b", "a#b", "<b>"] {
            assert!(!is_valid_host(invalid.as_bytes()), "{invalid}");
        }
    }
}
