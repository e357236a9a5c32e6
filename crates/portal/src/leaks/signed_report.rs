//! GitHub's signed reports: ECDSA on P-256 with SHA-256 over the body, by one of the keys that GitHub publishes.

use std::collections::HashMap;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

const PEM_START: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";

/// The published keys by identifier, as SubjectPublicKeyInfo.
pub(crate) struct ScannerKeys(HashMap<String, Vec<u8>>);

#[derive(Deserialize)]
struct KeysDocument {
    public_keys: Vec<PublishedKey>,
}

#[derive(Deserialize)]
struct PublishedKey {
    key_identifier: String,
    key: String,
}

/// One finding of a report. Other fields, such as where it was found, are not read.
#[derive(Deserialize)]
pub(crate) struct Finding {
    pub(crate) token: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

impl ScannerKeys {
    /// Parses the document with the published keys. Keys that are not PEM are skipped.
    pub(crate) fn parse(document: &str) -> Option<Self> {
        let KeysDocument { public_keys } = serde_json::from_str(document).ok()?;
        let keys = public_keys.into_iter().filter_map(|key| Some((key.key_identifier, parse_pem(&key.key)?)));
        Some(Self(keys.collect()))
    }

    pub(crate) fn contains(&self, identifier: &str) -> bool {
        self.0.contains_key(identifier)
    }

    /// Verifies the signature of a body, in Base64.
    pub(crate) fn verify(&self, identifier: &str, signature: &str, body: &[u8]) -> bool {
        let (Some(key), Ok(signature)) = (self.0.get(identifier), STANDARD.decode(signature)) else { return false };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(body, &signature).is_ok()
    }
}

fn parse_pem(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once(PEM_START)?;
    let (content, _) = rest.split_once(PEM_END)?;
    let content: String = content.split_whitespace().collect();
    STANDARD.decode(content).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The example of GitHub's documentation.
    const IDENTIFIER: &str = "90a421169f0a406205f1563a953312f0be898d3c7b6c06b681aa86a874555f4a";
    const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE9MJJHnMfn2+H4xL4YaPDA4RpJqUq\n\
        kCmRCBnYERxZanmcpzQSXs1X/AljlKkbJ8qpVIW4clayyef9gWhFbNHWAA==\n-----END PUBLIC KEY-----\n";
    const BODY: &str = r#"[{"token":"some_token","type":"some_type","url":"some_url"}]"#;
    const SIGNATURE: &str =
        "MEUCIQDKZokqnCjrRtw0tni+2Ltvl/uiMJ1EGumEsp1BsNr32AIgQY1YXD2nlj+XNfGK4rBfkMJ1JDOQcYXxa2sY8FNkrKc=";

    #[test]
    fn documented_example_is_verified_and_changes_are_not() {
        let document = json!({ "public_keys": [
            { "key_identifier": "broken", "key": "no PEM", "is_current": false },
            { "key_identifier": IDENTIFIER, "key": PUBLIC_KEY, "is_current": true },
        ] });
        let keys = ScannerKeys::parse(&document.to_string()).expect("document is valid");
        assert!(keys.contains(IDENTIFIER) && !keys.contains("broken"));
        assert!(keys.verify(IDENTIFIER, SIGNATURE, BODY.as_bytes()));
        let [finding] = serde_json::from_str::<[Finding; 1]>(BODY).expect("body is valid");
        assert_eq!((finding.token.as_str(), finding.kind.as_str()), ("some_token", "some_type"));
        for (identifier, signature, body) in [
            ("broken", SIGNATURE, BODY),
            (IDENTIFIER, "", BODY),
            (IDENTIFIER, "not Base64", BODY),
            (IDENTIFIER, &SIGNATURE.replace("MEUC", "MEUD"), BODY),
            (IDENTIFIER, SIGNATURE, &BODY.replace("some_token", "other_token")),
        ] {
            assert!(!keys.verify(identifier, signature, body.as_bytes()), "{identifier} {signature} {body}");
        }
        assert!(ScannerKeys::parse("{}").is_none() && ScannerKeys::parse("").is_none());
    }
}
