//! Responses that Chromium 156 recorded with its virtual authenticator.

use serde_json::{Value, json};

use super::super::public_key::PublicKey;
use super::super::{KnownPasskey, NewPasskey, PasskeyRecord, RelyingParty, WebauthnError};
use super::authenticator::USER_HANDLE;

const CHALLENGE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

macro_rules! recorded {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("chromium/registration_", $name, ".json")),
            include_str!(concat!("chromium/sign_in_", $name, ".json")),
        )
    };
}

const RECORDED: [(&str, &str, &str); 4] =
    [recorded!("es256"), recorded!("synced"), recorded!("ed25519"), recorded!("rs256")];

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("JSON is valid")
}

fn relying_party() -> RelyingParty {
    RelyingParty::from_base_url("http://localhost:8099").expect("base URL is valid")
}

fn register(text: &str) -> NewPasskey {
    let state = from_json(json!({ "registration_challenge": CHALLENGE }));
    let response = serde_json::from_str(text).expect("response is valid");
    relying_party().finish_registration(state, &response).expect("registration is accepted")
}

fn sign_in(text: &str, passkey: &NewPasskey) -> Result<Option<PasskeyRecord>, WebauthnError> {
    let state = from_json(json!({ "authentication_challenge": CHALLENGE }));
    let response = serde_json::from_str(text).expect("response is valid");
    let NewPasskey { credential_id, record } = passkey;
    let passkey = KnownPasskey { credential_id, user_handle: &USER_HANDLE, record };
    relying_party().finish_authentication(state, &response, &passkey)
}

#[test]
fn recorded_responses_are_accepted() {
    for (name, registration, authentication) in RECORDED {
        let passkey = register(registration);
        let record = passkey.record.clone();
        assert_eq!((record.counter, record.backup_eligible), (1, name == "synced"), "{name}");
        let algorithm = match record.public_key {
            PublicKey::Es256 { .. } => "es256",
            PublicKey::Es384 { .. } => "es384",
            PublicKey::Ed25519 { .. } => "ed25519",
            PublicKey::Rs256 { .. } => "rs256",
        };
        assert_eq!(algorithm, name.replace("synced", "es256"));
        let used = sign_in(authentication, &passkey).expect("sign-in is accepted");
        assert_eq!(used, Some(PasskeyRecord { counter: 2, ..record }), "{name}");
    }
}

#[test]
fn recorded_responses_are_bound_to_their_passkey() {
    let passkeys = RECORDED.map(|(_, registration, _)| register(registration));
    for (index, (_, _, authentication)) in RECORDED.iter().enumerate() {
        for (other, passkey) in passkeys.iter().enumerate() {
            assert_eq!(sign_in(authentication, passkey).is_ok(), index == other, "{index} {other}");
        }
    }
}
