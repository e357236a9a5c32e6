//! Stored passkeys: rows that `webauthn-rs` 0.6 wrote, and rows of the next version.

use serde_json::{Value, json};

use super::super::PasskeyRecord;
use super::super::base64_url::Base64Url;
use super::super::public_key::PublicKey;
use super::authenticator::{Authenticator, CREDENTIAL_ID};
use super::{register, registered, sign_in};

const X: &str = "F7wx6YiOpiXkMc0LFVVgAqNz9hyLdq54CP5W3TCPRlc";
const Y: &str = "UZgGRglPTRDRUkSiWPtfTU9CyCXwlpx5zfAXVke1eEY";

/// A row as `webauthn-rs` wrote it after a registration with Chromium.
fn legacy_row(algorithm: &str, key: &Value) -> Value {
    json!({ "cred": {
        "cred_id": "_ynWDqqR6Bh5Q94XfFy3ZwFeS7WzIUaYCkJl_t0ysDE",
        "cred": { "type_": algorithm, "key": key },
        "counter": 1,
        "transports": null,
        "user_verified": true,
        "backup_eligible": true,
        "backup_state": true,
        "registration_policy": "required",
        "extensions": {
            "cred_protect": "Ignored",
            "hmac_create_secret": "NotRequested",
            "appid": "NotRequested",
            "cred_props": { "Unsigned": { "rk": true } },
        },
        "attestation": { "data": "Self_", "metadata": "None" },
        "attestation_format": "packed",
    } })
}

fn next_row(public_key: &Value) -> Value {
    json!({ "public_key": public_key, "counter": 1, "backup_eligible": true })
}

#[test]
fn rows_of_the_previous_and_the_next_version_are_read() {
    let ec2 = |curve| json!({ "EC_EC2": { "curve": curve, "x": X, "y": Y } });
    for (legacy, next) in [
        (legacy_row("ES256", &ec2("SECP256R1")), json!({ "algorithm": "ES256", "x": X, "y": Y })),
        (legacy_row("ES384", &ec2("SECP384R1")), json!({ "algorithm": "ES384", "x": X, "y": Y })),
        (
            legacy_row("EDDSA", &json!({ "EC_OKP": { "curve": "ED25519", "x": X } })),
            json!({ "algorithm": "EdDSA", "x": X }),
        ),
        (
            legacy_row("RS256", &json!({ "RSA": { "n": X, "e": [1, 0, 1] } })),
            json!({ "algorithm": "RS256", "n": X, "e": [1, 0, 1] }),
        ),
    ] {
        let record = PasskeyRecord::from_json(&legacy).expect("row is valid");
        assert_eq!((record.counter, record.backup_eligible), (1, true));
        assert_eq!(PasskeyRecord::from_json(&next_row(&next)).expect("row is valid"), record, "{next}");
    }
}

#[test]
fn written_rows_have_the_layout_of_the_previous_version() {
    for authenticator in Authenticator::of_every_algorithm() {
        let record = registered(&authenticator);
        let row = record.to_json(&CREDENTIAL_ID);
        assert_eq!(PasskeyRecord::from_json(&row).expect("row is valid"), record);
        assert!(sign_in(&authenticator, &PasskeyRecord::from_json(&row).expect("row is valid"), |_| ()).is_ok());
    }
    let record = register(&Authenticator::es256(), |_| ()).expect("registration is accepted").record;
    let PublicKey::Es256 { x, y } = &record.public_key else { panic!("{record:?}") };
    let key = json!({ "EC_EC2": { "curve": "SECP256R1", "x": encode(&x.0), "y": encode(&y.0) } });
    let (row, mut expected) = (record.to_json(&CREDENTIAL_ID), legacy_row("ES256", &key));
    let credential = &mut expected["cred"];
    credential["cred_id"] = encode(&CREDENTIAL_ID).into();
    (credential["backup_eligible"], credential["backup_state"]) = (false.into(), false.into());
    credential["extensions"] = json!({});
    credential["attestation"]["data"] = "None".into();
    credential["attestation_format"] = "none".into();
    assert_eq!(row, expected);
}

fn encode(bytes: &[u8]) -> String {
    Base64Url::encode(bytes)
}

#[test]
fn invalid_rows_are_errors() {
    for row in [
        json!({}),
        json!({ "cred": {} }),
        json!([]),
        legacy_row("ES256", &json!({ "RSA": { "n": X, "e": [1, 0, 1] } })),
        legacy_row("ES512", &json!({ "EC_EC2": { "curve": "SECP521R1", "x": X, "y": Y } })),
        legacy_row("ES256", &json!({ "EC_EC2": { "curve": "SECP256R1", "x": "!", "y": Y } })),
        next_row(&json!({ "algorithm": "none" })),
    ] {
        assert!(PasskeyRecord::from_json(&row).is_err(), "{row}");
    }
}
