//! Which hosts of the service are for one address family only.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};
use ipseity_domain::AddressFamily;

/// The host names for one family.
pub(super) struct HostFamilies {
    ipv4_host: String,
    ipv6_host: String,
}

impl HostFamilies {
    pub(super) const fn new(ipv4_host: String, ipv6_host: String) -> Self {
        Self { ipv4_host, ipv6_host }
    }

    /// The family of a request's host. `None` for a host that is for both. The port does not matter.
    pub(super) fn family_of(&self, uri: &Uri, headers: &HeaderMap) -> Option<AddressFamily> {
        let authority;
        let host = match uri.host() {
            Some(host) => host,
            None => {
                authority = Authority::try_from(headers.get(HOST).map(HeaderValue::as_bytes)?).ok()?;
                authority.host()
            }
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        if host.eq_ignore_ascii_case(&self.ipv4_host) {
            Some(AddressFamily::Ipv4)
        } else if host.eq_ignore_ascii_case(&self.ipv6_host) {
            Some(AddressFamily::Ipv6)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_is_found_by_host_name() {
        let families = HostFamilies::new("ipv4.example.com".to_owned(), "[2001:db8::1]".to_owned());
        for (host, family) in [
            ("ipv4.example.com", Some(AddressFamily::Ipv4)),
            ("IPv4.Example.com.:8443", Some(AddressFamily::Ipv4)),
            ("[2001:DB8::1]:443", Some(AddressFamily::Ipv6)),
            ("example.com", None),
            ("x.ipv4.example.com", None),
            ("ipv4.example.com.evil.example", None),
            ("ipv4.example.com..", None),
            ("", None),
        ] {
            let headers: HeaderMap = [(HOST, host.parse().expect("valid header"))].into_iter().collect();
            assert_eq!(families.family_of(&Uri::from_static("/api/v1/ip"), &headers), family, "{host}");
            if let Ok(uri) = format!("https://{host}/api/v1/ip").parse::<Uri>() {
                assert_eq!(families.family_of(&uri, &HeaderMap::new()), family, "{host}");
            }
        }
        assert_eq!(families.family_of(&Uri::from_static("/"), &HeaderMap::new()), None);
    }
}
