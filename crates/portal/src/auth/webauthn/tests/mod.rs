//! Ceremonies with an authenticator in software.

use serde_json::{Value, json};

use super::base64_url::Base64Url;
use super::{
    AuthenticationResponse, AuthenticationState, KnownPasskey, NewPasskey, PasskeyRecord, PasskeyUser,
    RegistrationResponse, RegistrationState, RelyingParty, WebauthnError,
};
use authenticator::{AT, Authenticator, BASE_URL, BE, BS, CREDENTIAL_ID, ED, Statement, UP, USER_HANDLE, UV};

mod authenticator;
mod forgeries;
mod keys;
mod records;
mod vectors;

const USER: PasskeyUser<'static> = PasskeyUser { handle: &USER_HANDLE, name: "a@b.example" };

fn relying_party() -> RelyingParty {
    RelyingParty::from_base_url(BASE_URL).expect("base URL is valid")
}

/// Registers a passkey whose statement was changed.
fn register(authenticator: &Authenticator, change: impl FnOnce(&mut Statement)) -> Result<NewPasskey, WebauthnError> {
    let (options, state) = relying_party().begin_registration(&USER, &[]);
    finish_registration(state, &authenticator.create(&options, change))
}

fn finish_registration(state: RegistrationState, response: &Value) -> Result<NewPasskey, WebauthnError> {
    let response: RegistrationResponse = serde_json::from_value(response.clone()).expect("response is valid");
    relying_party().finish_registration(state, &response)
}

/// Signs in with a registered passkey whose statement was changed.
fn sign_in(
    authenticator: &Authenticator,
    record: &PasskeyRecord,
    change: impl FnOnce(&mut Statement),
) -> Result<Option<PasskeyRecord>, WebauthnError> {
    let (options, state) = relying_party().begin_authentication();
    finish_sign_in(state, &authenticator.get(&options, change), record)
}

fn finish_sign_in(
    state: AuthenticationState,
    response: &Value,
    record: &PasskeyRecord,
) -> Result<Option<PasskeyRecord>, WebauthnError> {
    let response: AuthenticationResponse = serde_json::from_value(response.clone()).expect("response is valid");
    let passkey = KnownPasskey { credential_id: &CREDENTIAL_ID, user_handle: &USER_HANDLE, record };
    relying_party().finish_authentication(state, &response, &passkey)
}

fn registered(authenticator: &Authenticator) -> PasskeyRecord {
    register(authenticator, |_| ()).expect("registration is accepted").record
}

/// A state that is read back from its stored form.
fn stored<T: serde::Serialize + serde::de::DeserializeOwned>(state: &T) -> T {
    serde_json::from_value(serde_json::to_value(state).expect("state is serialized")).expect("state is valid")
}

#[test]
fn passkeys_need_a_domain_name_or_localhost() {
    for (base_url, id, origin) in [
        ("https://ipseity.example", "ipseity.example", "https://ipseity.example"),
        ("https://ipseity.example:443/path/", "ipseity.example", "https://ipseity.example"),
        ("https://localhost:8443", "localhost", "https://localhost:8443"),
        ("https://bücher.example", "xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ] {
        let relying_party = RelyingParty::from_base_url(base_url).expect("base URL is valid");
        assert_eq!((relying_party.id.as_str(), relying_party.origin.as_str()), (id, origin));
    }
    for invalid in ["https://192.0.2.1", "https://[2001:db8::1]", "nonsense", ""] {
        assert!(RelyingParty::from_base_url(invalid).is_none(), "{invalid}");
    }
}

#[test]
fn options_request_a_discoverable_verified_passkey_without_attestation() {
    let (options, state) = relying_party().begin_registration(&USER, &[vec![1, 2, 3]]);
    let options = &options["publicKey"];
    assert_eq!(options["rp"], json!({ "id": "localhost", "name": "Ipseity" }));
    assert_eq!(options["user"]["id"], Base64Url::encode(&USER_HANDLE));
    assert_eq!(options["authenticatorSelection"]["residentKey"], "required");
    assert_eq!(options["authenticatorSelection"]["userVerification"], "required");
    assert_eq!(options["attestation"], "none");
    assert_eq!(options["excludeCredentials"], json!([{ "type": "public-key", "id": "AQID" }]));
    assert_eq!(options["pubKeyCredParams"][0], json!({ "type": "public-key", "alg": -7 }));
    assert_eq!(options["challenge"], state.registration_challenge);
    assert_eq!(state.registration_challenge.len(), 43, "32 bytes");

    let (options, state) = relying_party().begin_authentication();
    let options = &options["publicKey"];
    assert_eq!((&options["rpId"], &options["userVerification"]), (&json!("localhost"), &json!("required")));
    assert_eq!(options["challenge"], state.authentication_challenge);
    assert_ne!(relying_party().begin_authentication().1.authentication_challenge, state.authentication_challenge);
}

#[test]
fn passkeys_of_every_algorithm_register_and_sign_in() {
    for authenticator in Authenticator::of_every_algorithm() {
        let NewPasskey { credential_id, record } = register(&authenticator, |_| ()).expect("registration is accepted");
        assert_eq!((credential_id.as_slice(), record.counter), (&CREDENTIAL_ID[..], 1));
        let used = sign_in(&authenticator, &record, |_| ()).expect("sign-in is accepted").expect("counter changed");
        assert_eq!(used, PasskeyRecord { counter: 2, ..record });
    }
}

#[test]
fn state_of_one_ceremony_does_not_finish_the_other() {
    let (_, registration) = relying_party().begin_registration(&USER, &[]);
    let (_, authentication) = relying_party().begin_authentication();
    let registration = serde_json::to_value(registration).expect("state is serialized");
    let authentication = serde_json::to_value(authentication).expect("state is serialized");
    assert!(serde_json::from_value::<AuthenticationState>(registration).is_err());
    assert!(serde_json::from_value::<RegistrationState>(authentication).is_err());
}

#[test]
fn replayed_response_is_rejected() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let (options, state) = relying_party().begin_authentication();
    let response = authenticator.get(&options, |_| ());
    let again = stored(&state);
    let used = finish_sign_in(state, &response, &record).expect("sign-in is accepted").expect("counter changed");
    let (_, other) = relying_party().begin_authentication();
    assert_eq!(finish_sign_in(other, &response, &used), Err(WebauthnError::WrongChallenge), "a new challenge");
    assert_eq!(finish_sign_in(again, &response, &used), Err(WebauthnError::StaleCounter), "the same challenge");
}

#[test]
fn counter_must_increase_unless_the_authenticator_does_not_count() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    let with_counter = |old: u32, new: u32| {
        let record = PasskeyRecord { counter: old, ..record.clone() };
        sign_in(&authenticator, &record, |statement| statement.counter = new)
            .map(|changed| changed.map(|record| record.counter))
    };
    assert_eq!(with_counter(0, 0), Ok(None));
    assert_eq!(with_counter(0, 1), Ok(Some(1)));
    assert_eq!(with_counter(7, 4_000_000_000), Ok(Some(4_000_000_000)));
    for (old, new) in [(1, 0), (7, 6), (7, 7), (u32::MAX, 0)] {
        assert_eq!(with_counter(old, new), Err(WebauthnError::StaleCounter), "{old} {new}");
    }
}

#[test]
fn backup_flags_must_be_consistent() {
    let authenticator = Authenticator::es256();
    let with_flags = |flags| register(&authenticator, |statement| statement.flags |= flags);
    assert_eq!(with_flags(BS), Err(WebauthnError::InconsistentBackupFlags));
    assert!(!with_flags(0).expect("registration is accepted").record.backup_eligible);
    let synced = with_flags(BE | BS).expect("registration is accepted").record;
    assert!(synced.backup_eligible);
    for (flags, accepted) in [(BE, true), (BE | BS, true), (0, false), (BS, false)] {
        let outcome = sign_in(&authenticator, &synced, |statement| statement.flags |= flags);
        assert_eq!(outcome.is_ok(), accepted, "{flags:#x}");
    }
    let outcome = sign_in(&authenticator, &registered(&authenticator), |statement| statement.flags |= BE);
    assert_eq!(outcome, Err(WebauthnError::InconsistentBackupFlags), "a passkey that could not be copied");
}

#[test]
fn user_handle_is_optional_and_must_be_that_of_the_account() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    for (handle, expected) in [
        (Value::Null, Ok(())),
        (json!(Base64Url::encode(&USER_HANDLE)), Ok(())),
        (json!(Base64Url::encode(b"another account.")), Err(WebauthnError::WrongUserHandle)),
        (json!(""), Err(WebauthnError::WrongUserHandle)),
    ] {
        let (options, state) = relying_party().begin_authentication();
        let mut response = authenticator.get(&options, |_| ());
        response["response"]["userHandle"] = handle;
        assert_eq!(finish_sign_in(state, &response, &record).map(drop), expected);
    }
}

#[test]
fn extensions_and_unknown_fields_are_ignored() {
    let authenticator = Authenticator::es256();
    let change = |statement: &mut Statement| {
        statement.flags |= ED;
        statement.suffix = b"\xa1\x6bcredProtect\x03".to_vec();
        statement.client_data["other_keys_can_be_added_here"] = json!({ "do": ["not", "compare"] });
    };
    let record = register(&authenticator, change).expect("registration is accepted").record;
    assert!(sign_in(&authenticator, &record, change).is_ok());
}

#[test]
fn attestation_statement_is_ignored() {
    let authenticator = Authenticator::es256();
    // {"alg": -7, "sig": h'00', "x5c": [h'00']}
    let packed = b"\x63fmt\x66packed\x67attStmt\xa3\x63alg\x26\x63sig\x41\x00\x63x5c\x81\x41\x00";
    let outcome = register(&authenticator, |statement| statement.attestation = packed.to_vec());
    assert_eq!(outcome.map(|passkey| passkey.record), Ok(registered(&authenticator)));
}

#[test]
fn flags_of_both_ceremonies_are_required() {
    let authenticator = Authenticator::es256();
    let record = registered(&authenticator);
    for (flags, expected) in [
        (UV, Err(WebauthnError::UserNotPresent)),
        (UP, Err(WebauthnError::UserNotVerified)),
        (0, Err(WebauthnError::UserNotPresent)),
        (UP | UV, Ok(())),
    ] {
        let outcome = register(&authenticator, |statement| statement.flags = flags | AT);
        assert_eq!(outcome.map(drop), expected, "registration {flags:#x}");
        let outcome = sign_in(&authenticator, &record, |statement| statement.flags = flags);
        assert_eq!(outcome.map(drop), expected, "sign-in {flags:#x}");
    }
    let outcome = register(&authenticator, |statement| statement.flags = UP | UV);
    assert_eq!(outcome, Err(WebauthnError::Malformed("authenticator data")), "no credential");
    let outcome = sign_in(&authenticator, &record, |statement| statement.flags = UP | UV | AT);
    assert_eq!(outcome, Err(WebauthnError::WrongCeremony), "a credential");
}
