//! The session cookie and the CSRF token derived from it.
//!
//! The cookie value is 256 random bits. PostgreSQL stores only its digest, and only for signed-in sessions. The CSRF token is
//! derived from the value, so it cannot be computed without the cookie, and a new cookie invalidates old forms.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The session cookie. With the prefix `__Host-`, browsers accept it only from this host and over TLS.
const SESSION_COOKIE_NAME: &str = "__Host-ipseity";
/// The session cookie of the admin console. Browsers send the cookies of a host to all its ports.
const CONSOLE_COOKIE_NAME: &str = "__Host-ipseity-console";
/// Identifies a browser that signed in before.
const DEVICE_COOKIE_NAME: &str = "__Host-device";
const SECRET_BYTES: usize = 32;
/// A year; after that the browser is unknown again.
const DEVICE_COOKIE_MAX_AGE_S: u64 = 31_536_000;

/// 256 random bits in hexadecimal. No `Debug`, so that it cannot be logged by accident.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretToken(String);

impl SecretToken {
    /// Generates a new token.
    pub(crate) fn generate() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the system provides random bytes");
        Self(hex::encode(bytes))
    }

    /// Parses a token.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_valid =
            text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_valid.then(|| Self(text.to_owned()))
    }

    /// The digest to store.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The token in plain text, for its owner.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// The session cookie of a browser.
#[derive(Clone)]
pub(crate) struct SessionCookie {
    name: &'static str,
    token: SecretToken,
    /// Whether the browser does not have the cookie yet.
    is_new: bool,
}

impl SessionCookie {
    /// Reads the cookie of a request, or generates a new one.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        Self::read(headers, SESSION_COOKIE_NAME)
    }

    /// The same for the admin console.
    pub(crate) fn of_console(headers: &HeaderMap) -> Self {
        Self::read(headers, CONSOLE_COOKIE_NAME)
    }

    fn read(headers: &HeaderMap, name: &'static str) -> Self {
        let new = || Self { name, token: SecretToken::generate(), is_new: true };
        read_cookie(headers, name).map_or_else(new, |token| Self { name, token, is_new: false })
    }

    /// Generates a new cookie. Signing in and out does this, which prevents session fixation.
    pub(crate) fn generate() -> Self {
        Self { name: SESSION_COOKIE_NAME, token: SecretToken::generate(), is_new: true }
    }

    /// The same for the admin console.
    pub(crate) fn generate_for_console() -> Self {
        Self { name: CONSOLE_COOKIE_NAME, ..Self::generate() }
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The digest that identifies the session in PostgreSQL.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.token.digest()
    }

    /// The CSRF token of this session's forms.
    pub(crate) fn csrf_token(&self) -> String {
        let digest = Sha256::new_with_prefix("form:").chain_update(self.token.expose()).finalize();
        hex::encode(&digest[..16])
    }

    /// Verifies the CSRF token of a form.
    pub(crate) fn verify_csrf_token(&self, token: &str) -> bool {
        !self.is_new && self.csrf_token().as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// The `Set-Cookie` value; expires with an idle session.
    pub(crate) fn to_set_cookie(&self, idle_max_s: u64) -> HeaderValue {
        set_cookie_header(self.name, &self.token, idle_max_s)
    }
}

/// Reads the device token of a browser that signed in before.
pub(crate) fn device_token(headers: &HeaderMap) -> Option<SecretToken> {
    read_cookie(headers, DEVICE_COOKIE_NAME)
}

/// The `Set-Cookie` value of the device token.
pub(crate) fn device_set_cookie(token: &SecretToken) -> HeaderValue {
    set_cookie_header(DEVICE_COOKIE_NAME, token, DEVICE_COOKIE_MAX_AGE_S)
}

fn set_cookie_header(name: &str, token: &SecretToken, max_age_s: u64) -> HeaderValue {
    let value = token.expose();
    HeaderValue::try_from(format!("{name}={value}; Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax"))
        .expect("header value is ASCII")
}

fn read_cookie(headers: &HeaderMap, name: &str) -> Option<SecretToken> {
    let pairs =
        headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok()).flat_map(|header| header.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(cookie_name, _)| *cookie_name == name)
        .and_then(|(_, value)| SecretToken::parse(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(cookie_header: &str) -> HeaderMap {
        [(COOKIE, HeaderValue::from_str(cookie_header).expect("header value is valid"))].into_iter().collect()
    }

    #[test]
    fn session_is_recognized_only_by_a_valid_cookie() {
        let session_cookie = SessionCookie::generate();
        let set_cookie = session_cookie.to_set_cookie(60).to_str().expect("header is ASCII").to_owned();
        assert!(set_cookie.ends_with("; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"));
        let cookie_pair = set_cookie.split(';').next().expect("cookie has a name and a value");
        let parsed = SessionCookie::from_headers(&with_cookie(&format!("a=b; {cookie_pair}; c=d")));
        assert!(parsed.digest() == session_cookie.digest() && !parsed.is_new());
        for invalid in [
            "__Host-ipseity=",
            "__Host-ipseity=XYZ",
            "ipseity=00",
            &cookie_pair.to_uppercase(),
            &format!("x{cookie_pair}"),
        ] {
            assert!(SessionCookie::from_headers(&with_cookie(invalid)).is_new(), "{invalid}");
        }
    }

    #[test]
    fn csrf_token_is_valid_only_for_its_session() {
        let returning = |session_cookie: &SessionCookie| SessionCookie { is_new: false, ..session_cookie.clone() };
        let (own, other) = (SessionCookie::generate(), SessionCookie::generate());
        assert!(returning(&own).verify_csrf_token(&own.csrf_token()));
        for token in ["", &other.csrf_token(), &own.csrf_token()[1..], own.token.expose()] {
            assert!(!returning(&own).verify_csrf_token(token));
        }
        assert!(
            !own.verify_csrf_token(&own.csrf_token()),
            "a browser without the cookie cannot have received the form"
        );
        assert!(!own.csrf_token().contains(&own.token.expose()[..8]));
    }
}
