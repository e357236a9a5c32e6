//! TLS 1.2 and 1.3. Early data is off, because a replayed request would be charged twice.
//!
//! The [`CertResolver`] selects the certificate.

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
use crate::tls::resolver::ALPN_ACME;

pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP3: &[u8] = b"h3";
const ALPN_HTTP11: &[u8] = b"http/1.1";
/// Offered so that the handshake with a client that offers nothing else succeeds.
const ALPN_HTTP10: &[u8] = b"http/1.0";
/// How long a client may cache that HTTP/3 is available.
const ALT_SVC_MAX_AGE_S: u32 = 24 * 60 * 60;

/// Accepts TLS connections over TCP and QUIC with the certificates of a [`CertResolver`].
#[derive(Clone)]
pub struct TlsServerConfig {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) quic_config: Arc<ServerConfig>,
    /// Announces HTTP/3 to clients that connect over TCP.
    pub(crate) alt_svc: Option<HeaderValue>,
}

impl TlsServerConfig {
    /// Creates the configuration for TCP and QUIC.
    #[must_use]
    pub fn new(cert_resolver: &Arc<CertResolver>) -> Self {
        let mut tcp = rustls_config(cert_resolver, rustls::DEFAULT_VERSIONS);
        tcp.alpn_protocols = [ALPN_HTTP2, ALPN_HTTP11, ALPN_HTTP10, ALPN_ACME].map(Vec::from).to_vec();
        let mut quic = rustls_config(cert_resolver, &[&rustls::version::TLS13]);
        quic.alpn_protocols = vec![ALPN_HTTP3.to_vec()];
        Self { acceptor: TlsAcceptor::from(Arc::new(tcp)), quic_config: Arc::new(quic), alt_svc: None }
    }

    /// Announces HTTP/3 on this UDP port in responses over TCP (RFC 7838).
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
        .expect("provider supports both versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::<CertResolver>::clone(cert_resolver));
    config.max_early_data_size = 0;
    // The server's preference decides, not the client's.
    config.ignore_client_order = true;
    config
}

/// The TLS version and cipher suite of a completed handshake.
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

/// The cipher suites of rustls with their IANA names, which differ from the names in rustls.
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
    use rustls::crypto::CryptoProvider;
    use rustls::crypto::aws_lc_rs::{self, kx_group};
    use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConnection};

    use super::*;
    use crate::CertificateFiles;

    /// Completes a handshake with a client that offers the groups of current browsers, in their order.
    fn negotiated_group(server_config: &Arc<ServerConfig>, roots: &RootCertStore) -> Option<NamedGroup> {
        let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        let provider = CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("provider supports both versions")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        // Not all of them: the last one is for ACME challenges.
        config.alpn_protocols = server_config.alpn_protocols[..1].to_vec();
        let name = "localhost".try_into().expect("name is valid");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("client is configured");
        let mut server = ServerConnection::new(Arc::clone(server_config)).expect("server is configured");
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("write to memory");
            server.read_tls(&mut &sent[..]).expect("read from memory");
            server.process_new_packets().expect("messages are valid");
            sent.clear();
            server.write_tls(&mut sent).expect("write to memory");
            client.read_tls(&mut &sent[..]).expect("read from memory");
            client.process_new_packets().expect("messages are valid");
        }
        client.negotiated_key_exchange_group().map(|group| group.name())
    }

    #[test]
    fn browsers_negotiate_a_post_quantum_key_exchange() {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("certificate is generated");
        let files = ["certificate", "key"]
            .map(|name| std::env::temp_dir().join(format!("ipseity-kx-{}-{name}.pem", std::process::id())));
        std::fs::write(&files[0], issued.cert.pem()).expect("file is written");
        std::fs::write(&files[1], issued.signing_key.serialize_pem()).expect("file is written");
        let [certificate, private_key] = files.clone();
        let cert_resolver =
            CertResolver::open(&[CertificateFiles { certificate, private_key }]).expect("certificate loads");
        files.iter().for_each(|file| std::fs::remove_file(file).expect("file is removed"));
        let mut roots = RootCertStore::empty();
        roots.add(issued.cert.der().clone()).expect("certificate is a root");

        let config = TlsServerConfig::new(&Arc::new(cert_resolver));
        for (transport, server_config) in [("TCP", config.acceptor.config()), ("QUIC", &config.quic_config)] {
            assert_eq!(negotiated_group(server_config, &roots), Some(NamedGroup::X25519MLKEM768), "{transport}");
        }
    }

    #[test]
    fn every_rustls_cipher_suite_has_an_iana_name() {
        let suites = aws_lc_rs::ALL_CIPHER_SUITES;
        assert_eq!(suites.len(), RUSTLS_CIPHER_NAMES.len());
        for suite in suites {
            let name = rustls_cipher_name(suite.suite()).expect("suite has a name");
            assert!(name.starts_with("TLS_"), "{name}");
        }
    }
}
