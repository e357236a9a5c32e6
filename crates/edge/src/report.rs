//! What a trusted proxy reports of its client's connection, in headers and in a PROXY header's extensions.
//!
//! A value that is not understood, or that is told twice, is `None`: it is never guessed at.

use domain::{Colo, Connection, HttpProtocol, Tls, TlsVersion};
use http::{HeaderMap, HeaderName};

use crate::suites;

/// The headers by which the trusted proxies report; each must be set or removed by them on every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// `TLSv1.2` or `TLSv1.3`.
    pub tls_version: Option<HeaderName>,
    /// The cipher suite, by its IANA name or by OpenSSL's.
    pub tls_cipher: Option<HeaderName>,
    /// `HTTP/1.1`, `HTTP/2.0`, `h2` and the like.
    pub http_protocol: Option<HeaderName>,
    /// A whole number with its unit: `12ms` or `12345us`.
    pub rtt: Option<HeaderName>,
    /// Three capital letters, alone or behind the last hyphen.
    pub colo: Option<HeaderName>,
}

impl Reports {
    /// The connection that these headers tell of.
    pub(crate) fn read(&self, headers: &HeaderMap) -> Connection {
        let version = only(headers, self.tls_version.as_ref()).and_then(tls_version);
        let cipher = only(headers, self.tls_cipher.as_ref()).and_then(tls_cipher);
        Connection {
            http_protocol: only(headers, self.http_protocol.as_ref()).and_then(http_protocol),
            tls: version.map(|version| Tls { version, cipher }),
            rtt_ms: only(headers, self.rtt.as_ref()).and_then(rtt_ms),
            colo: only(headers, self.colo.as_ref()).and_then(colo),
        }
    }
}

/// The value of a header that has exactly one line.
fn only<'a>(headers: &'a HeaderMap, name: Option<&HeaderName>) -> Option<&'a str> {
    let mut lines = headers.get_all(name?).iter();
    let line = lines.next()?;
    lines.next().is_none().then(|| line.to_str().ok().map(str::trim))?
}

pub(crate) fn tls_version(told: &str) -> Option<TlsVersion> {
    [TlsVersion::V12, TlsVersion::V13].into_iter().find(|version| version.name() == told)
}

pub(crate) fn tls_cipher(told: &str) -> Option<&'static str> {
    suites::iana_name(told)
}

pub(crate) fn http_protocol(told: &str) -> Option<HttpProtocol> {
    Some(match told.to_ascii_lowercase().as_str() {
        "http/1.0" => HttpProtocol::Http10,
        "http/1.1" => HttpProtocol::Http11,
        "http/2" | "http/2.0" | "h2" | "h2c" => HttpProtocol::Http2,
        "http/3" | "http/3.0" | "h3" => HttpProtocol::Http3,
        _ => return None,
    })
}

fn rtt_ms(told: &str) -> Option<u32> {
    let (number, us) = match told.strip_suffix("us") {
        Some(number) => (number, 1),
        None => (told.strip_suffix("ms")?, 1000),
    };
    let is_whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let us = is_whole.then(|| number.parse::<u64>().ok())??.checked_mul(us)?;
    u32::try_from(us / 1000 + u64::from(us % 1000 >= 500)).ok()
}

fn colo(told: &str) -> Option<Colo> {
    told.rsplit('-').next().and_then(Colo::parse)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_round_trip_time_has_a_unit() {
        for (told, ms) in [("12ms", 12), ("12345us", 12), ("12500us", 13), ("0us", 0), ("499us", 0), ("500us", 1)] {
            assert_eq!(rtt_ms(told), Some(ms), "{told}");
        }
        for odd in ["", "12", "us", "ms", "-1ms", "+1ms", "1.5ms", "12 ms", "1s", "99999999999ms", "1msus"] {
            assert_eq!(rtt_ms(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_site_may_stand_behind_a_request_id() {
        for (told, site) in [("FRA", "FRA"), ("8f2b03a1c0ffee00-SJC", "SJC")] {
            assert_eq!(colo(told).as_ref().map(Colo::as_str), Some(site));
        }
        for odd in ["", "fra", "FRA1", "8f2b-", "SJC-8f2b"] {
            assert!(colo(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn what_is_told_twice_or_not_understood_is_not_told() {
        let name = HeaderName::from_static("x-client-tls-version");
        let reports = Reports { tls_version: Some(name.clone()), ..Reports::default() };
        let mut headers = HeaderMap::new();
        for odd in ["TLSv1.1", "TLSv1.3, TLSv1.2", "tlsv1.3", "1.3", ""] {
            headers.insert(&name, HeaderValue::from_static(odd));
            assert_eq!(reports.read(&headers), Connection::default(), "{odd}");
        }
        headers.insert(&name, HeaderValue::from_static("TLSv1.3"));
        assert_eq!(reports.read(&headers).tls, Some(Tls { version: TlsVersion::V13, cipher: None }));
        headers.append(&name, HeaderValue::from_static("TLSv1.3"));
        assert_eq!(reports.read(&headers), Connection::default());
    }
}
