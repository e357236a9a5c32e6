//! Whom the service believes, from the settings. What cannot be meant is refused here, with the reason.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use http::HeaderName;
use ipseity_edge::{ConnectionHeaders, ForwardingHeader, PassThrough, Transport, Trust};

use crate::config::EdgeConfig;
use crate::config::proxy_preset::ProxyPreset;

/// The trust that the settings describe.
pub(crate) fn build_trust(settings: &EdgeConfig) -> Result<Trust> {
    let header = ForwardingHeader::parse(&settings.forwarding_header).with_context(|| {
        let known = ForwardingHeader::ALL.map(|header| format!("{:?}", header.name().as_str())).join(", ");
        format!("[edge] forwarding_header is {:?}; use one of {known}", settings.forwarding_header)
    })?;
    let pass_through = match settings.pass_through.as_str() {
        "none" => PassThrough::Nothing,
        "http" => PassThrough::Http,
        "tls" => PassThrough::Tls,
        other => bail!("[edge] pass_through is {other:?}; use \"none\", \"http\" or \"tls\""),
    };
    let trusts_no_proxy = settings.trusted_proxies.is_empty();
    ensure!(
        !trusts_no_proxy || settings.preset == ProxyPreset::None,
        "[edge] preset names a proxy and trusted_proxies is empty; name the networks of the proxy, or anyone could claim to be it"
    );
    ensure!(
        !trusts_no_proxy || settings.proxy_protocol.is_empty(),
        "[edge] proxy_protocol names a listener and trusted_proxies is empty; name the networks that may send PROXY headers, or anyone could claim to be anyone"
    );
    for address in &settings.proxy_protocol {
        ensure!(
            settings.http.contains(address) || settings.https.contains(address),
            "[edge] proxy_protocol names {address}, which is not among the listeners of http and https"
        );
    }
    let trust = Trust::new(settings.trusted_proxies.clone(), header).context("[edge] trusted_proxies is refused")?;
    Ok(trust.with_connection_headers(connection_headers(settings, header)?).with_pass_through(pass_through))
}

/// The transport of a listener, behind a PROXY header where the settings say so.
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
            text.parse().ok().with_context(|| format!("[edge] {setting} is {text:?}, which is no header's name"))?;
        ensure!(!used_headers.contains(&header), "[edge] {setting} is {text:?}, which another setting reads already");
        used_headers.push(header.clone());
        Ok(Some(header))
    };
    Ok(ConnectionHeaders {
        tls_version: parse_header("tls_version_header", &settings.tls_version_header)?,
        tls_cipher: parse_header("tls_cipher_header", &settings.tls_cipher_header)?,
        http_protocol: parse_header("http_protocol_header", &settings.http_protocol_header)?,
        rtt: parse_header("rtt_header", &settings.rtt_header)?,
        colo: parse_header("colo_header", &settings.colo_header)?,
    })
}
