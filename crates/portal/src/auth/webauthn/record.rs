//! The stored form of a passkey.
//!
//! Nodes of the previous version read and write the layout of `webauthn-rs`, so this version writes it too. It also reads
//! the layout of the next version, so that an upgrade to that one can be rolled back.

use serde::Deserialize;
use serde_json::{Value, json};

use super::base64_url::Base64Url;
use super::public_key::PublicKey;

/// What is stored about a passkey.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PasskeyRecord {
    pub(crate) public_key: PublicKey,
    /// The counter of the last response, or 0 if the authenticator does not count.
    pub(crate) counter: u32,
    /// Whether the passkey can be copied to other devices. This never changes.
    pub(crate) backup_eligible: bool,
}

impl PasskeyRecord {
    /// Reads a record in either layout.
    ///
    /// # Errors
    /// If it has neither layout.
    pub(crate) fn from_json(json: &Value) -> Result<Self, serde_json::Error> {
        if json.get("cred").is_none() {
            return Self::deserialize(json);
        }
        let LegacyRecord { cred: LegacyCredential { cred: LegacyCoseKey { type_, key }, counter, backup_eligible } } =
            LegacyRecord::deserialize(json)?;
        let public_key = match (type_, key) {
            (LegacyAlgorithm::Es256, LegacyKey::Ec2 { x, y }) => PublicKey::Es256 { x, y },
            (LegacyAlgorithm::Es384, LegacyKey::Ec2 { x, y }) => PublicKey::Es384 { x, y },
            (LegacyAlgorithm::EdDsa, LegacyKey::Okp { x }) => PublicKey::Ed25519 { x },
            (LegacyAlgorithm::Rs256, LegacyKey::Rsa { n, e }) => PublicKey::Rs256 { n, e },
            (
                LegacyAlgorithm::Es256 | LegacyAlgorithm::Es384 | LegacyAlgorithm::EdDsa | LegacyAlgorithm::Rs256,
                LegacyKey::Ec2 { .. } | LegacyKey::Okp { .. } | LegacyKey::Rsa { .. },
            ) => return Err(serde::de::Error::custom("key type does not match the algorithm")),
        };
        Ok(Self { public_key, counter, backup_eligible })
    }

    /// The record in the layout of `webauthn-rs`.
    pub(crate) fn to_json(&self, credential_id: &[u8]) -> Value {
        let encode = |bytes: &Base64Url| Base64Url::encode(&bytes.0);
        let ec2 = |curve, x, y| json!({ "EC_EC2": { "curve": curve, "x": encode(x), "y": encode(y) } });
        let (type_, key) = match &self.public_key {
            PublicKey::Es256 { x, y } => ("ES256", ec2("SECP256R1", x, y)),
            PublicKey::Es384 { x, y } => ("ES384", ec2("SECP384R1", x, y)),
            PublicKey::Ed25519 { x } => ("EDDSA", json!({ "EC_OKP": { "curve": "ED25519", "x": encode(x) } })),
            PublicKey::Rs256 { n, e } => ("RS256", json!({ "RSA": { "n": encode(n), "e": e } })),
        };
        json!({ "cred": {
            "cred_id": Base64Url::encode(credential_id),
            "cred": { "type_": type_, "key": key },
            "counter": self.counter,
            "transports": null,
            "user_verified": true,
            "backup_eligible": self.backup_eligible,
            "backup_state": false,
            "registration_policy": "required",
            "extensions": {},
            "attestation": { "data": "None", "metadata": "None" },
            "attestation_format": "none",
        } })
    }
}

#[derive(Deserialize)]
struct LegacyRecord {
    cred: LegacyCredential,
}

#[derive(Deserialize)]
struct LegacyCredential {
    cred: LegacyCoseKey,
    counter: u32,
    backup_eligible: bool,
}

#[derive(Deserialize)]
struct LegacyCoseKey {
    type_: LegacyAlgorithm,
    key: LegacyKey,
}

#[derive(Deserialize)]
enum LegacyAlgorithm {
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "ES384")]
    Es384,
    #[serde(rename = "EDDSA")]
    EdDsa,
    #[serde(rename = "RS256")]
    Rs256,
}

#[derive(Deserialize)]
enum LegacyKey {
    #[serde(rename = "EC_EC2")]
    Ec2 { x: Base64Url, y: Base64Url },
    #[serde(rename = "EC_OKP")]
    Okp { x: Base64Url },
    #[serde(rename = "RSA")]
    Rsa { n: Base64Url, e: [u8; 3] },
}
