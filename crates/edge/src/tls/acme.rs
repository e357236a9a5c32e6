//! Certificates by ACME (RFC 8555): issued, stored in files, and renewed before they expire.
//!
//! The node proves control of its names by a TLS handshake (TLS-ALPN-01, RFC 8737) or a plaintext response (HTTP-01).
//! Issued certificates are written to files, and the certificate resolver loads them with the same checks as any other.
//! DNS-01 is not supported, because it needs write access to the DNS zone. Nodes do not coordinate: each one is a
//! separate ACME client.

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

use crate::{CertResolver, CertificateFiles};

/// How long to wait for validation and issuance.
const POLL_RETRY_POLICY: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));
/// By default, a certificate is renewed when less than one third of its lifetime is left.
const RENEWAL_LIFETIME_DIVISOR: u32 = 3;

/// How control of the names is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By a TLS handshake on port 443.
    TlsAlpn01,
    /// By a plaintext HTTP response on port 80.
    Http01,
}

impl AcmeChallenge {
    /// Parses the name from RFC 8555 or RFC 8737.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "tls-alpn-01" => Some(Self::TlsAlpn01),
            "http-01" => Some(Self::Http01),
            _ => None,
        }
    }
}

/// The certificate to request, and the certificate authority.
pub struct AcmeOptions {
    /// The URL of the ACME directory.
    pub directory_url: String,
    /// Contact URLs, such as `mailto:` addresses. Never logged.
    pub contact: Vec<String>,
    /// The DNS names of the certificate.
    pub names: Vec<String>,
    /// How control of the names is proved.
    pub challenge: AcmeChallenge,
    /// The directory for the account, the certificate and its key.
    pub dir: PathBuf,
    /// A CA certificate (PEM) to verify the ACME server with, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Renew when less time than this is left. `None` means a third of the lifetime.
    pub renew_before: Option<Duration>,
}

/// Why no certificate was issued. It contains no contact address.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The certificate authority returned an error or is unreachable.
    #[error("the certificate authority returned an error: {0}")]
    Authority(String),
    /// The certificate authority does not offer the challenge for a name.
    #[error(
        "the certificate authority does not offer the configured challenge for one of the names. Try the other challenge."
    )]
    ChallengeNotOffered,
    /// A name was not validated.
    #[error(
        "the certificate authority could not validate the names: {0}. They must resolve to this service, on port 443 for tls-alpn-01 and on port 80 for http-01."
    )]
    ValidationFailed(String),
    /// A file was not written.
    #[error("failed to write {file}: {source}. The service must be able to write to this directory.")]
    WriteFailed {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A key or a certificate request was not generated.
    #[error("failed to generate a key or a certificate request: {0}")]
    GenerationFailed(String),
}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        let text = error.to_string();
        // An error about a contact quotes it.
        Self::Authority(if text.contains('@') { "the account's contact was rejected".to_owned() } else { text })
    }
}

impl From<rcgen::Error> for AcmeError {
    fn from(error: rcgen::Error) -> Self {
        Self::GenerationFailed(error.to_string())
    }
}

/// The responses to pending HTTP-01 challenges.
#[derive(Clone, Default)]
pub struct Http01Tokens(Arc<Mutex<HashMap<String, String>>>);

impl Http01Tokens {
    /// The response to a request for `/.well-known/acme-challenge/{token}`.
    #[must_use]
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        self.lock().get(token).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An ACME client for one certificate.
pub struct AcmeClient {
    options: AcmeOptions,
    cert_resolver: Arc<CertResolver>,
    http01_tokens: Http01Tokens,
}

impl AcmeClient {
    /// The files of the certificate in a directory.
    #[must_use]
    pub fn certificate_files(dir: &Path) -> CertificateFiles {
        CertificateFiles { certificate: dir.join("certificate.pem"), private_key: dir.join("private.key") }
    }

    /// Creates a client. The resolver must have been built [`with_pending`](CertResolver::with_pending) on
    /// [`certificate_files`](Self::certificate_files). For HTTP-01, the application must serve the tokens.
    #[must_use]
    pub fn new(options: AcmeOptions, cert_resolver: Arc<CertResolver>, http01_tokens: Http01Tokens) -> Self {
        Self { options, cert_resolver, http01_tokens }
    }

    /// Whether the certificate is missing, does not cover the names, or is due for renewal.
    #[must_use]
    pub fn is_renewal_due(&self) -> bool {
        let Some(certificate) = self.cert_resolver.find_certificate(&Self::certificate_files(&self.options.dir)) else {
            return true;
        };
        let lifetime = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
        let renew_before = self.options.renew_before.unwrap_or(lifetime / RENEWAL_LIFETIME_DIVISOR);
        let remaining = certificate.not_after.duration_since(SystemTime::now()).unwrap_or_default();
        remaining < renew_before || !self.options.names.iter().all(|name| certificate.matches_name(name))
    }

    /// Requests a certificate, stores it and loads it. The previous one stays in use until then, and after an error.
    pub async fn issue_certificate(&self) -> Result<(), AcmeError> {
        let account = self.load_or_create_account().await?;
        let names: Vec<_> = self.options.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut published = PublishedChallenges { client: self, published: Vec::new() };
        let validation = self.complete_challenges(&mut order, &mut published).await;
        drop(published);
        validation?;
        let key = KeyPair::generate()?;
        let mut csr_params = CertificateParams::new(self.options.names.clone())?;
        csr_params.distinguished_name = DistinguishedName::new();
        order.finalize_csr(csr_params.serialize_request(&key)?.der()).await?;
        let chain = order.poll_certificate(&POLL_RETRY_POLICY).await?;
        let files = Self::certificate_files(&self.options.dir);
        write_private_file(&files.private_key, key.serialize_pem().as_bytes())?;
        write_private_file(&files.certificate, chain.as_bytes())?;
        self.cert_resolver.reload();
        Ok(())
    }

    /// Loads the account from the directory or registers a new one.
    async fn load_or_create_account(&self) -> Result<Account, AcmeError> {
        let builder = match &self.options.ca_file {
            Some(file) => Account::builder_with_root(file)?,
            None => Account::builder()?,
        };
        let file = self.options.dir.join("account.json");
        if let Some(credentials) = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            return Ok(builder.from_credentials(credentials).await?);
        }
        let contact: Vec<_> = self.options.contact.iter().map(String::as_str).collect();
        let new_account = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder.create(&new_account, self.options.directory_url.clone(), None).await?;
        let text = serde_json::to_vec(&credentials).map_err(|error| AcmeError::GenerationFailed(error.to_string()))?;
        write_private_file(&file, &text)?;
        Ok(account)
    }

    async fn complete_challenges(
        &self,
        order: &mut Order,
        published: &mut PublishedChallenges<'_>,
    ) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let kind = match self.options.challenge {
                AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
                AcmeChallenge::Http01 => ChallengeType::Http01,
            };
            let mut challenge = authorization.challenge(kind).ok_or(AcmeError::ChallengeNotOffered)?;
            published.publish(&challenge)?;
            challenge.set_ready().await?;
        }
        match order.poll_ready(&POLL_RETRY_POLICY).await? {
            OrderStatus::Ready => Ok(()),
            status @ (OrderStatus::Pending | OrderStatus::Processing | OrderStatus::Valid | OrderStatus::Invalid) => {
                Err(AcmeError::ValidationFailed(format!("the order is {status:?}").to_lowercase()))
            }
        }
    }
}

/// Published challenge responses, removed when dropped.
struct PublishedChallenges<'a> {
    client: &'a AcmeClient,
    published: Vec<String>,
}

impl PublishedChallenges<'_> {
    fn publish(&mut self, challenge: &ChallengeHandle<'_>) -> Result<(), AcmeError> {
        let authorization = challenge.key_authorization();
        match self.client.options.challenge {
            AcmeChallenge::TlsAlpn01 => {
                let name = challenge.identifier().to_string();
                let certificate =
                    tls_alpn01_certificate(&name, authorization.digest().as_ref(), &self.client.cert_resolver)?;
                self.client.cert_resolver.set_challenge(&name, Some(Arc::new(certificate)));
                self.published.push(name);
            }
            AcmeChallenge::Http01 => {
                let token = challenge.token.clone();
                self.client.http01_tokens.lock().insert(token.clone(), authorization.as_str().to_owned());
                self.published.push(token);
            }
        }
        Ok(())
    }
}

impl Drop for PublishedChallenges<'_> {
    fn drop(&mut self) {
        for name_or_token in &self.published {
            match self.client.options.challenge {
                AcmeChallenge::TlsAlpn01 => self.client.cert_resolver.set_challenge(name_or_token, None),
                AcmeChallenge::Http01 => drop(self.client.http01_tokens.lock().remove(name_or_token)),
            }
        }
    }
}

/// A self-signed certificate with the challenge response (RFC 8737, section 3).
fn tls_alpn01_certificate(name: &str, digest: &[u8], cert_resolver: &CertResolver) -> Result<CertifiedKey, AcmeError> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = cert_resolver.provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| AcmeError::GenerationFailed(error.to_string()))?;
    // Key and certificate are not checked, because the check of rustls rejects the extension, which must be critical.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// Writes a file atomically, readable only by the service.
fn write_private_file(file: &Path, bytes: &[u8]) -> Result<(), AcmeError> {
    let temp_path = file.with_extension("new");
    let write = || {
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut temp_file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp_path)?;
        temp_file.write_all(bytes)?;
        temp_file.sync_all()?;
        fs::rename(&temp_path, file)
    };
    write().map_err(|source| AcmeError::WriteFailed { file: file.into(), source })
}
