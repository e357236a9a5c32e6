//! An authenticator in software, with one passkey of any algorithm.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::RelyingParty;
use super::super::base64_url::Base64Url;

pub(super) const BASE_URL: &str = "https://localhost:8443";
pub(super) const CREDENTIAL_ID: [u8; 16] = *b"a credential id.";
pub(super) const USER_HANDLE: [u8; 16] = *b"the user handle.";

pub(super) const UP: u8 = 0x01;
pub(super) const UV: u8 = 0x04;
pub(super) const BE: u8 = 0x08;
pub(super) const BS: u8 = 0x10;
pub(super) const AT: u8 = 0x40;
pub(super) const ED: u8 = 0x80;

pub(super) enum Authenticator {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

/// What a response states. Tests change it before it is signed.
pub(super) struct Statement {
    pub(super) client_data: Value,
    pub(super) relying_party_id: String,
    pub(super) flags: u8,
    pub(super) counter: u32,
    pub(super) credential_id: Vec<u8>,
    pub(super) cose_key: Vec<u8>,
    /// Extensions or other bytes at the end of the authenticator data.
    pub(super) suffix: Vec<u8>,
    /// The attestation format and statement as CBOR.
    pub(super) attestation: Vec<u8>,
}

impl Authenticator {
    pub(super) fn es256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("key is generated"))
    }

    pub(super) fn of_every_algorithm() -> [Self; 4] {
        [
            Self::es256(),
            Self::Es384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).expect("key is generated")),
            Self::Ed25519(Ed25519KeyPair::generate().expect("key is generated")),
            Self::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).expect("key is generated")),
        ]
    }

    /// The COSE key.
    pub(super) fn cose_key(&self) -> Vec<u8> {
        match self {
            Self::Es256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                [b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", x, b"\x22\x58\x20", y].concat()
            }
            Self::Es384(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(48);
                [b"\xa5\x01\x02\x03\x38\x22\x20\x02\x21\x58\x30", x, b"\x22\x58\x30", y].concat()
            }
            Self::Ed25519(key) => [b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20", key.public_key().as_ref()].concat(),
            Self::Rs256(key) => {
                // The DER form has nine bytes before the modulus of 2048 bits.
                let n = &key.public_key().as_ref()[9..265];
                [b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59\x01\x00", n, b"\x21\x43\x01\x00\x01"].concat()
            }
        }
    }

    /// Registers the passkey, and returns the response.
    pub(super) fn create(&self, options: &Value, change: impl FnOnce(&mut Statement)) -> Value {
        let options = &options["publicKey"];
        let mut statement = self.statement("webauthn.create", options, &options["rp"]["id"], UP | UV | AT);
        statement.counter = 1;
        change(&mut statement);
        let data = statement.authenticator_data();
        let length = u16::try_from(data.len()).expect("data is short").to_be_bytes();
        let attestation = [b"\xa3", statement.attestation.as_slice(), b"\x68authData\x59", &length, &data].concat();
        statement.credential(&json!({
            "attestationObject": Base64Url::encode(&attestation),
            "clientDataJSON": Base64Url::encode(statement.client_data.to_string().as_bytes()),
            "transports": ["internal"],
        }))
    }

    /// Signs in, and returns the response.
    pub(super) fn get(&self, options: &Value, change: impl FnOnce(&mut Statement)) -> Value {
        let options = &options["publicKey"];
        let mut statement = self.statement("webauthn.get", options, &options["rpId"], UP | UV);
        statement.counter = 2;
        change(&mut statement);
        let (data, client_data) = (statement.authenticator_data(), statement.client_data.to_string());
        let client_data_hash: [u8; 32] = Sha256::digest(&client_data).into();
        let signature = self.sign(&[data.as_slice(), &client_data_hash].concat());
        statement.credential(&json!({
            "authenticatorData": Base64Url::encode(&data),
            "clientDataJSON": Base64Url::encode(client_data.as_bytes()),
            "signature": Base64Url::encode(&signature),
            "userHandle": Base64Url::encode(&USER_HANDLE),
        }))
    }

    fn statement(&self, kind: &str, options: &Value, relying_party_id: &Value, flags: u8) -> Statement {
        let challenge = &options["challenge"];
        let origin = RelyingParty::from_base_url(BASE_URL).expect("base URL is valid").origin;
        Statement {
            client_data: json!({ "type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false }),
            relying_party_id: relying_party_id.as_str().expect("id is text").to_owned(),
            flags,
            counter: 0,
            credential_id: CREDENTIAL_ID.to_vec(),
            cose_key: self.cose_key(),
            suffix: Vec::new(),
            attestation: b"\x63fmt\x64none\x67attStmt\xa0".to_vec(),
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) | Self::Es384(key) => {
                key.sign(&random, message).expect("signing succeeds").as_ref().to_vec()
            }
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("signing succeeds");
                signature
            }
        }
    }
}

impl Statement {
    fn authenticator_data(&self) -> Vec<u8> {
        let mut data = Sha256::digest(&self.relying_party_id).to_vec();
        data.push(self.flags);
        data.extend(self.counter.to_be_bytes());
        if self.flags & AT != 0 {
            data.extend([0; 16]);
            data.extend(u16::try_from(self.credential_id.len()).expect("id is short").to_be_bytes());
            data.extend(&self.credential_id);
            data.extend(&self.cose_key);
        }
        data.extend(&self.suffix);
        data
    }

    fn credential(&self, response: &Value) -> Value {
        let id = Base64Url::encode(&CREDENTIAL_ID);
        json!({
            "id": id,
            "rawId": id,
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {},
            "response": response,
        })
    }
}
