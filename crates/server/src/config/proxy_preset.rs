//! Settings for the proxies that people use. Each belongs to a snippet of the proxy's own configuration in docs/proxies.md.
//!
//! A preset fills what is left empty and overrules nothing, so that `ipseity check` prints what takes effect.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::EdgeConfig;

/// What stands in front of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProxyPreset {
    None,
    Nginx,
    Haproxy,
    Cloudflare,
    AwsNlb,
    AwsAlb,
}

/// The networks from which Cloudflare connects to origins, as it publishes them.
const CLOUDFLARE_NETWORKS: [&str; 22] = [
    "173.245.48.0/20",
    "103.21.244.0/22",
    "103.22.200.0/22",
    "103.31.4.0/22",
    "141.101.64.0/18",
    "108.162.192.0/18",
    "190.93.240.0/20",
    "188.114.96.0/20",
    "197.234.240.0/22",
    "198.41.128.0/17",
    "162.158.0.0/15",
    "104.16.0.0/13",
    "104.24.0.0/14",
    "172.64.0.0/13",
    "131.0.72.0/22",
    "2400:cb00::/32",
    "2606:4700::/32",
    "2803:f800::/32",
    "2405:b500::/32",
    "2405:8100::/32",
    "2a06:98c0::/29",
    "2c0f:f248::/32",
];

impl ProxyPreset {
    /// Gives values to the settings that are empty.
    pub(crate) fn fill_empty_settings(self, edge: &mut EdgeConfig) {
        let all_listeners = [&edge.http[..], &edge.https[..]].concat();
        let set_if_empty = |setting: &mut String, value: &str| {
            if setting.is_empty() {
                value.clone_into(setting);
            }
        };
        match self {
            Self::None => {}
            Self::Nginx => {
                set_if_empty(&mut edge.tls_version_header, "x-client-tls-version");
                set_if_empty(&mut edge.tls_cipher_header, "x-client-tls-cipher");
                set_if_empty(&mut edge.http_protocol_header, "x-client-protocol");
                set_if_empty(&mut edge.rtt_header, "x-client-rtt");
            }
            Self::Haproxy | Self::AwsNlb => {
                if edge.proxy_protocol.is_empty() {
                    edge.proxy_protocol = all_listeners;
                }
                set_if_empty(&mut edge.pass_through, if self == Self::AwsNlb { "tls" } else { "none" });
            }
            Self::Cloudflare => {
                if edge.trusted_proxies.is_empty() {
                    edge.trusted_proxies = cloudflare_networks();
                }
                set_if_empty(&mut edge.forwarding_header, "cf-connecting-ip");
                set_if_empty(&mut edge.colo_header, "cf-ray");
            }
            // Its headers for TLS are sent only if it is told to, and a client's own would pass otherwise.
            Self::AwsAlb => {}
        }
        set_if_empty(&mut edge.forwarding_header, "x-forwarded-for");
        set_if_empty(&mut edge.pass_through, "none");
    }
}

fn cloudflare_networks() -> Vec<IpNet> {
    CLOUDFLARE_NETWORKS.iter().filter_map(|network| network.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cloudflare_network_parses() {
        assert_eq!(cloudflare_networks().len(), CLOUDFLARE_NETWORKS.len());
    }
}
