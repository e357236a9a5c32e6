//! The state of a sign-in between its two requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const RANDOM_BYTES: usize = 32;

/// State of a sign-in while the browser is at the provider. The caller stores it for at most five minutes, bound to the browser,
/// and takes it once. No `Debug`, so that it cannot be logged by accident.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingSignIn {
    issuer: String,
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) code_verifier: String,
}

impl PendingSignIn {
    pub(super) fn generate(issuer: &str) -> Self {
        Self { issuer: issuer.to_owned(), state: random(), nonce: random(), code_verifier: random() }
    }

    /// The issuer of the provider that the sign-in began with.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The PKCE code challenge with the method S256 (RFC 7636, section 4.2).
    pub(super) fn code_challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.code_verifier))
    }
}

fn random() -> String {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_challenge_matches_the_vector_of_the_standard() {
        let mut pending = PendingSignIn::generate("https://idp.example");
        pending.code_verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(pending.code_challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn every_sign_in_has_other_secrets() {
        let (one, other) = (PendingSignIn::generate("a"), PendingSignIn::generate("a"));
        let secrets = [&one, &other].map(|pending| [&pending.state, &pending.nonce, &pending.code_verifier]).concat();
        let distinct: std::collections::HashSet<_> = secrets.iter().collect();
        assert_eq!(distinct.len(), 6);
        assert!(secrets.iter().all(|secret| secret.len() == 43), "32 bytes");
    }
}
