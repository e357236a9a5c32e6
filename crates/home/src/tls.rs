//! Mutual TLS 1.3. Home accepts the certificates that it has a list of, and needs no certificate authority for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const ALPN: &[u8] = b"h2";

/// A certificate or private key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// The file cannot be read as PEM.
    #[error("failed to read {0}: {1}")]
    Unreadable(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// The file has no certificate.
    #[error("{0} has no certificate. It must be a PEM file.")]
    NoCertificate(PathBuf),
    /// Certificate and private key do not fit together, or are not supported.
    #[error("failed to use the certificate {0}: {1}")]
    Unusable(PathBuf, #[source] Error),
}

/// Certificate and private key of a node.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// Certificate chain (PEM).
    pub certificate_file: PathBuf,
    /// Private key (PEM).
    pub private_key_file: PathBuf,
}

impl ClientIdentity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsFileError> {
        let private_key = PrivateKeyDer::from_pem_file(&self.private_key_file)
            .map_err(|error| TlsFileError::Unreadable(self.private_key_file.clone(), error))?;
        Ok((read_certificates(&self.certificate_file)?, private_key))
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let unreadable = |error| TlsFileError::Unreadable(file.to_owned(), error);
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if certificates.is_empty() { Err(TlsFileError::NoCertificate(file.to_owned())) } else { Ok(certificates) }
}

/// The TLS settings of a remote node. Home must present a certificate that is in `ca_file` or issued by one in it.
pub(crate) fn client_config(identity: &ClientIdentity, ca_file: &Path) -> Result<Arc<ClientConfig>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(ca_file)? {
        roots.add(certificate).map_err(|error| TlsFileError::Unusable(ca_file.to_owned(), error))?;
    }
    let (certificates, private_key) = identity.read()?;
    let unusable = |error| TlsFileError::Unusable(identity.certificate_file.clone(), error);
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, private_key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The names of the sites, by the SHA-256 of their certificate.
pub type SiteList = HashMap<[u8; 32], String>;

/// Accepts connections of listed certificates.
#[derive(Clone)]
pub struct SitesAcceptor {
    acceptor: TlsAcceptor,
    sites: watch::Receiver<Arc<SiteList>>,
}

impl SitesAcceptor {
    /// Accepts the certificates in the current list.
    ///
    /// # Errors
    /// If the certificate of this node cannot be used.
    pub fn new(identity: &ClientIdentity, sites: watch::Receiver<Arc<SiteList>>) -> Result<Self, TlsFileError> {
        let (certificates, private_key) = identity.read()?;
        let unusable = |error| TlsFileError::Unusable(identity.certificate_file.clone(), error);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = ListedCertificates { sites: sites.clone(), provider: Arc::clone(&provider) };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(certificates, private_key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would not check the list again.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), sites })
    }

    /// Completes the handshake. Returns the stream and the name of the site; `None` if the certificate is not listed.
    pub(crate) async fn accept(&self, socket: TcpStream) -> Option<(TlsStream<TcpStream>, ListedSite)> {
        let stream = self.acceptor.accept(socket).await.ok()?;
        let fingerprint = fingerprint(stream.get_ref().1.peer_certificates()?.first()?);
        let name = self.sites.borrow().get(&fingerprint)?.clone();
        Some((stream, ListedSite { name, fingerprint, sites: self.sites.clone() }))
    }
}

/// The site of a connection.
pub(crate) struct ListedSite {
    pub(crate) name: String,
    fingerprint: [u8; 32],
    sites: watch::Receiver<Arc<SiteList>>,
}

impl ListedSite {
    /// Waits until the certificate is no longer listed under its name.
    pub(crate) async fn removed(&mut self) {
        let Self { name, fingerprint, sites } = self;
        if sites.wait_for(|sites| sites.get(fingerprint) != Some(name)).await.is_err() {
            // The list is no longer read, because the node stops.
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug)]
struct ListedCertificates {
    sites: watch::Receiver<Arc<SiteList>>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for ListedCertificates {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Neither the issuer nor the dates count: the operator has listed this certificate.
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.sites.borrow().contains_key(&fingerprint(certificate)) {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}
