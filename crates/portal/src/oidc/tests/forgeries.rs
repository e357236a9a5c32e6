//! ID tokens that are accepted, and those that are not.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::super::id_token::{ExpectedClaims, ProfileClaims, UnverifiedIdToken};
use super::super::signing_keys::{JwkSet, SigningKeySet};
use super::IdTokenError;
use super::signer::{TokenSigner, encode};

const NOW_S: u64 = 1_800_000_000;
const EXPECTED: ExpectedClaims<'static> =
    ExpectedClaims { issuer: "https://idp.example", client_id: "client", nonce: "n0nce", now_s: NOW_S };

fn claims() -> Value {
    json!({
        "iss": "https://idp.example",
        "sub": "1234",
        "aud": "client",
        "exp": NOW_S + 300,
        "iat": NOW_S,
        "nonce": "n0nce",
        "email": "ada@example.com",
        "email_verified": true,
        "name": "Ada",
    })
}

fn keys(jwks: &[Value]) -> SigningKeySet {
    let jwks: JwkSet = serde_json::from_value(json!({ "keys": jwks })).expect("set is valid");
    SigningKeySet::from_jwks(jwks)
}

/// Verifies a token with the published key of a signer.
fn verify(signer: &TokenSigner, token: &str) -> Result<ProfileClaims, IdTokenError> {
    let token = UnverifiedIdToken::parse(token)?;
    let keys = keys(&[signer.jwk("1")]);
    let key = keys.find(token.key_id(), token.algorithm()).ok_or(IdTokenError::UnknownKey)?;
    token.verify(&key, &EXPECTED)
}

/// Verifies a token with changed claims. `null` removes a claim.
fn verify_changed(signer: &TokenSigner, changes: &Value) -> Result<ProfileClaims, IdTokenError> {
    let mut claims = claims();
    for (name, value) in changes.as_object().expect("changes are an object") {
        claims[name] = value.clone();
    }
    claims.as_object_mut().expect("claims are an object").retain(|_, value| !value.is_null());
    verify(signer, &signer.token(&claims))
}

#[test]
fn token_of_every_algorithm_is_accepted() {
    for signer in TokenSigner::of_every_algorithm() {
        let profile = verify(&signer, &signer.token(&claims())).expect("token is accepted");
        assert_eq!(profile.sub, "1234");
        assert_eq!(
            (profile.verified_email().as_deref(), profile.name().as_deref()),
            (Some("ada@example.com"), Some("Ada"))
        );
    }
    let [_, signer, _] = TokenSigner::of_every_algorithm();
    let token = signer.token_of_text(r#"{"alg":"Ed25519","kid":"1"}"#, &claims().to_string());
    assert!(verify(&signer, &token).is_ok(), "the new name of EdDSA");
}

#[test]
fn changed_token_is_rejected() {
    for signer in TokenSigner::of_every_algorithm() {
        let token = signer.token(&claims());
        let parts: Vec<_> = token.split('.').collect();
        let [header, payload, signature] = parts[..] else { panic!("token has three parts") };
        let other_payload = encode(claims().to_string().replace("1234", "1235").as_bytes());
        let other_header = encode(json!({ "alg": signer.algorithm(), "kid": "1", "a": 1 }).to_string().as_bytes());
        let bytes = URL_SAFE_NO_PAD.decode(signature).expect("signature is Base64");
        let mut changed = bytes.clone();
        changed[10] ^= 1;
        let (short, long) = (&bytes[..bytes.len() - 1], [bytes.as_slice(), b"\0"].concat());
        for forged in [format!("{header}.{other_payload}.{signature}"), format!("{other_header}.{payload}.{signature}")]
        {
            assert_eq!(verify(&signer, &forged), Err(IdTokenError::InvalidSignature), "{forged}");
        }
        for signature in [b"".as_slice(), &[0; 64], &changed, short, &long] {
            let forged = format!("{header}.{payload}.{}", encode(signature));
            assert_eq!(verify(&signer, &forged), Err(IdTokenError::InvalidSignature), "{forged}");
        }
        // Another key with the same id.
        for other in TokenSigner::of_every_algorithm().iter().filter(|other| other.algorithm() == signer.algorithm()) {
            assert_eq!(verify(&signer, &other.token(&claims())), Err(IdTokenError::InvalidSignature));
        }
    }
}

#[test]
fn malformed_token_is_rejected() {
    let signer = TokenSigner::es256();
    let token = signer.token(&claims());
    for length in 0..token.len() {
        assert!(verify(&signer, &token[..length]).is_err(), "{length} bytes");
    }
    let (signed, signature) = token.rsplit_once('.').expect("token has parts");
    for malformed in [
        format!("{token}."),
        format!("{token}.{signature}"),
        format!("{token}="),
        format!(" {token}"),
        format!("{signed}.{signature}\n"),
        format!(".{token}"),
        "..".to_owned(),
        token.replace('.', ""),
        signer.token_of_text("", &claims().to_string()),
        signer.token_of_text("[]", &claims().to_string()),
        signer.token_of_text(r#"{"kid":"1"}"#, &claims().to_string()),
        signer.token_of_text(r#"{"alg":["ES256"],"kid":"1"}"#, &claims().to_string()),
        signer.token_of_text(r#"{"alg":"none","alg":"ES256","kid":"1"}"#, &claims().to_string()),
        signer.token_of_text(r#"{"alg":"ES256","kid":"1"}"#, ""),
        signer.token_of_text(r#"{"alg":"ES256","kid":"1"}"#, "null"),
        signer.token_of_text(r#"{"alg":"ES256","kid":"1"}"#, &format!("{}x", claims())),
    ] {
        assert_eq!(verify(&signer, &malformed), Err(IdTokenError::Malformed), "{malformed}");
    }
    let large = claims().to_string().replace("Ada", &"a".repeat(32 << 10));
    let large = signer.token_of_text(r#"{"alg":"ES256","kid":"1"}"#, &large);
    assert_eq!(verify(&signer, &large), Err(IdTokenError::TooLarge));
}

#[test]
fn unsigned_and_hmac_tokens_are_rejected() {
    for signer in TokenSigner::of_every_algorithm() {
        let payload = encode(claims().to_string().as_bytes());
        for algorithm in
            ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "RS512", "PS256", "ES512", "es256", "RSA1_5"]
        {
            let header = encode(json!({ "alg": algorithm, "kid": "1" }).to_string().as_bytes());
            let signed = format!("{header}.{payload}");
            let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, signer.public_key()), signed.as_bytes());
            for forged in [format!("{signed}."), format!("{signed}.{}", encode(mac.as_ref()))] {
                assert_eq!(verify(&signer, &forged), Err(IdTokenError::UnsupportedAlgorithm), "{algorithm}");
            }
        }
        // The key decides about the algorithm, not the token.
        for algorithm in ["RS256", "ES256", "EdDSA"].into_iter().filter(|name| *name != signer.algorithm()) {
            let header = json!({ "alg": algorithm, "kid": "1" }).to_string();
            let forged = signer.token_of_text(&header, &claims().to_string());
            assert_eq!(verify(&signer, &forged), Err(IdTokenError::UnknownKey), "{algorithm}");
        }
    }
}

#[test]
fn header_names_a_published_key_and_no_extension() {
    let signer = TokenSigner::es256();
    let verify_header =
        |header: Value| verify(&signer, &signer.token_of_text(&header.to_string(), &claims().to_string()));
    assert_eq!(verify_header(json!({ "alg": "ES256", "kid": "2" })), Err(IdTokenError::UnknownKey));
    assert!(verify_header(json!({ "alg": "ES256" })).is_ok(), "there is only one key");
    assert!(verify_header(json!({ "alg": "ES256", "kid": "1", "typ": "JWT", "x": [1] })).is_ok());
    for crit in [json!(["exp"]), json!([]), json!("exp")] {
        let header = json!({ "alg": "ES256", "kid": "1", "crit": crit, "exp": 1 });
        assert_eq!(verify_header(header), Err(IdTokenError::CriticalHeader));
    }
    // A key in the token is not used.
    let attacker = TokenSigner::es256();
    let header = json!({ "alg": "ES256", "kid": "1", "jwk": attacker.jwk("1"), "jku": "https://attacker.example" });
    let forged = attacker.token_of_text(&header.to_string(), &claims().to_string());
    assert_eq!(verify(&signer, &forged), Err(IdTokenError::InvalidSignature));
}

#[test]
fn claims_belong_to_this_provider_client_and_sign_in() {
    let signer = TokenSigner::es256();
    for accepted in [
        json!({ "aud": ["client"] }),
        json!({ "aud": ["client"], "azp": "client" }),
        json!({ "aud": ["other", "client"], "azp": "client" }),
        json!({ "exp": NOW_S - 59 }),
        json!({ "exp": 1_800_000_300.5 }),
        json!({ "iat": NOW_S + 60 }),
        json!({ "nbf": NOW_S + 60 }),
        json!({ "sub": "s".repeat(255) }),
    ] {
        assert!(verify_changed(&signer, &accepted).is_ok(), "{accepted}");
    }
    for (changes, expected) in [
        (json!({ "iss": "https://idp.example/" }), IdTokenError::WrongIssuer),
        (json!({ "iss": "https://attacker.example" }), IdTokenError::WrongIssuer),
        (json!({ "iss": null }), IdTokenError::Malformed),
        (json!({ "aud": "other" }), IdTokenError::WrongAudience),
        (json!({ "aud": "client2" }), IdTokenError::WrongAudience),
        (json!({ "aud": [] }), IdTokenError::WrongAudience),
        (json!({ "aud": ["other"] }), IdTokenError::WrongAudience),
        (json!({ "aud": null }), IdTokenError::Malformed),
        (json!({ "aud": { "client": true } }), IdTokenError::Malformed),
        (json!({ "aud": ["client", 1] }), IdTokenError::Malformed),
        (json!({ "aud": ["client", "other"] }), IdTokenError::WrongAuthorizedParty),
        (json!({ "aud": ["client", "other"], "azp": "other" }), IdTokenError::WrongAuthorizedParty),
        (json!({ "azp": "other" }), IdTokenError::WrongAuthorizedParty),
        (json!({ "exp": NOW_S - 60 }), IdTokenError::Expired),
        (json!({ "exp": 0 }), IdTokenError::Expired),
        (json!({ "exp": null }), IdTokenError::Malformed),
        (json!({ "exp": "1900000000" }), IdTokenError::Malformed),
        (json!({ "iat": NOW_S + 61 }), IdTokenError::NotYetValid),
        (json!({ "iat": null }), IdTokenError::Malformed),
        (json!({ "nbf": NOW_S + 61 }), IdTokenError::NotYetValid),
        (json!({ "nonce": "other" }), IdTokenError::WrongNonce),
        (json!({ "nonce": "" }), IdTokenError::WrongNonce),
        (json!({ "nonce": null }), IdTokenError::WrongNonce),
        (json!({ "nonce": "n0nce0" }), IdTokenError::WrongNonce),
        (json!({ "sub": "" }), IdTokenError::InvalidSubject),
        (json!({ "sub": "s".repeat(256) }), IdTokenError::InvalidSubject),
        (json!({ "sub": "12\u{0}34" }), IdTokenError::InvalidSubject),
        (json!({ "sub": null }), IdTokenError::Malformed),
        (json!({ "sub": 1234 }), IdTokenError::Malformed),
    ] {
        assert_eq!(verify_changed(&signer, &changes), Err(expected), "{changes}");
    }
}

#[test]
fn claims_may_not_repeat() {
    let signer = TokenSigner::es256();
    for name in ["iss", "sub", "aud", "exp", "iat", "nonce", "email", "email_verified", "name"] {
        let claim = format!("{:?}:{}", name, claims()[name]);
        let repeated = claims().to_string().replacen('{', &format!("{{{claim},"), 1);
        let token = signer.token_of_text(r#"{"alg":"ES256","kid":"1"}"#, &repeated);
        assert_eq!(verify(&signer, &token), Err(IdTokenError::Malformed), "{repeated}");
    }
}

#[test]
fn address_counts_only_if_the_provider_verified_it() {
    let signer = TokenSigner::es256();
    for (changes, email) in [
        (json!({}), Some("ada@example.com")),
        (json!({ "email_verified": "true" }), Some("ada@example.com")),
        (json!({ "email_verified": false }), None),
        (json!({ "email_verified": "false" }), None),
        (json!({ "email_verified": 1 }), None),
        (json!({ "email_verified": null }), None),
        (json!({ "email": null }), None),
        (json!({ "email": "" }), None),
    ] {
        let profile = verify_changed(&signer, &changes).expect("token is accepted");
        assert_eq!(profile.verified_email().as_deref(), email, "{changes}");
    }
    let profile = verify_changed(&signer, &json!({ "name": "" })).expect("token is accepted");
    assert_eq!(profile.name(), None);
}

#[test]
fn published_keys_that_cannot_sign_are_skipped() {
    let signer = TokenSigner::es256();
    let changed = |name: &str, value: Value| {
        let mut jwk = signer.jwk("1");
        jwk[name] = value;
        jwk
    };
    let token = signer.token(&claims());
    let token = UnverifiedIdToken::parse(&token).expect("token is signed");
    let skipped = [
        json!(null),
        json!({ "kty": "oct", "kid": "1", "k": "AAAA" }),
        changed("use", json!("enc")),
        changed("alg", json!("RS256")),
        changed("alg", json!("HS256")),
        changed("kty", json!("RSA")),
        changed("crv", json!("P-384")),
        changed("x", json!("AAAA")),
        changed("x", json!(encode(&[1; 32]))),
        changed("x", json!("not Base64!")),
    ];
    for jwk in &skipped {
        assert!(keys(std::slice::from_ref(jwk)).find(Some("1"), token.algorithm()).is_none(), "{jwk}");
    }
    let mut published = skipped.to_vec();
    published.push(changed("use", json!("sig")));
    let key = keys(&published).find(Some("1"), token.algorithm()).expect("key is published");
    assert!(token.verify(&key, &EXPECTED).is_ok());
    // Without an id, two keys are ambiguous.
    let two = keys(&[signer.jwk("1"), TokenSigner::es256().jwk("2")]);
    assert!(two.find(Some("2"), token.algorithm()).is_some() && two.find(None, token.algorithm()).is_none());
}
