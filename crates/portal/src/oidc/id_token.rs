//! Verifies ID tokens (OpenID Connect Core, section 3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq;

use super::error::IdTokenError;
use super::signing_keys::{SigningAlgorithm, SigningKey};

const TOKEN_BYTES_MAX: usize = 32 << 10;
/// Clocks may differ by this much.
const CLOCK_SKEW_S: f64 = 60.0;
/// Longest subject (OpenID Connect Core, section 2).
const SUBJECT_BYTES_MAX: usize = 255;

/// An ID token that is not verified yet.
pub(super) struct UnverifiedIdToken<'a> {
    header: Header,
    algorithm: SigningAlgorithm,
    signed: &'a str,
    claims: Vec<u8>,
    signature: Vec<u8>,
}

/// What the claims of an ID token must contain.
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: u64,
}

/// What a provider states about a person, in an ID token or at its userinfo endpoint.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct ProfileClaims {
    pub(super) sub: String,
    email: Option<String>,
    /// Some providers send text.
    email_verified: Option<Value>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

// Deserialization fails if one of these claims occurs twice.
#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl<'a> UnverifiedIdToken<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, IdTokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(IdTokenError::TooLarge);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(IdTokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(IdTokenError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| IdTokenError::Malformed);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| IdTokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(IdTokenError::CriticalHeader);
        }
        let algorithm = SigningAlgorithm::parse(&header.alg).ok_or(IdTokenError::UnsupportedAlgorithm)?;
        Ok(Self { header, algorithm, signed, claims: decode(claims)?, signature: decode(signature)? })
    }

    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    pub(super) fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// Verifies the signature and the claims. The key is one of the provider for this algorithm.
    pub(super) fn verify(
        &self,
        key: &SigningKey,
        expected: &ExpectedClaims<'_>,
    ) -> Result<ProfileClaims, IdTokenError> {
        key.verify(self.signed.as_bytes(), &self.signature)?;
        let claims: TokenClaims = serde_json::from_slice(&self.claims).map_err(|_| IdTokenError::Malformed)?;
        claims.verify(expected)?;
        let profile: ProfileClaims = serde_json::from_slice(&self.claims).map_err(|_| IdTokenError::Malformed)?;
        // PostgreSQL stores no NUL.
        if !(1..=SUBJECT_BYTES_MAX).contains(&profile.sub.len()) || profile.sub.contains('\0') {
            return Err(IdTokenError::InvalidSubject);
        }
        Ok(profile)
    }
}

impl TokenClaims {
    fn verify(&self, expected: &ExpectedClaims<'_>) -> Result<(), IdTokenError> {
        if self.iss != expected.issuer {
            return Err(IdTokenError::WrongIssuer);
        }
        let audiences = match &self.aud {
            Audience::One(audience) => std::slice::from_ref(audience),
            Audience::Several(audiences) => audiences,
        };
        if !audiences.iter().any(|audience| audience == expected.client_id) {
            return Err(IdTokenError::WrongAudience);
        }
        if self.azp.as_deref().map_or(audiences.len() > 1, |azp| azp != expected.client_id) {
            return Err(IdTokenError::WrongAuthorizedParty);
        }
        #[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^53")]
        let now_s = expected.now_s as f64;
        if self.exp + CLOCK_SKEW_S <= now_s {
            return Err(IdTokenError::Expired);
        }
        if self.iat - CLOCK_SKEW_S > now_s || self.nbf.is_some_and(|nbf| nbf - CLOCK_SKEW_S > now_s) {
            return Err(IdTokenError::NotYetValid);
        }
        let nonce = self.nonce.as_deref().unwrap_or_default();
        if !bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes())) {
            return Err(IdTokenError::WrongNonce);
        }
        Ok(())
    }
}

impl ProfileClaims {
    pub(super) fn has_email(&self) -> bool {
        self.email.is_some()
    }

    /// The address, if the provider verified it.
    pub(super) fn verified_email(&self) -> Option<String> {
        let is_verified = match self.email_verified.as_ref()? {
            Value::Bool(is_verified) => *is_verified,
            Value::String(text) => text == "true",
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
        };
        self.email.clone().filter(|email| is_verified && !email.is_empty())
    }

    pub(super) fn name(&self) -> Option<String> {
        self.name.clone().filter(|name| !name.is_empty())
    }
}
