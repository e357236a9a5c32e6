//! Allowed origins of a key: the web sites whose pages may use it.

use url::{Host, Url};

/// An origin such as `https://example.com`, or `https://*.example.com` for all names below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigin {
    /// As browsers send it, but with `*.` in front of the host if all names below it are allowed.
    text: String,
}

/// Why an entry is not an origin that can be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It is not an origin.
    #[error("is not an origin. Enter scheme and host, such as https://example.com, without a path")]
    Malformed,
    /// It uses another scheme than https, or http outside the own machine.
    #[error("must start with https://. Only localhost may use http://")]
    Scheme,
    /// The host ends with a dot.
    #[error("must not end with a dot")]
    TrailingDot,
    /// It allows all names below a public suffix.
    #[error("allows web sites of different owners. Enter the domain that you have registered")]
    PublicSuffix,
}

const WILDCARD: &str = "*.";
/// Longer than any origin: a host name has at most 253 characters. Parsing a long name is slow.
const ENTRY_BYTES_MAX: usize = 300;

impl AllowedOrigin {
    /// Parses what an owner entered, and normalizes it to what browsers send.
    ///
    /// # Errors
    /// If it is not an origin, or would allow origins of others.
    pub fn parse(entry: &str) -> Result<Self, OriginError> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(OriginError::Malformed);
        }
        let (scheme, authority) = entry.trim().split_once("://").ok_or(OriginError::Malformed)?;
        if authority.contains(['/', '\\', '?', '#', '@']) || authority.contains(char::is_whitespace) {
            return Err(OriginError::Malformed);
        }
        let (prefix, authority) = authority.strip_prefix(WILDCARD).map_or(("", authority), |rest| (WILDCARD, rest));
        if authority.contains('*') {
            return Err(OriginError::Malformed);
        }
        let url = Url::parse(&format!("{scheme}://{authority}")).map_err(|_| OriginError::Malformed)?;
        let host = url.host().ok_or(OriginError::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if is_own_machine(&host) => {}
            _ => return Err(OriginError::Scheme),
        }
        match &host {
            // The parser decodes `%2a` and full-width characters, so that another `*` can appear.
            Host::Domain(name) if !name.trim_end_matches('.').split('.').all(is_label) => {
                return Err(OriginError::Malformed);
            }
            Host::Domain(name) if name.ends_with('.') => return Err(OriginError::TrailingDot),
            Host::Domain(name) if !prefix.is_empty() && contains_only_owners(name) => {
                return Err(OriginError::PublicSuffix);
            }
            Host::Ipv4(_) | Host::Ipv6(_) if !prefix.is_empty() => return Err(OriginError::Malformed),
            Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => {}
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { text: format!("{}://{prefix}{host}{port}", url.scheme()) })
    }

    /// An origin that [`parse`](Self::parse) has normalized. It is not checked again: the list of public suffixes changes.
    #[must_use]
    pub fn from_normalized(text: String) -> Self {
        Self { text }
    }

    /// The normalized text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it allows the origin of a request, as the browser sent it. A wildcard includes no name that somebody else can
    /// have registered below it: the registered domain must be the same.
    #[must_use]
    pub fn allows(&self, origin: &[u8]) -> bool {
        let Some((scheme, suffix)) = self.text.split_once(WILDCARD) else { return origin == self.text.as_bytes() };
        let Some(authority) = origin.strip_prefix(scheme.as_bytes()) else { return false };
        let labels = authority.strip_suffix(suffix.as_bytes()).and_then(|labels| labels.strip_suffix(b"."));
        let name = suffix.split_once(':').map_or(suffix, |(name, _port)| name);
        let host = &authority[..authority.len() - (suffix.len() - name.len())];
        labels.is_some_and(are_labels) && psl::domain(host) == psl::domain(name.as_bytes())
    }
}

/// Whether each name directly below this one has another owner: it is a public suffix, or all names below it are.
fn contains_only_owners(name: &str) -> bool {
    psl::domain_str(name).is_none() || psl::domain_str(&format!("a.{name}")).is_none()
}

/// Whether these are labels of a host name, as browsers write them.
fn are_labels(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'.').all(is_label)
}

fn is_label(label: impl AsRef<[u8]>) -> bool {
    let is_label_byte = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    !label.as_ref().is_empty() && label.as_ref().iter().all(is_label_byte)
}

fn is_own_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_normalized_to_what_browsers_send() {
        for (entry, normalized) in [
            ("https://example.com", "https://example.com"),
            (" https://example.com ", "https://example.com"),
            ("HTTPS://Example.COM", "https://example.com"),
            ("https://example.com:443", "https://example.com"),
            ("https://example.com:8443", "https://example.com:8443"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
            ("https://XN--BCHER-KVA.example", "https://xn--bcher-kva.example"),
            ("https://*.Example.com:8443", "https://*.example.com:8443"),
            ("https://*.shop.example.co.uk", "https://*.shop.example.co.uk"),
            ("https://github.io", "https://github.io"),
            ("https://*.me.github.io", "https://*.me.github.io"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80", "http://localhost"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://192.0.2.7", "https://192.0.2.7"),
            ("https://[2001:DB8::7]", "https://[2001:db8::7]"),
        ] {
            let origin = AllowedOrigin::parse(entry).unwrap_or_else(|error| panic!("{entry}: {error}"));
            assert_eq!(origin.as_str(), normalized, "{entry}");
            assert_eq!(AllowedOrigin::parse(origin.as_str()), Ok(origin), "{entry}");
        }
    }

    #[test]
    fn entries_that_are_no_origin_or_allow_others_are_rejected() {
        for (entry, error) in [
            ("", OriginError::Malformed),
            ("example.com", OriginError::Malformed),
            ("null", OriginError::Malformed),
            ("*", OriginError::Malformed),
            ("https://", OriginError::Malformed),
            ("https://*", OriginError::Malformed),
            ("https://*.", OriginError::Malformed),
            ("https://*.*.example.com", OriginError::Malformed),
            ("https://a.*.example.com", OriginError::Malformed),
            ("https://*example.com", OriginError::Malformed),
            ("https://example.com/", OriginError::Malformed),
            ("https://example.com/path", OriginError::Malformed),
            ("https://example.com?query", OriginError::Malformed),
            ("https://example.com#part", OriginError::Malformed),
            ("https://user@example.com", OriginError::Malformed),
            ("https://user:password@example.com", OriginError::Malformed),
            ("https://example.com\\path", OriginError::Malformed),
            ("https://exam ple.com", OriginError::Malformed),
            ("https://example.com:99999", OriginError::Malformed),
            ("https://*.192.0.2.7", OriginError::Malformed),
            ("http://example.com", OriginError::Scheme),
            ("http://localhost.example.com", OriginError::Scheme),
            ("ftp://example.com", OriginError::Scheme),
            ("file://", OriginError::Malformed),
            ("chrome-extension://abcdef", OriginError::Scheme),
            ("https://example.com.", OriginError::TrailingDot),
            ("https://*.com", OriginError::PublicSuffix),
            ("https://*.co.uk", OriginError::PublicSuffix),
            ("https://*.github.io", OriginError::PublicSuffix),
            ("https://*.localhost", OriginError::PublicSuffix),
            // Every name directly below them is a public suffix.
            ("https://*.kobe.jp", OriginError::PublicSuffix),
            ("https://*.compute.amazonaws.com", OriginError::PublicSuffix),
            ("https://*.ck", OriginError::PublicSuffix),
            // The parser decodes them to `*`.
            ("https://%2a.github.io", OriginError::Malformed),
            ("https://＊.com", OriginError::Malformed),
            ("https://%2A%2Ecom", OriginError::Malformed),
            ("https://a$b.example.com", OriginError::Malformed),
            (&format!("https://{}.example.com", "字".repeat(100)), OriginError::Malformed),
        ] {
            assert_eq!(AllowedOrigin::parse(entry), Err(error), "{entry}");
        }
    }

    #[test]
    fn request_origins_are_compared_byte_by_byte() {
        let exact = AllowedOrigin::parse("https://example.com").expect("valid origin");
        let with_port = AllowedOrigin::parse("https://example.com:8443").expect("valid origin");
        let below = AllowedOrigin::parse("https://*.example.com").expect("valid origin");
        let below_port = AllowedOrigin::parse("https://*.example.com:8443").expect("valid origin");
        let punycode = AllowedOrigin::parse("https://bücher.example").expect("valid origin");
        // A company with names below which others have theirs.
        let company = AllowedOrigin::parse("https://*.amazonaws.com").expect("valid origin");
        let city = AllowedOrigin::parse("https://*.city.kobe.jp").expect("valid origin");
        for (allowed, origin) in [
            (&exact, "https://example.com"),
            (&with_port, "https://example.com:8443"),
            (&below, "https://a.example.com"),
            (&below, "https://a.b-c.d_e.example.com"),
            (&below, "https://xn--bcher-kva.example.com"),
            (&below_port, "https://a.example.com:8443"),
            (&company, "https://console.aws.amazonaws.com"),
            (&city, "https://www.city.kobe.jp"),
            (&punycode, "https://xn--bcher-kva.example"),
        ] {
            assert!(allowed.allows(origin.as_bytes()), "{origin}");
        }
        for (allowed, origin) in [
            (&exact, ""),
            (&exact, "null"),
            (&exact, "http://example.com"),
            (&exact, "https://example.com:443"),
            (&exact, "https://example.com:8443"),
            (&exact, "https://example.com/"),
            (&exact, "https://example.com."),
            (&exact, "https://EXAMPLE.com"),
            (&exact, "https://www.example.com"),
            (&exact, "https://badexample.com"),
            (&exact, "https://example.com.evil.example"),
            (&exact, "https://example.com@evil.example"),
            (&exact, "https://example.com, https://example.com"),
            (&with_port, "https://example.com"),
            (&with_port, "https://example.com:84433"),
            (&below, "https://example.com"),
            (&below, "https://.example.com"),
            (&below, "https://a..example.com"),
            (&below, "https://badexample.com"),
            (&below, "https://A.example.com"),
            (&below, "https://*.example.com"),
            (&below, "https://a.example.com:8443"),
            (&below, "https://a.example.com."),
            (&below, "https://evil.example/.example.com"),
            (&below, "https://evil.example:443.example.com"),
            (&below, "https://user@a.example.com"),
            (&below, "http://a.example.com"),
            (&below_port, "https://a.example.com"),
            (&below_port, "https://example.com:8443"),
            (&company, "https://s3.amazonaws.com"),
            (&company, "https://bucket.s3.amazonaws.com"),
            (&punycode, "https://bücher.example"),
        ] {
            assert!(!allowed.allows(origin.as_bytes()), "{} allows {origin}", allowed.as_str());
        }
    }
}
