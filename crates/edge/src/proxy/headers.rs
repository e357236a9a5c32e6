//! Headers in which a trusted proxy reports its client's connection, and the values of PROXY header extensions.
//!
//! An unknown or repeated value is `None`.

use http::{HeaderMap, HeaderName};
use ipseity_domain::{Colo, ConnectionFacts, HttpProtocol, TlsInfo, TlsVersion};

use crate::tls::cipher_names;

/// The headers in which trusted proxies report the client's connection.
///
/// The proxies must set or remove each of them on every request. Otherwise clients can choose the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionHeaders {
    /// `https` or `http`: whether the client used TLS.
    pub scheme: Option<HeaderName>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub tls_version: Option<HeaderName>,
    /// The cipher suite, by its IANA name or by OpenSSL's.
    pub tls_cipher: Option<HeaderName>,
    /// A protocol version, such as `HTTP/1.1`, `HTTP/2.0` or `h2`.
    pub http_protocol: Option<HeaderName>,
    /// A whole number with its unit: `12ms` or `12345us`.
    pub rtt: Option<HeaderName>,
    /// Three capital letters, alone or after the last hyphen.
    pub colo: Option<HeaderName>,
}

impl ConnectionHeaders {
    /// Reads the facts about the connection.
    pub(crate) fn read_connection(&self, headers: &HeaderMap) -> ConnectionFacts {
        let version = single_value(headers, self.tls_version.as_ref()).and_then(parse_tls_version);
        let cipher = single_value(headers, self.tls_cipher.as_ref()).and_then(parse_tls_cipher);
        let scheme = single_value(headers, self.scheme.as_ref()).and_then(parse_scheme);
        ConnectionFacts {
            is_encrypted: version.map(|_| true).or(scheme),
            http_protocol: single_value(headers, self.http_protocol.as_ref()).and_then(parse_http_protocol),
            tls: version.map(|version| TlsInfo { version, cipher }),
            rtt_ms: single_value(headers, self.rtt.as_ref()).and_then(parse_rtt_ms),
            colo: single_value(headers, self.colo.as_ref()).and_then(parse_colo),
        }
    }
}

/// The value of a header that has exactly one line.
fn single_value<'a>(headers: &'a HeaderMap, name: Option<&HeaderName>) -> Option<&'a str> {
    let mut values = headers.get_all(name?).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok().map(str::trim))?
}

fn parse_scheme(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    }
}

pub(crate) fn parse_tls_version(value: &str) -> Option<TlsVersion> {
    [TlsVersion::V12, TlsVersion::V13].into_iter().find(|version| version.name() == value)
}

pub(crate) fn parse_tls_cipher(value: &str) -> Option<&'static str> {
    cipher_names::iana_cipher_name(value)
}

pub(crate) fn parse_http_protocol(value: &str) -> Option<HttpProtocol> {
    Some(match value.to_ascii_lowercase().as_str() {
        "http/1.0" => HttpProtocol::Http10,
        "http/1.1" => HttpProtocol::Http11,
        "http/2" | "http/2.0" | "h2" | "h2c" => HttpProtocol::Http2,
        "http/3" | "http/3.0" | "h3" => HttpProtocol::Http3,
        _ => return None,
    })
}

fn parse_rtt_ms(value: &str) -> Option<u32> {
    let (number, unit_us) = match value.strip_suffix("us") {
        Some(number) => (number, 1),
        None => (value.strip_suffix("ms")?, 1000),
    };
    let is_unsigned_integer = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let rtt_us = is_unsigned_integer.then(|| number.parse::<u64>().ok())??.checked_mul(unit_us)?;
    u32::try_from(rtt_us / 1000 + u64::from(rtt_us % 1000 >= 500)).ok()
}

fn parse_colo(value: &str) -> Option<Colo> {
    value.rsplit('-').next().and_then(Colo::parse)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn rtt_header_requires_a_unit() {
        for (value, ms) in [("12ms", 12), ("12345us", 12), ("12500us", 13), ("0us", 0), ("499us", 0), ("500us", 1)] {
            assert_eq!(parse_rtt_ms(value), Some(ms), "{value}");
        }
        for invalid in ["", "12", "us", "ms", "-1ms", "+1ms", "1.5ms", "12 ms", "1s", "99999999999ms", "1msus"] {
            assert_eq!(parse_rtt_ms(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn colo_is_read_from_the_end_of_a_request_id() {
        for (value, expected) in [("FRA", "FRA"), ("8f2b03a1c0ffee00-SJC", "SJC")] {
            assert_eq!(parse_colo(value).as_ref().map(Colo::as_str), Some(expected));
        }
        for invalid in ["", "fra", "FRA1", "8f2b-", "SJC-8f2b"] {
            assert!(parse_colo(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn scheme_or_tls_version_reports_encryption() {
        let (scheme, version) = (HeaderName::from_static("x-forwarded-proto"), HeaderName::from_static("x-tls"));
        let connection_headers = ConnectionHeaders {
            scheme: Some(scheme.clone()),
            tls_version: Some(version.clone()),
            ..ConnectionHeaders::default()
        };
        let mut headers = HeaderMap::new();
        assert_eq!(connection_headers.read_connection(&headers).is_encrypted, None);
        for (value, expected) in
            [("https", Some(true)), ("HTTP", Some(false)), ("", None), ("https, http", None), ("wss", None)]
        {
            headers.insert(&scheme, HeaderValue::from_static(value));
            assert_eq!(connection_headers.read_connection(&headers).is_encrypted, expected, "{value}");
        }
        headers.insert(&version, HeaderValue::from_static("TLSv1.3"));
        assert_eq!(connection_headers.read_connection(&headers).is_encrypted, Some(true));
        assert_eq!(ConnectionHeaders::default().read_connection(&headers), ConnectionFacts::default());
    }

    #[test]
    fn repeated_or_unknown_connection_headers_are_ignored() {
        let name = HeaderName::from_static("x-client-tls-version");
        let connection_headers = ConnectionHeaders { tls_version: Some(name.clone()), ..ConnectionHeaders::default() };
        let mut headers = HeaderMap::new();
        for invalid in ["TLSv1.1", "TLSv1.3, TLSv1.2", "tlsv1.3", "1.3", ""] {
            headers.insert(&name, HeaderValue::from_static(invalid));
            assert_eq!(connection_headers.read_connection(&headers), ConnectionFacts::default(), "{invalid}");
        }
        headers.insert(&name, HeaderValue::from_static("TLSv1.3"));
        assert_eq!(
            connection_headers.read_connection(&headers).tls,
            Some(TlsInfo { version: TlsVersion::V13, cipher: None })
        );
        headers.append(&name, HeaderValue::from_static("TLSv1.3"));
        assert_eq!(connection_headers.read_connection(&headers), ConnectionFacts::default());
    }
}
