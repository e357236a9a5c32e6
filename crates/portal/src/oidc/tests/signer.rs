//! The key of a provider in software.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key that signs tokens.
pub(super) enum TokenSigner {
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl TokenSigner {
    pub(super) fn es256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("key is generated"))
    }

    pub(super) fn of_every_algorithm() -> [Self; 3] {
        [
            Self::es256(),
            Self::Ed25519(Ed25519KeyPair::generate().expect("key is generated")),
            Self::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).expect("key is generated")),
        ]
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Rs256(_) => "RS256",
            Self::Es256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The bytes of the public key.
    pub(super) fn public_key(&self) -> &[u8] {
        match self {
            Self::Rs256(key) => key.public_key().as_ref(),
            Self::Es256(key) => key.public_key().as_ref(),
            Self::Ed25519(key) => key.public_key().as_ref(),
        }
    }

    /// The public key as the provider publishes it.
    pub(super) fn jwk(&self, id: &str) -> Value {
        let bytes = self.public_key();
        let mut jwk = match self {
            // The DER form has nine bytes before the modulus of 2048 bits.
            Self::Rs256(_) => json!({ "kty": "RSA", "n": encode(&bytes[9..265]), "e": "AQAB" }),
            Self::Es256(_) => {
                json!({ "kty": "EC", "crv": "P-256", "x": encode(&bytes[1..33]), "y": encode(&bytes[33..]) })
            }
            Self::Ed25519(_) => json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(bytes) }),
        };
        jwk["kid"] = id.into();
        jwk
    }

    /// A token with the key id `1`.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_of_text(&json!({ "alg": self.algorithm(), "kid": "1" }).to_string(), &claims.to_string())
    }

    /// A token with any header and claims.
    pub(super) fn token_of_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = encode(&self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("signing succeeds");
                signature
            }
            Self::Es256(key) => key.sign(&random, message).expect("signing succeeds").as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
        }
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
