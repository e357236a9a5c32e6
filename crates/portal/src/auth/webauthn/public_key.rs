//! Public keys of passkeys. aws-lc-rs verifies the signatures.

use std::ops::RangeInclusive;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents,
};
use serde::Deserialize;

use super::base64_url::Base64Url;
use super::cbor::{CborReader, CborScalar, set_once};
use super::error::WebauthnError;

const ES256: i64 = -7;
const EDDSA: i64 = -8;
const ES384: i64 = -35;
const RS256: i64 = -257;

/// The algorithms of new passkeys as COSE numbers, in order of preference.
pub(crate) const ALGORITHMS: [i64; 4] = [ES256, EDDSA, ES384, RS256];

/// Lengths of RSA moduli: 2048 to 8192 bits. aws-lc-rs checks the length only when it verifies a signature.
const RSA_MODULUS_BYTES: RangeInclusive<usize> = 256..=1024;

const MALFORMED: WebauthnError = WebauthnError::Malformed("COSE key");

/// The public key of a passkey.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "algorithm")]
pub(crate) enum PublicKey {
    /// ECDSA on the curve P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256 { x: Base64Url, y: Base64Url },
    /// ECDSA on the curve P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384 { x: Base64Url, y: Base64Url },
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    Ed25519 { x: Base64Url },
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256 { n: Base64Url, e: [u8; 3] },
}

impl PublicKey {
    /// Reads a COSE key (RFC 9053 and 8230).
    ///
    /// # Errors
    /// If the map is malformed, the algorithm was not offered, or the key is invalid for its algorithm.
    pub(crate) fn read_cose(reader: &mut CborReader<'_>) -> Result<Self, WebauthnError> {
        let (mut key_type, mut algorithm, mut curve_or_n, mut x_or_e, mut y) = (None, None, None, None, None);
        for _ in 0..reader.map()? {
            match reader.integer()? {
                1 => set_once(&mut key_type, reader.integer()?)?,
                3 => set_once(&mut algorithm, reader.integer()?)?,
                -1 => set_once(&mut curve_or_n, reader.scalar()?)?,
                -2 => set_once(&mut x_or_e, reader.bytes()?)?,
                -3 => set_once(&mut y, reader.bytes()?)?,
                _ => reader.skip()?,
            }
        }
        let algorithm = algorithm.ok_or(MALFORMED)?;
        if !ALGORITHMS.contains(&algorithm) {
            return Err(WebauthnError::UnsupportedAlgorithm);
        }
        let x_or_e = x_or_e.ok_or(MALFORMED)?;
        let key = match (algorithm, key_type, curve_or_n, y) {
            (ES256, Some(2), Some(CborScalar::Integer(1)), Some(y)) => {
                Self::Es256 { x: sized(x_or_e, 32)?, y: sized(y, 32)? }
            }
            (ES384, Some(2), Some(CborScalar::Integer(2)), Some(y)) => {
                Self::Es384 { x: sized(x_or_e, 48)?, y: sized(y, 48)? }
            }
            (EDDSA, Some(1), Some(CborScalar::Integer(6)), None) => Self::Ed25519 { x: sized(x_or_e, 32)? },
            (RS256, Some(3), Some(CborScalar::Bytes(n)), None) => {
                if !RSA_MODULUS_BYTES.contains(&n.len()) {
                    return Err(WebauthnError::InvalidPublicKey);
                }
                let e = x_or_e.try_into().map_err(|_| WebauthnError::InvalidPublicKey)?;
                Self::Rs256 { n: Base64Url(n.to_vec()), e }
            }
            _ => return Err(MALFORMED),
        };
        key.parse()?;
        Ok(key)
    }

    /// Verifies a signature.
    ///
    /// # Errors
    /// If the key or the signature is invalid.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), WebauthnError> {
        self.parse()?.verify_sig(message, signature).map_err(|_| WebauthnError::InvalidSignature)
    }

    /// Parses the key. This fails if a point is not on its curve.
    fn parse(&self) -> Result<ParsedPublicKey, WebauthnError> {
        let uncompressed_point = |x: &Base64Url, y: &Base64Url| [&[0x04], x.0.as_slice(), &y.0].concat();
        let parsed = match self {
            Self::Es256 { x, y } => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, uncompressed_point(x, y)),
            Self::Es384 { x, y } => ParsedPublicKey::new(&ECDSA_P384_SHA384_ASN1, uncompressed_point(x, y)),
            Self::Ed25519 { x } => ParsedPublicKey::new(&ED25519, &x.0),
            Self::Rs256 { n, e } => {
                let components = RsaPublicKeyComponents { n: n.0.as_slice(), e };
                let der = components.as_der().map_err(|_| WebauthnError::InvalidPublicKey)?;
                ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_ref())
            }
        };
        parsed.map_err(|_| WebauthnError::InvalidPublicKey)
    }
}

fn sized(bytes: &[u8], length: usize) -> Result<Base64Url, WebauthnError> {
    if bytes.len() == length { Ok(Base64Url(bytes.to_vec())) } else { Err(WebauthnError::InvalidPublicKey) }
}
