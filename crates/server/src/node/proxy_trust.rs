//! Which proxies the service trusts, from the settings.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use http::HeaderName;
use ipseity_edge::{ConnectionHeaders, ForwardingHeader, PassThrough, Transport, Trust};

use crate::config::edge::{EdgeConfig, ProxyPreset};

pub(crate) fn build_trust(settings: &EdgeConfig) -> Result<Trust> {
    let header = ForwardingHeader::parse(&settings.forwarding_header).with_context(|| {
        let known = ForwardingHeader::ALL.map(|header| format!("{:?}", header.name().as_str())).join(", ");
        format!("[edge] forwarding_header is {:?}. Use one of {known}.", settings.forwarding_header)
    })?;
    let pass_through = match settings.pass_through.as_str() {
        "none" => PassThrough::Nothing,
        "http" => PassThrough::Http,
        "tls" => PassThrough::Tls,
        other => bail!("[edge] pass_through is {other:?}. Use \"none\", \"http\" or \"tls\"."),
    };
    let trusts_no_proxy = settings.trusted_proxies.is_empty();
    ensure!(
        !trusts_no_proxy || settings.preset == ProxyPreset::None,
        "[edge] preset names a proxy, but trusted_proxies is empty. Add the networks of the proxy."
    );
    ensure!(
        !trusts_no_proxy || settings.proxy_protocol.is_empty(),
        "[edge] proxy_protocol names a listener, but trusted_proxies is empty. Add the networks that may send PROXY headers."
    );
    for address in &settings.proxy_protocol {
        ensure!(
            settings.http.contains(address) || settings.https.contains(address),
            "[edge] proxy_protocol contains {address}, which is not in http or https"
        );
    }
    let trust = Trust::new(settings.trusted_proxies.clone(), header).context("invalid [edge] trusted_proxies")?;
    Ok(trust.with_connection_headers(connection_headers(settings, header)?).with_pass_through(pass_through))
}

/// Adds the PROXY protocol to the transport of a listener, if configured.
pub(crate) fn with_proxy_protocol(settings: &EdgeConfig, address: SocketAddr, transport: Transport) -> Transport {
    if settings.proxy_protocol.contains(&address) { Transport::ProxyProtocol(Box::new(transport)) } else { transport }
}

fn connection_headers(settings: &EdgeConfig, forwarding: ForwardingHeader) -> Result<ConnectionHeaders> {
    let mut used_headers = vec![forwarding.name()];
    let mut parse_header = |setting: &str, text: &str| -> Result<Option<HeaderName>> {
        if text.is_empty() {
            return Ok(None);
        }
        let header: HeaderName =
            text.parse().ok().with_context(|| format!("[edge] {setting} is {text:?}, which is not a header name"))?;
        ensure!(!used_headers.contains(&header), "[edge] {setting} is {text:?}, which another setting already uses");
        used_headers.push(header.clone());
        Ok(Some(header))
    };
    Ok(ConnectionHeaders {
        scheme: parse_header("scheme_header", &settings.scheme_header)?,
        tls_version: parse_header("tls_version_header", &settings.tls_version_header)?,
        tls_cipher: parse_header("tls_cipher_header", &settings.tls_cipher_header)?,
        http_protocol: parse_header("http_protocol_header", &settings.http_protocol_header)?,
        rtt: parse_header("rtt_header", &settings.rtt_header)?,
        colo: parse_header("colo_header", &settings.colo_header)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_privacy_page_and_privacy_tests_name_every_forwarding_header() {
        for (file, text) in [
            ("default.toml", include_str!("../config/default.toml")),
            ("docs/privacy.md", include_str!("../../../../docs/privacy.md")),
            ("canaries.rs", include_str!("../../tests/blackbox/privacy/canaries.rs")),
        ] {
            for header in ForwardingHeader::ALL.map(ForwardingHeader::name) {
                assert!(text.to_lowercase().contains(header.as_str()), "{file} does not name {header}");
            }
        }
    }
}
