//! All certificates of a node: chosen by the name that a client asks for, and replaced while connections go on.
//!
//! TCP and QUIC share it, so a replacement is one store. A connection keeps what it was shown; nothing is ever dropped for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::tls::ALPN_ACME;
use crate::tls::certificate::{CertificateError, CertificateFiles, LoadedCertificate, PemPair, unix_s};

/// The certificates in use.
pub struct CertResolver {
    provider: Arc<CryptoProvider>,
    active: ArcSwap<Vec<CertificateEntry>>,
    /// Certificates that answer an authority's TLS-ALPN-01 challenge, by name (RFC 8737).
    challenges: ArcSwap<HashMap<String, Arc<CertifiedKey>>>,
    /// What each pair of files looked like when it was judged unfit, so that it is told once.
    rejected: Mutex<HashMap<usize, RejectedPair>>,
}

#[derive(Clone)]
struct CertificateEntry {
    files: CertificateFiles,
    pem: Arc<PemPair>,
    /// `None` until an authority has issued it.
    certificate: Option<LoadedCertificate>,
}

#[derive(PartialEq, Eq)]
struct RejectedPair {
    reason: String,
    reported: bool,
}

/// What a look at the files found.
#[derive(Debug, Default)]
pub struct CertificateReload {
    /// Pairs that are used from now on.
    pub replaced: Vec<CertificateFiles>,
    /// Why a changed pair is not used; the one before it stays.
    pub refused: Vec<CertificateError>,
}

/// When a certificate expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Its first DNS name, or its file.
    pub name: String,
    /// Expiry in Unix time.
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
    /// Reads and checks every pair. The first is shown to clients that ask for a name which none is for.
    pub fn open(pairs: &[CertificateFiles]) -> Result<Self, CertificateError> {
        let resolver = Self::empty();
        let active = pairs.iter().map(|files| resolver.load(files)).collect::<Result<Vec<_>, _>>()?;
        resolver.active.store(Arc::new(active));
        Ok(resolver)
    }

    /// The same with one more certificate, which an authority is still to issue into these files unless they hold it already.
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

    /// Looks at the files, and takes up those that have changed and are fit for use.
    ///
    /// What is unfit is told when a second look finds it unchanged: between the writing of the two files they do not fit each other.
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
                        reload.replaced.push(active.files.clone());
                    }
                    Err(error) => reload.refused.extend(report_if_unchanged(&mut rejected, index, error)),
                },
                Err(_) if is_pending => {}
                Err(error) => reload.refused.extend(report_if_unchanged(&mut rejected, index, error)),
            }
        }
        if !reload.replaced.is_empty() {
            self.active.store(Arc::new(active));
        }
        reload
    }

    /// How long each certificate is still good.
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

    /// The certificate that is kept in these files, if there is one.
    pub(crate) fn find_certificate(&self, files: &CertificateFiles) -> Option<LoadedCertificate> {
        self.active.load().iter().find(|entry| entry.files == *files)?.certificate.clone()
    }

    /// Shows this to an authority that asks for the name with ALPN `acme-tls/1`.
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
