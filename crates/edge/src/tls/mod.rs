//! TLS 1.2 and 1.3. No early data: a replayed request would be charged twice.
//!
//! Which certificate is shown is the wardrobe's choice.

pub(crate) mod acme;
pub(crate) mod certificate;
pub(crate) mod cipher_names;
pub(crate) mod resolver;

use std::sync::Arc;

use http::HeaderValue;
use ipseity_domain::TlsVersion;
use rustls::{CipherSuite, ProtocolVersion, ServerConfig, SupportedCipherSuite};
use tokio_rustls::TlsAcceptor;

use crate::CertResolver;

pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
pub(crate) const ALPN_ACME: &[u8] = b"acme-tls/1";
const ALPN_HTTP3: &[u8] = b"h3";
const ALPN_HTTP11: &[u8] = b"http/1.1";
/// A client that offers no other is answered, and not refused in the handshake.
const ALPN_HTTP10: &[u8] = b"http/1.0";
/// How long a client may remember that HTTP/3 is spoken here.
const ALT_SVC_MAX_AGE_S: u32 = 24 * 60 * 60;

/// Takes TLS connections with the certificates of a wardrobe.
#[derive(Clone)]
pub struct TlsServerConfig {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) quic_config: Arc<ServerConfig>,
    /// Tells callers over TCP where HTTP/3 is spoken.
    pub(crate) alt_svc: Option<HeaderValue>,
}

impl TlsServerConfig {
    /// Builds it; all of its connections, over TCP and QUIC, are shown the certificates of this wardrobe.
    #[must_use]
    pub fn new(cert_resolver: &Arc<CertResolver>) -> Self {
        let mut tcp = rustls_config(cert_resolver, rustls::DEFAULT_VERSIONS);
        tcp.alpn_protocols = [ALPN_HTTP2, ALPN_HTTP11, ALPN_HTTP10, ALPN_ACME].map(Vec::from).to_vec();
        let mut quic = rustls_config(cert_resolver, &[&rustls::version::TLS13]);
        quic.alpn_protocols = vec![ALPN_HTTP3.to_vec()];
        Self { acceptor: TlsAcceptor::from(Arc::new(tcp)), quic_config: Arc::new(quic), alt_svc: None }
    }

    /// The same, whose answers over TCP say that HTTP/3 is spoken on this UDP port (RFC 7838).
    #[must_use]
    pub fn with_alt_svc(mut self, port: u16) -> Self {
        let text = format!("h3=\":{port}\"; ma={ALT_SVC_MAX_AGE_S}");
        self.alt_svc = HeaderValue::try_from(text).ok();
        self
    }
}

fn rustls_config(
    cert_resolver: &Arc<CertResolver>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(cert_resolver.provider())
        .with_protocol_versions(versions)
        .expect("the provider has suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::<CertResolver>::clone(cert_resolver));
    config.max_early_data_size = 0;
    // The strongest that both speak, whatever a client puts first.
    config.ignore_client_order = true;
    config
}

/// What a finished handshake agreed on.
pub(crate) fn negotiated_session(
    version: Option<ProtocolVersion>,
    suite: Option<SupportedCipherSuite>,
) -> Option<ipseity_domain::TlsInfo> {
    let version = [(ProtocolVersion::TLSv1_2, TlsVersion::V12), (ProtocolVersion::TLSv1_3, TlsVersion::V13)]
        .into_iter()
        .find_map(|(theirs, ours)| (version == Some(theirs)).then_some(ours))?;
    let cipher = rustls_cipher_name(suite?.suite())?;
    Some(ipseity_domain::TlsInfo { version, cipher: Some(cipher) })
}

/// The suites that the library speaks, and their IANA names, from which its own differ.
const RUSTLS_CIPHER_NAMES: [(CipherSuite, &str); 9] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

fn rustls_cipher_name(suite: CipherSuite) -> Option<&'static str> {
    RUSTLS_CIPHER_NAMES.into_iter().find_map(|(known, name)| (known == suite).then_some(name))
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;

    #[test]
    fn every_rustls_cipher_suite_has_an_iana_name() {
        let suites = aws_lc_rs::ALL_CIPHER_SUITES;
        assert_eq!(suites.len(), RUSTLS_CIPHER_NAMES.len());
        for suite in suites {
            let name = rustls_cipher_name(suite.suite()).expect("a name");
            assert!(name.starts_with("TLS_"), "{name}");
        }
    }
}
