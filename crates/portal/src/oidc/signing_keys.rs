//! The keys that a provider signs ID tokens with (RFC 7517 and 7518). aws-lc-rs verifies the signatures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;

use super::error::{IdTokenError, OidcError};

/// How long keys are used before they are read again.
const AGE_MAX: Duration = Duration::from_secs(900);
/// How often keys are read again because a token names an unknown one, at most.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(10);
const P256_COORDINATE_BYTES: usize = 32;

/// A signature algorithm of ID tokens. The others are never accepted: `none` proves nothing, and HMAC needs a shared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SigningAlgorithm {
    Rs256,
    Es256,
    Ed25519,
}

/// A public key of a provider.
pub(super) struct SigningKey {
    id: Option<String>,
    algorithm: SigningAlgorithm,
    key: ParsedPublicKey,
}

/// The keys of a provider that may sign ID tokens.
pub(super) struct SigningKeySet(Vec<Arc<SigningKey>>);

/// A JWK set.
#[derive(Deserialize)]
pub(super) struct JwkSet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl SigningAlgorithm {
    /// Parses the name in a token or a key. RFC 9864 renamed EdDSA.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

impl SigningKey {
    /// `None` if the key is invalid, or not for signatures of a known algorithm.
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        if jwk.r#use.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let decode = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let (algorithm, key) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                let components = RsaPublicKeyComponents { n: decode(jwk.n)?, e: decode(jwk.e)? };
                let der = components.as_der().ok()?;
                (SigningAlgorithm::Rs256, ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_ref()))
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(jwk.x)?, decode(jwk.y)?);
                if [x.len(), y.len()] != [P256_COORDINATE_BYTES; 2] {
                    return None;
                }
                let point = [&[0x04], x.as_slice(), &y].concat();
                (SigningAlgorithm::Es256, ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point))
            }
            ("OKP", Some("Ed25519")) => (SigningAlgorithm::Ed25519, ParsedPublicKey::new(&ED25519, decode(jwk.x)?)),
            _ => return None,
        };
        if jwk.alg.is_some_and(|name| SigningAlgorithm::parse(&name) != Some(algorithm)) {
            return None;
        }
        Some(Self { id: jwk.kid, algorithm, key: key.ok()? })
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), IdTokenError> {
        self.key.verify_sig(message, signature).map_err(|_| IdTokenError::InvalidSignature)
    }
}

impl SigningKeySet {
    /// Skips keys that cannot verify ID tokens.
    pub(super) fn from_jwks(jwks: JwkSet) -> Self {
        let keys = jwks.keys.into_iter().filter_map(|jwk| SigningKey::from_jwk(serde_json::from_value(jwk).ok()?));
        Self(keys.map(Arc::new).collect())
    }

    /// The key with this id. Without an id, the only key for the algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: SigningAlgorithm) -> Option<Arc<SigningKey>> {
        let is_match =
            |key: &&Arc<SigningKey>| key.algorithm == algorithm && id.is_none_or(|id| key.id.as_deref() == Some(id));
        let mut matches = self.0.iter().filter(is_match);
        let key = matches.next()?;
        matches.next().is_none().then(|| Arc::clone(key))
    }
}

/// The current keys of a provider.
#[derive(Default)]
pub(super) struct SigningKeyCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    current: Option<(SigningKeySet, Instant)>,
    /// When the keys were read because of an unknown one.
    unknown_key_at: Option<Instant>,
}

impl SigningKeyCache {
    /// Finds a key. Reads the keys if there are none, if they are old, or if the key is unknown.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: SigningAlgorithm,
        now: Instant,
        fetch: impl Future<Output = Result<JwkSet, OidcError>>,
    ) -> Result<Arc<SigningKey>, OidcError> {
        // Held while the keys are read, so that concurrent sign-ins read them once.
        let mut state = self.0.lock().await;
        let is_current = |(_, fetched_at): &&(SigningKeySet, Instant)| now.duration_since(*fetched_at) < AGE_MAX;
        if let Some((keys, _)) = state.current.as_ref().filter(is_current) {
            if let Some(key) = keys.find(id, algorithm) {
                return Ok(key);
            }
            if state.unknown_key_at.is_some_and(|at| now.duration_since(at) < UNKNOWN_KEY_INTERVAL) {
                return Err(IdTokenError::UnknownKey.into());
            }
            state.unknown_key_at = Some(now);
        }
        let keys = SigningKeySet::from_jwks(fetch.await?);
        let key = keys.find(id, algorithm).ok_or(IdTokenError::UnknownKey);
        state.current = Some((keys, now));
        Ok(key?)
    }
}
