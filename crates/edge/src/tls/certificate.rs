//! A certificate and its private key, read from two PEM files and checked before use.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Tolerated difference between the clocks of issuer and server.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The PEM files of a certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The server's certificate, then its intermediates.
    pub certificate: PathBuf,
    /// The private key, not encrypted.
    pub private_key: PathBuf,
}

/// Why a certificate and its key cannot be used. It never contains the content of the files.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read.
    #[error("failed to read {file}: {source}. Check that it exists and that the service may read it.")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The certificate file has no certificate chain.
    #[error("{0} has no valid PEM certificate. It must contain the certificate, then its intermediates.")]
    NoCertificate(PathBuf),
    /// The key file has no private key.
    #[error("{0} has no valid PEM private key. It must contain one unencrypted PKCS #8, PKCS #1 or SEC1 key.")]
    NoKey(PathBuf),
    /// The key belongs to another certificate.
    #[error(
        "the private key in {key_file} does not belong to the first certificate in {certificate_file}. Use two files that were issued together, with the server's certificate first."
    )]
    Mismatch {
        /// The certificate file.
        certificate_file: PathBuf,
        /// The key file.
        key_file: PathBuf,
    },
    /// The certificate has expired.
    #[error("the certificate in {0} has expired. Renew it.")]
    Expired(PathBuf),
    /// The certificate is not valid yet.
    #[error("the certificate in {0} is not valid yet. Check the clock of this machine.")]
    NotYetValid(PathBuf),
    /// The TLS library rejected the pair.
    #[error(
        "failed to load the certificate in {certificate_file}: {source}. Issue it again with an ECDSA P-256 or RSA 2048 key."
    )]
    Unusable {
        /// The certificate file.
        certificate_file: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

impl CertificateFiles {
    /// Reads both files without parsing them.
    pub(crate) fn read_pem(&self) -> Result<PemPair, CertificateError> {
        Ok(PemPair { certificate: read_file(&self.certificate)?, private_key: read_file(&self.private_key)? })
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(file).map_err(|source| CertificateError::Unreadable { file: file.into(), source })
}

/// The content of both files.
#[derive(PartialEq, Eq)]
pub(crate) struct PemPair {
    pub(crate) certificate: Vec<u8>,
    pub(crate) private_key: Vec<u8>,
}

/// A certificate that passed all checks.
#[derive(Clone)]
pub(crate) struct LoadedCertificate {
    pub(crate) certified_key: Arc<CertifiedKey>,
    /// DNS names, in lower case. A wildcard starts with `*.`.
    pub(crate) dns_names: Vec<String>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl LoadedCertificate {
    /// Parses a pair and checks that the key matches and that the certificate is valid now.
    pub(crate) fn parse(
        pem: &PemPair,
        files: &CertificateFiles,
        provider: &CryptoProvider,
    ) -> Result<Self, CertificateError> {
        let certificate_file = &files.certificate;
        let chain = CertificateDer::pem_slice_iter(&pem.certificate)
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .filter(|chain| !chain.is_empty())
            .ok_or_else(|| CertificateError::NoCertificate(certificate_file.into()))?;
        let key = PrivateKeyDer::from_pem_slice(&pem.private_key)
            .map_err(|_| CertificateError::NoKey(files.private_key.clone()))?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|source| {
            if matches!(source, rustls::Error::InconsistentKeys(_)) {
                let key_file = files.private_key.clone();
                CertificateError::Mismatch { certificate_file: certificate_file.into(), key_file }
            } else {
                CertificateError::Unusable { certificate_file: certificate_file.into(), source }
            }
        })?;
        // Cannot fail in practice: rustls has parsed the same bytes more strictly.
        let (_, leaf) = X509Certificate::from_der(key.end_entity_cert().map_or(&[][..], |leaf| leaf.as_ref()))
            .map_err(|_| CertificateError::NoCertificate(certificate_file.into()))?;
        let not_before = system_time(leaf.validity().not_before.timestamp());
        let not_after = system_time(leaf.validity().not_after.timestamp());
        let names = dns_names(&leaf);
        let now = SystemTime::now();
        if not_after <= now {
            return Err(CertificateError::Expired(certificate_file.into()));
        }
        if not_before > now + CLOCK_SKEW {
            return Err(CertificateError::NotYetValid(certificate_file.into()));
        }
        Ok(Self { certified_key: Arc::new(key), dns_names: names, not_before, not_after })
    }

    /// Whether the certificate covers this server name. A wildcard matches one label (RFC 6125).
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.dns_names.iter().any(|dns_name| {
            dns_name == name || dns_name.strip_prefix("*.").is_some_and(|dns_name| Some(dns_name) == parent)
        })
    }
}

fn dns_names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let extension = leaf.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    names
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(name.to_ascii_lowercase()) } else { None })
        .collect()
}

/// Unix time, in seconds.
pub(crate) fn unix_s(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    }
}

fn system_time(unix_s: i64) -> SystemTime {
    match u64::try_from(unix_s) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds),
        Err(_) => UNIX_EPOCH - Duration::from_secs(unix_s.unsigned_abs()),
    }
}
