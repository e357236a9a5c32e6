//! TLS 1.2 and 1.3 with a certificate from files. No early data: a replayed request would be charged twice.
//!
//! Deliberately absent: choosing among certificates by name, and renewal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::TlsVersion;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ProtocolVersion, ServerConfig, ServerConnection};
use tokio_rustls::TlsAcceptor;

pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP11: &[u8] = b"http/1.1";
/// A client that offers no other is answered, and not refused in the handshake.
const ALPN_HTTP10: &[u8] = b"http/1.0";

/// Takes TLS connections with one certificate.
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

/// Why a certificate and its key cannot be used. It never carries what the files hold.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read.
    #[error("{file} could not be read: {source}; check that it exists and that the service may read it")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate file holds no certificate chain.
    #[error("{0} holds no PEM certificate that can be read; it must hold the certificate and then its intermediates")]
    NoCertificate(PathBuf),
    /// The key file holds no private key.
    #[error("{0} holds no PEM private key that can be read; it must hold one unencrypted PKCS #8, PKCS #1 or SEC1 key")]
    NoKey(PathBuf),
    /// The key is another certificate's.
    #[error(
        "the private key in {key_file} does not belong to the first certificate in {certificate_file}; give the two files that were issued together, the server's own certificate first"
    )]
    Mismatch {
        /// The certificate's file.
        certificate_file: PathBuf,
        /// The key's file.
        key_file: PathBuf,
    },
    /// The TLS library refused the pair.
    #[error(
        "the certificate in {certificate_file} and its key cannot be used: {source}; issue them anew with an ECDSA P-256 or RSA 2048 key"
    )]
    Unusable {
        /// The certificate's file.
        certificate_file: PathBuf,
        /// What the library said.
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads a certificate chain and its private key, both PEM, and checks that they belong together.
    pub fn open(certificate_file: &Path, key_file: &Path) -> Result<Self, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = CertificateDer::pem_slice_iter(&read(certificate_file)?)
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .filter(|chain| !chain.is_empty())
            .ok_or_else(|| CertificateError::NoCertificate(certificate_file.into()))?;
        let key =
            PrivateKeyDer::from_pem_slice(&read(key_file)?).map_err(|_| CertificateError::NoKey(key_file.into()))?;
        let unusable = |source| CertificateError::Unusable { certificate_file: certificate_file.into(), source };
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                CertificateError::Mismatch { certificate_file: certificate_file.into(), key_file: key_file.into() }
            } else {
                unusable(error)
            }
        })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = [ALPN_HTTP2, ALPN_HTTP11, ALPN_HTTP10].map(Vec::from).to_vec();
        config.max_early_data_size = 0;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(file).map_err(|source| CertificateError::Unreadable { file: file.into(), source })
}

/// What a finished handshake agreed on.
pub(crate) fn session(connection: &ServerConnection) -> Option<domain::Tls> {
    let version = [(ProtocolVersion::TLSv1_2, TlsVersion::V12), (ProtocolVersion::TLSv1_3, TlsVersion::V13)]
        .into_iter()
        .find_map(|(theirs, ours)| (connection.protocol_version() == Some(theirs)).then_some(ours))?;
    let cipher = cipher_name(connection.negotiated_cipher_suite()?.suite())?;
    Some(domain::Tls { version, cipher: Some(cipher) })
}

/// The suites that the library speaks, and their IANA names, from which its own differ.
const CIPHER_NAMES: [(CipherSuite, &str); 9] = [
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

fn cipher_name(suite: CipherSuite) -> Option<&'static str> {
    CIPHER_NAMES.into_iter().find_map(|(known, name)| (known == suite).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_of_the_library_has_its_iana_name() {
        let suites = aws_lc_rs::ALL_CIPHER_SUITES;
        assert_eq!(suites.len(), CIPHER_NAMES.len());
        for suite in suites {
            let name = cipher_name(suite.suite()).expect("a name");
            assert!(name.starts_with("TLS_"), "{name}");
        }
    }
}
