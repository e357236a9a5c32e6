//! Responses that are not accepted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::super::base64_url::Base64Url;
use super::super::{AuthenticationResponse, KnownPasskey, RegistrationResponse, WebauthnError};
use super::authenticator::{Authenticator, CREDENTIAL_ID, ED, Statement, USER_HANDLE};
use super::{USER, finish_registration, finish_sign_in, register, registered, relying_party, sign_in, stored};

/// Changes one field of the response's bytes.
fn edit_bytes(response: &mut Value, field: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let text = response["response"][field].as_str().expect("field is text");
    let mut bytes = URL_SAFE_NO_PAD.decode(text).expect("field is Base64");
    change(&mut bytes);
    response["response"][field] = Base64Url::encode(&bytes).into();
}

#[test]
fn client_data_must_match_the_ceremony() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let set = |field: &'static str, value: Value| {
        move |statement: &mut Statement| {
            statement.client_data[field] = value;
        }
    };
    let origins = [
        "https://attacker.example",
        "https://localhost",
        "https://localhost:1",
        "https://localhost:8443/",
        "https://localhost:8443.attacker.example",
        "https://www.localhost:8443",
        "http://localhost:8443",
        "HTTPS://localhost:8443",
        "",
    ];
    let mut forgeries: Vec<_> =
        origins.into_iter().map(|origin| ("origin", json!(origin), WebauthnError::WrongOrigin)).collect();
    let malformed = WebauthnError::Malformed("client data");
    forgeries.extend([
        ("challenge", json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), WebauthnError::WrongChallenge),
        ("challenge", json!(""), WebauthnError::WrongChallenge),
        ("challenge", Value::Null, malformed),
        ("type", json!("payment.get"), WebauthnError::WrongCeremony),
        ("crossOrigin", json!(true), WebauthnError::CrossOrigin),
        ("crossOrigin", json!("true"), malformed),
        ("topOrigin", json!("https://attacker.example"), WebauthnError::CrossOrigin),
    ]);
    for (field, value, expected) in forgeries {
        let outcome = register(&authenticator, set(field, value.clone()));
        assert_eq!(outcome.map(drop), Err(expected), "registration with {field} {value}");
        let outcome = sign_in(&authenticator, &record, set(field, value.clone()));
        assert_eq!(outcome.map(drop), Err(expected), "sign-in with {field} {value}");
    }
    let outcome = register(&authenticator, set("type", json!("webauthn.get")));
    assert_eq!(outcome.map(drop), Err(WebauthnError::WrongCeremony));
    let outcome = sign_in(&authenticator, &record, set("type", json!("webauthn.create")));
    assert_eq!(outcome.map(drop), Err(WebauthnError::WrongCeremony));
}

#[test]
fn relying_party_must_match() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    for id in ["attacker.example", "www.localhost", "LOCALHOST", ""] {
        let change = |statement: &mut Statement| statement.relying_party_id = id.to_owned();
        let expected = Err(WebauthnError::WrongRelyingParty);
        assert_eq!(register(&authenticator, change).map(drop), expected, "registration for {id}");
        assert_eq!(sign_in(&authenticator, &record, change).map(drop), expected, "sign-in for {id}");
    }
}

#[test]
fn signature_of_another_key_or_message_is_rejected() {
    let [first, second] = [(); 2].map(|()| Authenticator::es256());
    let record = registered(&first);
    assert_eq!(sign_in(&second, &record, |_| ()), Err(WebauthnError::InvalidSignature));
    for authenticator in Authenticator::of_every_algorithm() {
        let record = registered(&authenticator);
        let (options, state) = relying_party().begin_authentication();
        let response = authenticator.get(&options, |_| ());
        let signature = |change: fn(&mut Vec<u8>)| {
            let mut response = response.clone();
            edit_bytes(&mut response, "signature", change);
            finish_sign_in(stored(&state), &response, &record).map(drop)
        };
        assert_eq!(signature(|_| ()), Ok(()));
        for change in [Vec::clear, |bytes: &mut Vec<u8>| bytes.push(0), |bytes: &mut Vec<u8>| bytes.truncate(20)] {
            assert_eq!(signature(change), Err(WebauthnError::InvalidSignature));
        }
    }
}

#[test]
fn every_changed_bit_is_rejected() {
    for authenticator in [Authenticator::es256(), Authenticator::of_every_algorithm().into_iter().nth(2).expect("four")]
    {
        let record = registered(&authenticator);
        let (options, state) = relying_party().begin_authentication();
        let response = authenticator.get(&options, |_| ());
        for field in ["authenticatorData", "clientDataJSON", "signature"] {
            let text = response["response"][field].as_str().expect("field is text");
            for bit in 0..8 * URL_SAFE_NO_PAD.decode(text).expect("field is Base64").len() {
                let mut changed = response.clone();
                edit_bytes(&mut changed, field, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                assert!(finish_sign_in(stored(&state), &changed, &record).is_err(), "{field} {bit}");
            }
        }
        assert!(finish_sign_in(state, &response, &record).is_ok());
    }
}

#[test]
fn trailing_bytes_are_rejected() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let change = |statement: &mut Statement| statement.suffix = vec![0];
    let expected = Err(WebauthnError::Malformed("authenticator data"));
    assert_eq!(register(&authenticator, change).map(drop), expected);
    assert_eq!(sign_in(&authenticator, &record, change).map(drop), expected, "signed trailing bytes");
    let after_extensions = |statement: &mut Statement| {
        statement.flags |= ED;
        statement.suffix = vec![0xa0, 0];
    };
    assert_eq!(register(&authenticator, after_extensions).map(drop), expected);
    assert_eq!(sign_in(&authenticator, &record, after_extensions).map(drop), expected);

    for (field, error) in [("attestationObject", "attestation object"), ("clientDataJSON", "client data")] {
        let (options, state) = relying_party().begin_registration(&USER, &[]);
        let mut response = authenticator.create(&options, |_| ());
        edit_bytes(&mut response, field, |bytes| bytes.push(0));
        assert_eq!(finish_registration(state, &response), Err(WebauthnError::Malformed(error)));
    }
}

#[test]
fn malformed_extensions_and_attestation_objects_are_rejected() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    // An integer, no item, an incomplete map, and an incomplete map with a huge length.
    for extensions in [&b"\x05"[..], b"", b"\xa1\x61a", b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let change = |statement: &mut Statement| {
            statement.flags |= ED;
            statement.suffix = extensions.to_vec();
        };
        let expected = Err(WebauthnError::Malformed("CBOR"));
        assert_eq!(register(&authenticator, change).map(drop), expected, "{extensions:?}");
        assert_eq!(sign_in(&authenticator, &record, change).map(drop), expected, "{extensions:?}");
    }
    for (name, attestation, error) in [
        ("no statement", &b"\x63fmt\x64none\x61x\xa0"[..], "attestation object"),
        ("no format", b"\x61x\x64none\x67attStmt\xa0", "attestation object"),
        ("a format that is not text", b"\x63fmt\x01\x67attStmt\xa0", "CBOR"),
        ("a repeated field", b"\x67attStmt\xa0\x67attStmt\xa0", "CBOR"),
        ("a number as a name", b"\x01\x64none\x67attStmt\xa0", "CBOR"),
    ] {
        let outcome = register(&authenticator, |statement| statement.attestation = attestation.to_vec());
        assert_eq!(outcome, Err(WebauthnError::Malformed(error)), "{name}");
    }
}

#[test]
fn truncated_responses_are_rejected() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let (options, state) = relying_party().begin_registration(&USER, &[]);
    let response = authenticator.create(&options, |_| ());
    let object = response["response"]["attestationObject"].as_str().expect("field is text");
    for length in 0..URL_SAFE_NO_PAD.decode(object).expect("field is Base64").len() {
        let mut changed = response.clone();
        edit_bytes(&mut changed, "attestationObject", |bytes| bytes.truncate(length));
        assert!(finish_registration(stored(&state), &changed).is_err(), "{length}");
    }
    for length in 0..37 {
        let (options, state) = relying_party().begin_authentication();
        let mut changed = authenticator.get(&options, |_| ());
        edit_bytes(&mut changed, "authenticatorData", |bytes| bytes.truncate(length));
        let expected = Err(WebauthnError::Malformed("authenticator data"));
        assert_eq!(finish_sign_in(state, &changed, &record), expected, "{length}");
    }
}

#[test]
fn credential_id_must_match() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let other = Base64Url::encode(b"another id");
    for fields in [&["id", "rawId"][..], &["id"], &["rawId"]] {
        let (options, state) = relying_party().begin_registration(&USER, &[]);
        let mut response = authenticator.create(&options, |_| ());
        fields.iter().for_each(|field| response[field] = other.as_str().into());
        assert_eq!(finish_registration(state, &response), Err(WebauthnError::WrongCredentialId), "{fields:?}");
        let (options, state) = relying_party().begin_authentication();
        let mut response = authenticator.get(&options, |_| ());
        fields.iter().for_each(|field| response[field] = other.as_str().into());
        assert_eq!(finish_sign_in(state, &response, &record), Err(WebauthnError::WrongCredentialId), "{fields:?}");
    }
    let (options, state) = relying_party().begin_authentication();
    let response: AuthenticationResponse =
        serde_json::from_value(authenticator.get(&options, |_| ())).expect("response is valid");
    assert_eq!(response.credential_id(), CREDENTIAL_ID);
    let passkey = KnownPasskey { credential_id: b"another id", user_handle: &USER_HANDLE, record: &record };
    let outcome = relying_party().finish_authentication(state, &response, &passkey);
    assert_eq!(outcome, Err(WebauthnError::WrongCredentialId), "the record of another passkey");
}

#[test]
fn credential_id_has_1_to_1023_bytes() {
    let authenticator = Authenticator::es256();
    for length in [0, 1024, 60_000] {
        let outcome = register(&authenticator, |statement| statement.credential_id = vec![7; length]);
        assert_eq!(outcome, Err(WebauthnError::Malformed("authenticator data")), "{length}");
    }
    for length in [1, 1023] {
        let (options, state) = relying_party().begin_registration(&USER, &[]);
        let mut response = authenticator.create(&options, |statement| statement.credential_id = vec![7; length]);
        let id = Base64Url::encode(&vec![7; length]);
        (response["id"], response["rawId"]) = (id.as_str().into(), id.into());
        assert!(finish_registration(state, &response).is_ok(), "{length}");
    }
}

#[test]
fn malformed_json_is_rejected() {
    let authenticator = Authenticator::es256();
    let (options, state) = relying_party().begin_registration(&USER, &[]);
    let response = authenticator.create(&options, |_| ());
    for (field, value) in
        [("rawId", json!("not Base64!")), ("rawId", json!("YQ==")), ("id", Value::Null), ("type", json!(1))]
    {
        let mut changed = response.clone();
        changed[field] = value;
        assert!(serde_json::from_value::<RegistrationResponse>(changed.clone()).is_err(), "{changed}");
    }
    let mut changed = response.clone();
    changed["type"] = "password".into();
    assert_eq!(finish_registration(state, &changed), Err(WebauthnError::Malformed("credential type")));
    assert!(serde_json::from_value::<AuthenticationResponse>(response).is_err(), "a registration");
}

#[test]
fn client_data_with_a_repeated_field_is_rejected() {
    let authenticator = Authenticator::es256();
    let (options, state) = relying_party().begin_registration(&USER, &[]);
    let mut response = authenticator.create(&options, |_| ());
    edit_bytes(&mut response, "clientDataJSON", |bytes| {
        bytes.splice(1..1, *b"\"origin\":\"https://attacker.example\",");
    });
    assert_eq!(finish_registration(state, &response), Err(WebauthnError::Malformed("client data")));
}
