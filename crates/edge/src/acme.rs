//! Certificates from an authority by ACME (RFC 8555): issued, kept in files, and renewed before they expire.
//!
//! The service proves its names itself, by a TLS handshake (TLS-ALPN-01, RFC 8737) or an answer in clear (HTTP-01). What is issued goes
//! the way of every other certificate: it is written to files and taken up by the wardrobe after the same checks. Deliberately
//! absent: DNS-01, which needs a hand on the zone, and agreement between nodes: each node that asks is its own client.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeHandle, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use crate::{CertificateFiles, Wardrobe};

/// An authority may take its time to look.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));
/// A certificate is renewed when this part of its life is left.
const RENEWED_PART: u32 = 3;

/// How the names are proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// By a TLS handshake on port 443.
    TlsAlpn01,
    /// By an answer in clear on port 80.
    Http01,
}

impl Challenge {
    /// Reads the name that RFC 8555 and RFC 8737 give it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "tls-alpn-01" => Some(Self::TlsAlpn01),
            "http-01" => Some(Self::Http01),
            _ => None,
        }
    }
}

/// What is asked for, and of whom.
pub struct AcmeOptions {
    /// The authority's directory.
    pub directory_url: String,
    /// Where the authority may write to, such as `mailto:` addresses. Never logged.
    pub contact: Vec<String>,
    /// The names that the certificate is for.
    pub names: Vec<String>,
    /// How they are proved.
    pub challenge: Challenge,
    /// Where the account, the certificate and its key are kept.
    pub folder: PathBuf,
    /// An authority (PEM) for the directory itself, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Renews when less than this is left; a third of its life if `None`.
    pub renew_before: Option<Duration>,
}

/// Why no certificate was issued. It carries no contact address.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The authority refused, or could not be reached.
    #[error("the authority says: {0}")]
    Authority(String),
    /// The authority does not offer the challenge for a name.
    #[error("the authority does not offer the configured challenge for one of the names; try the other one")]
    NoChallenge,
    /// A name could not be proved.
    #[error(
        "the authority could not prove the names ({0}); they must lead to this service, on port 443 for tls-alpn-01 and on port 80 for http-01"
    )]
    Unproved(String),
    /// A file could not be kept.
    #[error("{file} could not be kept: {source}; the service must be able to write to its folder")]
    Unkept {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key or a request could not be made.
    #[error("a key or a certificate request could not be made: {0}")]
    Unmade(String),
}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        let text = error.to_string();
        // An authority that dislikes a contact quotes it.
        Self::Authority(if text.contains('@') { "it refused the account's contact".to_owned() } else { text })
    }
}

impl From<rcgen::Error> for AcmeError {
    fn from(error: rcgen::Error) -> Self {
        Self::Unmade(error.to_string())
    }
}

/// Answers to HTTP-01 challenges that are under way.
#[derive(Clone, Default)]
pub struct HttpTokens(Arc<Mutex<HashMap<String, String>>>);

impl HttpTokens {
    /// What to answer an authority that asks for `/.well-known/acme-challenge/{token}`.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<String> {
        self.tokens().get(token).cloned()
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of one authority, for one certificate.
pub struct Acme {
    options: AcmeOptions,
    wardrobe: Arc<Wardrobe>,
    tokens: HttpTokens,
}

impl Acme {
    /// Where the certificate is kept in a folder.
    #[must_use]
    pub fn files(folder: &Path) -> CertificateFiles {
        CertificateFiles { certificate: folder.join("certificate.pem"), private_key: folder.join("private.key") }
    }

    /// Builds a client; the wardrobe must be awaiting the certificate, and the tokens be answered for HTTP-01.
    #[must_use]
    pub fn new(options: AcmeOptions, wardrobe: Arc<Wardrobe>, tokens: HttpTokens) -> Self {
        Self { options, wardrobe, tokens }
    }

    /// Whether there is no certificate for the names, or it should be renewed.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let Some(certificate) = self.wardrobe.find(&Self::files(&self.options.folder)) else { return true };
        let life = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
        let before = self.options.renew_before.unwrap_or(life / RENEWED_PART);
        let left = certificate.not_after.duration_since(SystemTime::now()).unwrap_or_default();
        left < before || !self.options.names.iter().all(|name| certificate.is_for(name))
    }

    /// Has a certificate issued, keeps it and takes it up. The one before stays in use until then, and if it fails.
    pub async fn issue(&self) -> Result<(), AcmeError> {
        let account = self.account().await?;
        let names: Vec<_> = self.options.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut proofs = Proofs { acme: self, shown: Vec::new() };
        let proved = self.prove(&mut order, &mut proofs).await;
        drop(proofs);
        proved?;
        let key = KeyPair::generate()?;
        let mut request = CertificateParams::new(self.options.names.clone())?;
        request.distinguished_name = DistinguishedName::new();
        order.finalize_csr(request.serialize_request(&key)?.der()).await?;
        let chain = order.poll_certificate(&PATIENCE).await?;
        let files = Self::files(&self.options.folder);
        keep(&files.private_key, key.serialize_pem().as_bytes())?;
        keep(&files.certificate, chain.as_bytes())?;
        self.wardrobe.refresh();
        Ok(())
    }

    /// The account of the folder, or a new one.
    async fn account(&self) -> Result<Account, AcmeError> {
        let builder = match &self.options.ca_file {
            Some(file) => Account::builder_with_root(file)?,
            None => Account::builder()?,
        };
        let file = self.options.folder.join("account.json");
        if let Some(credentials) = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            return Ok(builder.from_credentials(credentials).await?);
        }
        let contact: Vec<_> = self.options.contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder.create(&new, self.options.directory_url.clone(), None).await?;
        let text = serde_json::to_vec(&credentials).map_err(|error| AcmeError::Unmade(error.to_string()))?;
        keep(&file, &text)?;
        Ok(account)
    }

    async fn prove(&self, order: &mut Order, proofs: &mut Proofs<'_>) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let kind = match self.options.challenge {
                Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
                Challenge::Http01 => ChallengeType::Http01,
            };
            let mut challenge = authorization.challenge(kind).ok_or(AcmeError::NoChallenge)?;
            proofs.show(&challenge)?;
            challenge.set_ready().await?;
        }
        match order.poll_ready(&PATIENCE).await? {
            OrderStatus::Ready => Ok(()),
            status @ (OrderStatus::Pending | OrderStatus::Processing | OrderStatus::Valid | OrderStatus::Invalid) => {
                Err(AcmeError::Unproved(format!("its order is {status:?}").to_lowercase()))
            }
        }
    }
}

/// What is shown to the authority, until it is dropped.
struct Proofs<'a> {
    acme: &'a Acme,
    shown: Vec<String>,
}

impl Proofs<'_> {
    fn show(&mut self, challenge: &ChallengeHandle<'_>) -> Result<(), AcmeError> {
        let authorization = challenge.key_authorization();
        match self.acme.options.challenge {
            Challenge::TlsAlpn01 => {
                let name = challenge.identifier().to_string();
                let answer = tls_answer(&name, authorization.digest().as_ref(), &self.acme.wardrobe)?;
                self.acme.wardrobe.challenge(&name, Some(Arc::new(answer)));
                self.shown.push(name);
            }
            Challenge::Http01 => {
                let token = challenge.token.clone();
                self.acme.tokens.tokens().insert(token.clone(), authorization.as_str().to_owned());
                self.shown.push(token);
            }
        }
        Ok(())
    }
}

impl Drop for Proofs<'_> {
    fn drop(&mut self) {
        for shown in &self.shown {
            match self.acme.options.challenge {
                Challenge::TlsAlpn01 => self.acme.wardrobe.challenge(shown, None),
                Challenge::Http01 => drop(self.acme.tokens.tokens().remove(shown)),
            }
        }
    }
}

/// A certificate for the name that signs itself and carries the proof (RFC 8737, section 3).
fn tls_answer(name: &str, digest: &[u8], wardrobe: &Wardrobe) -> Result<CertifiedKey, AcmeError> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = wardrobe.provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| AcmeError::Unmade(error.to_string()))?;
    // Not checked against each other: the library's check does not know the extension, which must be critical.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// Writes a file that only the service may read, in one piece.
fn keep(file: &Path, bytes: &[u8]) -> Result<(), AcmeError> {
    let beside = file.with_extension("new");
    let write = || {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut new = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&beside, file)
    };
    write().map_err(|source| AcmeError::Unkept { file: file.into(), source })
}
