//! Where requests to channels may go: to public addresses, and to networks that the operator allows. Owners choose the URL, so a
//! request must not reach what only this machine can reach.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Maximum length of a URL, which the database checks too.
const URL_CHARS_MAX: usize = 2000;
/// Networks of IPv4 that are not public (IANA's registry of special purposes).
const SPECIAL_IPV4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// The only public addresses of IPv6 are in 2000::/3.
const GLOBAL_IPV6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Networks in 2000::/3 that are not public, or that lead to IPv4 addresses.
const SPECIAL_IPV6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// The address of a channel is not public, and its network is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("the address is not public")]
pub(crate) struct PrivateAddress;

/// Why a URL cannot be the URL of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChannelUrlError {
    #[error("Enter a URL such as https://example.com/hooks/ipseity.")]
    Malformed,
    #[error("Use https. Over plain HTTP, anyone on the network could read and change alerts.")]
    NotHttps,
    #[error("Remove the user name and password. Receivers recognize requests by their signature, or by a secret path.")]
    HasCredentials,
    #[error("Use a public address. This service sends nothing to private networks.")]
    Private,
}

/// Which addresses requests may go to.
#[derive(Clone, Debug)]
pub(crate) struct DestinationPolicy {
    /// Networks that are allowed although they are not public. Only they can be reached over plain HTTP.
    allowed_networks: Arc<[IpNet]>,
}

impl DestinationPolicy {
    pub(crate) fn new(allowed_networks: &[IpNet]) -> Self {
        Self { allowed_networks: allowed_networks.into() }
    }

    /// Parses the URL of a channel. The addresses of host names are checked when requests are sent, because they can change.
    pub(crate) fn parse_url(&self, text: &str) -> Result<Url, ChannelUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| ChannelUrlError::Malformed)?;
        let is_plain = match url.scheme() {
            "https" => false,
            "http" if self.allowed_networks.is_empty() => return Err(ChannelUrlError::NotHttps),
            "http" => true,
            _ => return Err(ChannelUrlError::Malformed),
        };
        if url.as_str().len() > URL_CHARS_MAX {
            return Err(ChannelUrlError::Malformed);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ChannelUrlError::HasCredentials);
        }
        if literal_address(&url).is_some_and(|address| !self.permits(address, is_plain)) {
            return Err(ChannelUrlError::Private);
        }
        Ok(url)
    }

    fn permits(&self, address: IpAddr, is_plain: bool) -> bool {
        let address = address.to_canonical();
        let is_allowed = self.allowed_networks.iter().any(|network| network.contains(&address));
        is_allowed || !is_plain && is_public(address)
    }

    /// Resolves host names for requests over HTTPS or plain HTTP. The connection uses the addresses that were checked.
    pub(super) fn resolver(&self, is_plain: bool) -> Arc<PublicResolver> {
        Arc::new(PublicResolver { policy: self.clone(), is_plain })
    }
}

/// The address of a URL that has one instead of a host name. It is not resolved.
fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

fn is_public(address: IpAddr) -> bool {
    let contains =
        |network: IpAddr, prefix: u8| IpNet::new(network, prefix).is_ok_and(|network| network.contains(&address));
    if address.is_ipv4() {
        return !SPECIAL_IPV4.iter().any(|(network, prefix)| contains((*network).into(), *prefix));
    }
    contains(GLOBAL_IPV6.0.into(), GLOBAL_IPV6.1)
        && !SPECIAL_IPV6.iter().any(|(network, prefix)| contains((*network).into(), *prefix))
}

/// Resolves names as the system does, and refuses a name with an address that is not permitted.
pub(super) struct PublicResolver {
    policy: DestinationPolicy,
    is_plain: bool,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, is_plain) = (self.policy.clone(), self.is_plain);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if addresses.iter().all(|address| policy.permits(address.ip(), is_plain)) {
                Ok(Box::new(addresses.into_iter()) as Addrs)
            } else {
                Err(Box::new(PrivateAddress) as Box<dyn Error + Send + Sync>)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for public in
            ["8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"]
        {
            assert!(is_public(public.parse().expect("address parses")), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.0.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
            "::7f00:1",
        ] {
            assert!(!is_public(special.parse().expect("address parses")), "{special}");
        }
    }

    #[test]
    fn urls_are_public_and_encrypted() {
        let policy = DestinationPolicy::new(&[]);
        for url in [
            "https://hooks.example/a?b=c",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]:8443/",
            " https://a.example ",
        ] {
            assert!(policy.parse_url(url).is_ok(), "{url}");
        }
        for (url, expected) in [
            ("", ChannelUrlError::Malformed),
            ("hooks.example", ChannelUrlError::Malformed),
            ("ftp://hooks.example/", ChannelUrlError::Malformed),
            ("file:///etc/passwd", ChannelUrlError::Malformed),
            ("https://", ChannelUrlError::Malformed),
            ("http://hooks.example/", ChannelUrlError::NotHttps),
            ("https://user@hooks.example/", ChannelUrlError::HasCredentials),
            ("https://:secret@hooks.example/", ChannelUrlError::HasCredentials),
            ("https://127.0.0.1/", ChannelUrlError::Private),
            ("https://0x7f.1/", ChannelUrlError::Private),
            ("https://2130706433/", ChannelUrlError::Private),
            ("https://[::ffff:10.0.0.1]/", ChannelUrlError::Private),
            ("https://169.254.169.254/latest/meta-data", ChannelUrlError::Private),
            ("https://169.254.169.254.:443/", ChannelUrlError::Private),
            ("https://0251.0376.0251.0376/", ChannelUrlError::Private),
            ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", ChannelUrlError::Private),
            ("https://127\u{3002}0.0.1/", ChannelUrlError::Private),
            ("https://[fe80::1%25eth0]/", ChannelUrlError::Malformed),
            ("https://[64:ff9b::a9fe:a9fe]/", ChannelUrlError::Private),
            ("https://[fd00:ec2::254]/", ChannelUrlError::Private),
            ("https://hooks.example:65536/", ChannelUrlError::Malformed),
        ] {
            assert_eq!(policy.parse_url(url), Err(expected), "{url}");
        }
        let long = format!("https://hooks.example/{}", "a".repeat(URL_CHARS_MAX));
        assert_eq!(policy.parse_url(&long), Err(ChannelUrlError::Malformed));
    }

    #[test]
    fn allowed_networks_can_be_reached_over_plain_http() {
        let policy = DestinationPolicy::new(&["10.1.0.0/16".parse().expect("network parses")]);
        for url in ["http://10.1.2.3/", "https://10.1.2.3/", "http://hooks.internal/", "http://[::ffff:10.1.2.3]/"] {
            assert!(policy.parse_url(url).is_ok(), "{url}");
        }
        for url in ["http://10.2.0.1/", "https://10.2.0.1/", "http://8.8.8.8/"] {
            assert_eq!(policy.parse_url(url), Err(ChannelUrlError::Private), "{url}");
        }
    }

    #[tokio::test]
    async fn names_with_private_addresses_are_refused() {
        let resolve = async |policy: &DestinationPolicy, is_plain| {
            let name = "localhost".parse().expect("name parses");
            policy.resolver(is_plain).resolve(name).await.map(drop)
        };
        let (closed, open) = (
            DestinationPolicy::new(&[]),
            DestinationPolicy::new(&["127.0.0.0/8", "::1/128"].map(|network| network.parse().expect("network parses"))),
        );
        for is_plain in [false, true] {
            let error = resolve(&closed, is_plain).await.expect_err("localhost is private");
            assert!(error.is::<PrivateAddress>());
            resolve(&open, is_plain).await.expect("localhost is allowed");
        }
    }
}
