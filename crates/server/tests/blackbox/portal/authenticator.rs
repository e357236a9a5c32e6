//! An authenticator in software, with one passkey (ES256).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipseity_testkit::TestResponse;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::browser::Browser;
use super::fixture::{PortalFixture, TestMember};

const USER_PRESENT_AND_VERIFIED: u8 = 0x05;
const ATTESTED_CREDENTIAL: u8 = 0x40;

pub(crate) struct Authenticator {
    key_pair: KeyPair,
    credential_id: [u8; 16],
    origin: String,
    counter: u32,
    /// The user handle of assertions, in Base64. By default there is none.
    pub(crate) user_handle: Option<String>,
    pub(crate) forged: Forged,
}

/// What an attacker's authenticator sends instead of the right values.
#[derive(Default)]
pub(crate) struct Forged {
    pub(crate) origin: Option<String>,
    pub(crate) relying_party: Option<&'static str>,
    pub(crate) challenge: Option<&'static str>,
    pub(crate) kind: Option<&'static str>,
    pub(crate) flags: Option<u8>,
    pub(crate) counter: Option<u32>,
    pub(crate) breaks_signature: bool,
}

impl Authenticator {
    pub(crate) fn new(fixture: &PortalFixture) -> Self {
        Self::for_origin(&fixture.node().env()["IPSEITY__PUBLIC__BASE_URL"])
    }

    pub(crate) fn for_origin(origin: &str) -> Self {
        Self {
            key_pair: KeyPair::generate().expect("key pair is generated"),
            credential_id: fastrand::u128(..).to_be_bytes(),
            origin: origin.to_owned(),
            counter: 0,
            user_handle: None,
            forged: Forged::default(),
        }
    }

    /// Adds the passkey to an account. The fields confirm the owner.
    pub(crate) async fn register(&mut self, browser: &mut Browser, fields: &[(&str, &str)]) -> TestResponse {
        self.create_at(browser, "/account/passkeys/begin", fields, "/account/passkeys").await
    }

    /// Creates the passkey on any page: requests the options, and submits the passkey.
    pub(crate) async fn create_at(
        &mut self,
        browser: &mut Browser,
        begin: &str,
        fields: &[(&str, &str)],
        finish: &str,
    ) -> TestResponse {
        let begun = browser.post(begin, fields).await;
        if begun.status != 200 {
            return begun;
        }
        let options = &begun.json().expect("response is JSON")["publicKey"];
        let credential = self.create(options).to_string();
        browser.post(finish, &[("credential", &credential), ("name", "software")]).await
    }

    /// Adds the passkey to a member's account.
    pub(crate) async fn register_for(&mut self, member: &mut TestMember, password: &str) {
        let reply = self.register(&mut member.browser, &[("password", password)]).await;
        assert_eq!(reply.header("location"), Some("/account?done=passkey"), "{}", reply.text());
    }

    /// Signs in with the passkey.
    pub(crate) async fn sign_in(&mut self, browser: &mut Browser) -> TestResponse {
        self.authenticate(browser, "/signin/passkey", "/signin/passkey/finish").await
    }

    /// Confirms a session with the passkey.
    pub(crate) async fn confirm(&mut self, browser: &mut Browser) -> TestResponse {
        self.authenticate(browser, "/account/confirm/begin", "/account/confirm").await
    }

    async fn authenticate(&mut self, browser: &mut Browser, begin: &str, finish: &str) -> TestResponse {
        let credential = self.answer_challenge(browser, begin).await;
        browser.post(finish, &[("credential", &credential)]).await
    }

    /// Requests a challenge and returns the response to it.
    pub(crate) async fn answer_challenge(&mut self, browser: &mut Browser, begin: &str) -> String {
        let begun = browser.post(begin, &[]).await;
        self.get(&begun.json().expect("response is JSON")["publicKey"]).to_string()
    }

    /// Bytes in hexadecimal, as a user handle.
    pub(crate) fn encode_hex(hex: &str) -> String {
        URL_SAFE_NO_PAD.encode(hex::decode(hex).expect("text is hexadecimal"))
    }

    pub(crate) fn create(&mut self, options: &Value) -> Value {
        let client_data = self.client_data("webauthn.create", options);
        let mut data = self.authenticator_data(&options["rp"]["id"], USER_PRESENT_AND_VERIFIED | ATTESTED_CREDENTIAL);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.credential_id);
        let (x, y) = self.key_pair.public_key_raw()[1..].split_at(32);
        // A COSE key: {1: 2, 3: -7, -1: 1, -2: x, -3: y}
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 32]);
        data.extend(x);
        data.extend([0x22, 0x58, 32]);
        data.extend(y);
        // CBOR: {"fmt": "none", "attStmt": {}, "authData": data}
        let mut attestation = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".to_vec();
        attestation.push(u8::try_from(data.len()).expect("data is short"));
        attestation.extend(data);
        self.credential(&json!({
            "attestationObject": URL_SAFE_NO_PAD.encode(attestation),
            "clientDataJSON": URL_SAFE_NO_PAD.encode(client_data),
        }))
    }

    fn get(&mut self, options: &Value) -> Value {
        let client_data = self.client_data("webauthn.get", options);
        let data = self.authenticator_data(&options["rpId"], USER_PRESENT_AND_VERIFIED);
        let mut signed = [data.as_slice(), &Sha256::digest(&client_data)].concat();
        signed.truncate(signed.len() - usize::from(self.forged.breaks_signature));
        let signature = self.key_pair.sign(&signed).expect("signing succeeds");
        self.credential(&json!({
            "authenticatorData": URL_SAFE_NO_PAD.encode(data),
            "clientDataJSON": URL_SAFE_NO_PAD.encode(client_data),
            "signature": URL_SAFE_NO_PAD.encode(signature),
            "userHandle": self.user_handle,
        }))
    }

    fn credential(&self, response: &Value) -> Value {
        let id = URL_SAFE_NO_PAD.encode(self.credential_id);
        json!({"id": id, "rawId": id, "type": "public-key", "response": response, "extensions": {}})
    }

    fn client_data(&self, kind: &str, options: &Value) -> Vec<u8> {
        let kind = self.forged.kind.unwrap_or(kind);
        let challenge = self.forged.challenge.map_or_else(|| options["challenge"].clone(), Value::from);
        let origin = self.forged.origin.as_ref().unwrap_or(&self.origin);
        let data = json!({"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false});
        data.to_string().into_bytes()
    }

    fn authenticator_data(&mut self, relying_party: &Value, flags: u8) -> Vec<u8> {
        self.counter += 1;
        let relying_party = self.forged.relying_party.or(relying_party.as_str()).expect("relying party is text");
        let mut data = Sha256::digest(relying_party).to_vec();
        data.push(self.forged.flags.unwrap_or(flags));
        data.extend(self.forged.counter.unwrap_or(self.counter).to_be_bytes());
        data
    }
}
