//! What browsers send to the portal: cookies, forms, passkeys and email addresses.

use std::sync::LazyLock;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use ipseity_domain::account::EmailAddress;
use serde_json::{Value, json};

use session_cookie::SessionCookie;
use webauthn::{KnownPasskey, NewPasskey, RelyingParty};

#[path = "../../crates/portal/src/auth/form_fields.rs"]
mod form_fields;
#[path = "../../crates/portal/src/auth/session_cookie.rs"]
#[expect(dead_code, reason = "cookies are only parsed here")]
mod session_cookie;
#[path = "../../crates/portal/src/auth/webauthn/mod.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "responses are only verified here"))]
mod webauthn;

const OWN_COOKIE: &str = "__Host-ipseity=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// The challenge that the seeds answer.
const CHALLENGE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// A recognized session or device is in the request, and a valid cookie before others is always recognized.
pub(crate) fn check_cookie(bytes: &[u8]) {
    let lines: Vec<HeaderValue> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();
    let with_lines = |first: Option<HeaderValue>| -> HeaderMap {
        first.into_iter().chain(lines.iter().cloned()).map(|value| (COOKIE, value)).collect()
    };
    let contains = |text: &str| lines.iter().any(|line| line.to_str().is_ok_and(|line| line.contains(text)));
    let headers = with_lines(None);
    assert!(SessionCookie::from_headers(&headers).is_new() || contains("__Host-ipseity="));
    if let Some(token) = session_cookie::device_token(&headers) {
        assert!(contains(&format!("__Host-device={}", token.expose())));
    }
    let own = own_session();
    let headers = with_lines(Some(HeaderValue::from_static(OWN_COOKIE)));
    assert_eq!(SessionCookie::from_headers(&headers).digest(), own.digest());
}

fn own_session() -> SessionCookie {
    SessionCookie::from_headers(&[(COOKIE, HeaderValue::from_static(OWN_COOKIE))].into_iter().collect())
}

/// A form is accepted only with the session's CSRF token, and its fields survive encoding.
pub(crate) fn check_form(bytes: &[u8]) {
    let (session, fields) = (own_session(), form_fields::parse_fields(bytes));
    let token = session.csrf_token();
    let sent_token = fields.get("csrf").map_or("", String::as_str);
    assert_eq!(session.verify_csrf_token(sent_token), sent_token == token);

    let encoded = form_urlencoded::Serializer::new(String::new()).extend_pairs(&fields).finish();
    assert_eq!(form_fields::parse_fields(encoded.as_bytes()), fields);
    let with_token = [bytes, b"&csrf=", token.as_bytes()].concat();
    assert_eq!(form_fields::parse_fields(&with_token).get("csrf"), Some(&token));
}

/// An accepted address is ASCII in one spelling, without characters that an email program could read as more.
pub(crate) fn check_email_address(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some(address) = EmailAddress::parse(&text) else { return };
    let address = address.as_str();
    assert!(address.len() <= 254 && address.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(address.bytes().filter(|byte| *byte == b'@').count() == 1);
    assert!(!address.contains(['<', '>', '"', '(', ')', ',', ':', ';', '\\', '[', ']']));
    assert!(!address.bytes().any(|byte| byte.is_ascii_uppercase()));
    assert_eq!(EmailAddress::parse(address).as_ref().map(EmailAddress::as_str), Some(address));
}

/// A response that finishes a ceremony names the credential that was registered, and its signed parts are not changed.
pub(crate) fn check_webauthn(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(passkey) = CEREMONIES.register(text) {
        let response: Value = serde_json::from_str(text).expect("response is JSON");
        assert!(response["rawId"].as_str().is_some_and(|id| !id.is_empty()));
        let row = passkey.record.to_json(&passkey.credential_id);
        assert_eq!(webauthn::PasskeyRecord::from_json(&row).expect("row is valid"), passkey.record);
    }
    if CEREMONIES.accepts_sign_in(text) {
        let [response, seed]: [Value; 2] =
            [text, SIGN_IN].map(|text| serde_json::from_str(text).expect("response is JSON"));
        assert_eq!(response["rawId"], seed["rawId"]);
        for field in ["authenticatorData", "clientDataJSON"] {
            assert_eq!(response["response"][field], seed["response"][field]);
        }
    }
}

const SIGN_IN: &str = include_str!("../seeds/webauthn/sign_in");
static CEREMONIES: LazyLock<Ceremonies> = LazyLock::new(Ceremonies::start);

/// Ceremonies with a fixed challenge, so that mutated seeds get past the check of the challenge.
struct Ceremonies {
    relying_party: RelyingParty,
    passkey: Option<NewPasskey>,
}

impl Ceremonies {
    fn start() -> Self {
        let relying_party = RelyingParty::from_base_url("https://localhost:8443").expect("base URL is valid");
        let mut ceremonies = Self { relying_party, passkey: None };
        ceremonies.passkey = ceremonies.register(include_str!("../seeds/webauthn/registration"));
        assert!(ceremonies.accepts_sign_in(SIGN_IN), "seed is accepted");
        ceremonies
    }

    fn register(&self, text: &str) -> Option<NewPasskey> {
        let response = serde_json::from_str(text).ok()?;
        let state = serde_json::from_value(json!({ "registration_challenge": CHALLENGE })).expect("state is valid");
        self.relying_party.finish_registration(state, &response).ok()
    }

    fn accepts_sign_in(&self, text: &str) -> bool {
        let (Ok(response), Some(NewPasskey { credential_id, record })) = (serde_json::from_str(text), &self.passkey)
        else {
            return false;
        };
        let state = serde_json::from_value(json!({ "authentication_challenge": CHALLENGE })).expect("state is valid");
        let passkey = KnownPasskey { credential_id, user_handle: &[0; 16], record };
        self.relying_party.finish_authentication(state, &response, &passkey).is_ok()
    }
}
