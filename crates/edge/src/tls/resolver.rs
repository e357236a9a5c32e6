//! All certificates of a node: selected by the server name that a client requests, and replaced without a restart.
//!
//! TCP and QUIC share one resolver. A replacement applies to new handshakes and closes no connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::tls::certificate::{CertificateError, CertificateFiles, LoadedCertificate, PemPair, unix_s};

/// The ALPN protocol of a TLS-ALPN-01 challenge (RFC 8737).
pub(crate) const ALPN_ACME: &[u8] = b"acme-tls/1";

/// Selects the certificate of each handshake and reloads changed files.
pub struct CertResolver {
    provider: Arc<CryptoProvider>,
    active: ArcSwap<Vec<CertificateEntry>>,
    /// Certificates for pending TLS-ALPN-01 challenges, by name.
    challenges: ArcSwap<HashMap<String, Arc<CertifiedKey>>>,
    /// The last error of each pair of files, so that it is reported once.
    rejected: Mutex<HashMap<usize, RejectedPair>>,
}

#[derive(Clone)]
struct CertificateEntry {
    files: CertificateFiles,
    pem: Arc<PemPair>,
    /// `None` until the certificate authority has issued it.
    certificate: Option<LoadedCertificate>,
}

#[derive(PartialEq, Eq)]
struct RejectedPair {
    reason: String,
    reported: bool,
}

/// The result of [`CertResolver::reload`].
#[derive(Debug, Default)]
pub struct CertificateReload {
    /// Pairs that were replaced and are now in use.
    pub reloaded: Vec<CertificateFiles>,
    /// Why a changed pair was rejected. The previous one stays in use.
    pub rejected: Vec<CertificateError>,
}

/// When a certificate expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// The certificate's first DNS name, or its file.
    pub name: String,
    /// The expiry as Unix time, in seconds.
    pub expires_at_s: i64,
}

impl CertificateExpiry {
    /// Full days until expiry; negative after it.
    #[must_use]
    pub fn days_left(&self) -> i64 {
        const DAY_S: i64 = 86_400;
        (self.expires_at_s - unix_s(SystemTime::now())).div_euclid(DAY_S)
    }
}

impl fmt::Debug for CertResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertResolver")
    }
}

impl CertResolver {
    /// Reads and checks every pair. Clients that request an unknown name get the first one.
    pub fn open(pairs: &[CertificateFiles]) -> Result<Self, CertificateError> {
        let resolver = Self::empty();
        let active = pairs.iter().map(|files| resolver.load(files)).collect::<Result<Vec<_>, _>>()?;
        resolver.active.store(Arc::new(active));
        Ok(resolver)
    }

    /// Adds a certificate that ACME will write to these files, or loads it if they exist.
    #[must_use]
    pub fn with_pending(self, files: CertificateFiles) -> Self {
        let empty_pem = PemPair { certificate: Vec::new(), private_key: Vec::new() };
        let entry =
            self.load(&files).unwrap_or(CertificateEntry { files, pem: Arc::new(empty_pem), certificate: None });
        let mut active = Vec::clone(&self.active.load());
        active.push(entry);
        self.active.store(Arc::new(active));
        self
    }

    fn empty() -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            active: ArcSwap::default(),
            challenges: ArcSwap::default(),
            rejected: Mutex::default(),
        }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    fn load(&self, files: &CertificateFiles) -> Result<CertificateEntry, CertificateError> {
        let pem = files.read_pem()?;
        let certificate = LoadedCertificate::parse(&pem, files, &self.provider)?;
        Ok(CertificateEntry { files: files.clone(), pem: Arc::new(pem), certificate: Some(certificate) })
    }

    /// Reads the files again and uses those that have changed and are valid.
    ///
    /// An error is reported when a second reload finds the same error, once. Between the writes of its two files, a
    /// pair does not match.
    pub fn reload(&self) -> CertificateReload {
        let mut reload = CertificateReload::default();
        let mut active = Vec::clone(&self.active.load());
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, active) in active.iter_mut().enumerate() {
            let is_pending = active.certificate.is_none();
            match active.files.read_pem() {
                Ok(pem) if pem == *active.pem => drop(rejected.remove(&index)),
                Ok(_) => match self.load(&active.files) {
                    Ok(new) => {
                        *active = new;
                        rejected.remove(&index);
                        reload.reloaded.push(active.files.clone());
                    }
                    Err(error) => reload.rejected.extend(report_if_unchanged(&mut rejected, index, error)),
                },
                Err(_) if is_pending => {}
                Err(error) => reload.rejected.extend(report_if_unchanged(&mut rejected, index, error)),
            }
        }
        if !reload.reloaded.is_empty() {
            self.active.store(Arc::new(active));
        }
        reload
    }

    /// The expiry of each certificate.
    #[must_use]
    pub fn expirations(&self) -> Vec<CertificateExpiry> {
        let active = self.active.load();
        let loaded = active.iter().filter_map(|active| Some((active, active.certificate.as_ref()?)));
        loaded
            .map(|(active, certificate)| CertificateExpiry {
                name: certificate
                    .dns_names
                    .first()
                    .cloned()
                    .unwrap_or_else(|| active.files.certificate.display().to_string()),
                expires_at_s: unix_s(certificate.not_after),
            })
            .collect()
    }

    /// All DNS names of the certificate that covers a name; `None` if there is no such certificate.
    #[must_use]
    pub fn names_with(&self, name: &str) -> Option<Vec<String>> {
        let active = self.active.load();
        let mut loaded = active.iter().filter_map(|active| active.certificate.as_ref());
        loaded.find(|certificate| certificate.matches_name(name)).map(|certificate| certificate.dns_names.clone())
    }

    /// The certificate loaded from these files, if any.
    pub(crate) fn find_certificate(&self, files: &CertificateFiles) -> Option<LoadedCertificate> {
        self.active.load().iter().find(|entry| entry.files == *files)?.certificate.clone()
    }

    /// Sets or removes the certificate for a TLS-ALPN-01 challenge of this name.
    pub(crate) fn set_challenge(&self, name: &str, certificate: Option<Arc<CertifiedKey>>) {
        self.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            match &certificate {
                Some(certificate) => challenges.insert(name.to_owned(), Arc::clone(certificate)),
                None => challenges.remove(name),
            };
            challenges
        });
    }
}

fn report_if_unchanged(
    rejected: &mut HashMap<usize, RejectedPair>,
    index: usize,
    error: CertificateError,
) -> Option<CertificateError> {
    let reason = error.to_string();
    let previous = rejected.get_mut(&index).filter(|previous| previous.reason == reason);
    match previous {
        Some(previous) if previous.reported => None,
        Some(previous) => {
            previous.reported = true;
            Some(error)
        }
        None => {
            rejected.insert(index, RejectedPair { reason, reported: false });
            None
        }
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == ALPN_ACME));
        if is_challenge {
            return self.challenges.load().get(hello.server_name()?).cloned();
        }
        let active = self.active.load();
        let usable = || {
            let loaded = active.iter().filter_map(|active| active.certificate.as_ref());
            loaded
                .filter(|certificate| certificate.certified_key.key.choose_scheme(hello.signature_schemes()).is_some())
        };
        let matching = hello.server_name().and_then(|name| usable().find(|certificate| certificate.matches_name(name)));
        matching.or_else(|| usable().next()).map(|certificate| Arc::clone(&certificate.certified_key))
    }
}
