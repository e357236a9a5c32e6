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

use crate::certificate::{Certificate, CertificateError, CertificateFiles, Text};
use crate::tls::ALPN_ACME;

/// The certificates in use.
pub struct Wardrobe {
    provider: Arc<CryptoProvider>,
    worn: ArcSwap<Vec<Worn>>,
    /// Certificates that answer an authority's TLS-ALPN-01 challenge, by name (RFC 8737).
    challenges: ArcSwap<HashMap<String, Arc<CertifiedKey>>>,
    /// What each pair of files looked like when it was judged unfit, so that it is told once.
    unfit: Mutex<HashMap<usize, Unfit>>,
}

#[derive(Clone)]
struct Worn {
    files: CertificateFiles,
    text: Arc<Text>,
    /// `None` until an authority has issued it.
    certificate: Option<Certificate>,
}

#[derive(PartialEq, Eq)]
struct Unfit {
    reason: String,
    told: bool,
}

/// What a look at the files found.
#[derive(Debug, Default)]
pub struct Change {
    /// Pairs that are used from now on.
    pub replaced: Vec<CertificateFiles>,
    /// Why a changed pair is not used; the one before it stays.
    pub refused: Vec<CertificateError>,
}

/// How long a certificate is still good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// The first of its names, or its file.
    pub name: String,
    /// Whole days until it expires; negative once it has.
    pub days: i64,
}

impl fmt::Debug for Wardrobe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wardrobe")
    }
}

impl Wardrobe {
    /// Reads and checks every pair. The first is shown to clients that ask for a name which none is for.
    pub fn open(pairs: &[CertificateFiles]) -> Result<Self, CertificateError> {
        let wardrobe = Self::empty();
        let worn = pairs.iter().map(|files| wardrobe.read(files)).collect::<Result<Vec<_>, _>>()?;
        wardrobe.worn.store(Arc::new(worn));
        Ok(wardrobe)
    }

    /// The same with one more certificate, which an authority is still to issue into these files unless they hold it already.
    #[must_use]
    pub fn awaiting(self, files: CertificateFiles) -> Self {
        let nothing = Text { certificate: Vec::new(), private_key: Vec::new() };
        let last = self.read(&files).unwrap_or(Worn { files, text: Arc::new(nothing), certificate: None });
        let mut worn = Vec::clone(&self.worn.load());
        worn.push(last);
        self.worn.store(Arc::new(worn));
        self
    }

    fn empty() -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            worn: ArcSwap::default(),
            challenges: ArcSwap::default(),
            unfit: Mutex::default(),
        }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    fn read(&self, files: &CertificateFiles) -> Result<Worn, CertificateError> {
        let text = files.read()?;
        let certificate = Certificate::parse(&text, files, &self.provider)?;
        Ok(Worn { files: files.clone(), text: Arc::new(text), certificate: Some(certificate) })
    }

    /// Looks at the files, and takes up those that have changed and are fit for use.
    ///
    /// What is unfit is told when a second look finds it unchanged: between the writing of the two files they do not fit each other.
    pub fn refresh(&self) -> Change {
        let mut change = Change::default();
        let mut worn = Vec::clone(&self.worn.load());
        let mut unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, worn) in worn.iter_mut().enumerate() {
            let awaited = worn.certificate.is_none();
            match worn.files.read() {
                Ok(text) if text == *worn.text => drop(unfit.remove(&place)),
                Ok(_) => match self.read(&worn.files) {
                    Ok(new) => {
                        *worn = new;
                        unfit.remove(&place);
                        change.replaced.push(worn.files.clone());
                    }
                    Err(error) => change.refused.extend(tell(&mut unfit, place, error)),
                },
                Err(_) if awaited => {}
                Err(error) => change.refused.extend(tell(&mut unfit, place, error)),
            }
        }
        if !change.replaced.is_empty() {
            self.worn.store(Arc::new(worn));
        }
        change
    }

    /// How long each certificate is still good.
    #[must_use]
    pub fn remaining(&self) -> Vec<Remaining> {
        let now = SystemTime::now();
        let worn = self.worn.load();
        let known = worn.iter().filter_map(|worn| Some((worn, worn.certificate.as_ref()?)));
        known
            .map(|(worn, certificate)| Remaining {
                name: certificate
                    .names
                    .first()
                    .cloned()
                    .unwrap_or_else(|| worn.files.certificate.display().to_string()),
                days: certificate.days_left(now),
            })
            .collect()
    }

    /// The certificate that is kept in these files, if there is one.
    pub(crate) fn find(&self, files: &CertificateFiles) -> Option<Certificate> {
        self.worn.load().iter().find(|worn| worn.files == *files)?.certificate.clone()
    }

    /// Shows this to an authority that asks for the name with ALPN `acme-tls/1`.
    pub(crate) fn challenge(&self, name: &str, answer: Option<Arc<CertifiedKey>>) {
        self.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            match &answer {
                Some(answer) => challenges.insert(name.to_owned(), Arc::clone(answer)),
                None => challenges.remove(name),
            };
            challenges
        });
    }
}

fn tell(unfit: &mut HashMap<usize, Unfit>, place: usize, error: CertificateError) -> Option<CertificateError> {
    let reason = error.to_string();
    let known = unfit.get_mut(&place).filter(|known| known.reason == reason);
    match known {
        Some(known) if known.told => None,
        Some(known) => {
            known.told = true;
            Some(error)
        }
        None => {
            unfit.insert(place, Unfit { reason, told: false });
            None
        }
    }
}

impl ResolvesServerCert for Wardrobe {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == ALPN_ACME));
        if is_challenge {
            return self.challenges.load().get(hello.server_name()?).cloned();
        }
        let worn = self.worn.load();
        let usable = || {
            let known = worn.iter().filter_map(|worn| worn.certificate.as_ref());
            known.filter(|certificate| certificate.key.key.choose_scheme(hello.signature_schemes()).is_some())
        };
        let named = hello.server_name().and_then(|name| usable().find(|certificate| certificate.is_for(name)));
        named.or_else(|| usable().next()).map(|certificate| Arc::clone(&certificate.key))
    }
}
