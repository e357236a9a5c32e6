//! Settings of `[edge]`, with presets for common proxies. docs/proxies.md has the proxy's side of each preset.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::choice::parse_choice;
use crate::config::listen_address::{deserialize_addresses, deserialize_networks};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeConfig {
    #[serde(deserialize_with = "deserialize_addresses")]
    pub(crate) http: Vec<SocketAddr>,
    #[serde(deserialize_with = "deserialize_addresses")]
    pub(crate) https: Vec<SocketAddr>,
    pub(crate) reuse_port: bool,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) certificates: Vec<CertificateConfig>,
    pub(crate) certificate_watch_interval_ms: u64,
    pub(crate) http3: bool,
    pub(crate) http3_advertised_port: u16,
    pub(crate) colo: String,
    pub(crate) preset: ProxyPreset,
    #[serde(deserialize_with = "deserialize_networks")]
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) forwarding_header: String,
    #[serde(deserialize_with = "deserialize_addresses")]
    pub(crate) proxy_protocol: Vec<SocketAddr>,
    pub(crate) pass_through: String,
    pub(crate) scheme_header: String,
    pub(crate) tls_version_header: String,
    pub(crate) tls_cipher_header: String,
    pub(crate) http_protocol_header: String,
    pub(crate) rtt_header: String,
    pub(crate) colo_header: String,
    pub(crate) blocked_networks_file: PathBuf,
    pub(crate) blocked_networks_lines_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_subnet_max: usize,
    pub(crate) open_files_reserved: usize,
    pub(crate) accept_backoff_ms: u64,
    pub(crate) first_byte_timeout_ms: u64,
    pub(crate) proxy_header_bytes_max: usize,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) header_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) write_bytes_per_second_min: u64,
    pub(crate) unread_body_timeout_ms: u64,
    pub(crate) memory_per_connection_bytes_max: usize,
    pub(crate) memory_per_subnet_bytes_max: usize,
    pub(crate) memory_bytes_max: usize,
    pub(crate) request_timeout_ms: u64,
    pub(crate) drain_delay_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) header_bytes_max: usize,
    pub(crate) uri_bytes_max: usize,
    pub(crate) headers_max: usize,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) stream_resets_max: usize,
    pub(crate) unsolicited_bytes_max: usize,
    pub(crate) failed_attempts_per_connection_max: u32,
    pub(crate) failed_attempt_interval_ms: u64,
    pub(crate) refusal_delay_ms: u64,
    pub(crate) flood_penalty_ms: u64,
    pub(crate) quic_retry_threshold: usize,
}

/// An additional certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
}

/// The proxy in front of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub(crate) enum ProxyPreset {
    None,
    Nginx,
    Haproxy,
    Cloudflare,
    AwsNlb,
    AwsAlb,
}

impl TryFrom<String> for ProxyPreset {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        parse_choice(
            &name,
            [
                ("none", Self::None),
                ("nginx", Self::Nginx),
                ("haproxy", Self::Haproxy),
                ("cloudflare", Self::Cloudflare),
                ("aws-nlb", Self::AwsNlb),
                ("aws-alb", Self::AwsAlb),
            ],
        )
    }
}

/// The header in which most proxies report the scheme that the client used.
const SCHEME_HEADER: &str = "x-forwarded-proto";

/// The networks from which Cloudflare connects to origins: <https://www.cloudflare.com/ips/>.
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
    /// Fills empty settings and keeps all others.
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
                set_if_empty(&mut edge.scheme_header, SCHEME_HEADER);
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
                set_if_empty(&mut edge.scheme_header, SCHEME_HEADER);
                set_if_empty(&mut edge.colo_header, "cf-ray");
            }
            // By default the ALB does not set TLS headers and passes those of the client through, so none is trusted. It
            // always sets the scheme.
            Self::AwsAlb => set_if_empty(&mut edge.scheme_header, SCHEME_HEADER),
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
