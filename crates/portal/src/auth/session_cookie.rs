//! A browser's visit: the one cookie that names it, and the token that its forms must carry.
//!
//! The cookie's value is 256 random bits. PostgreSQL keeps its digest only, and only for those who signed in; a stranger's value is kept
//! nowhere. The token is derived from the value, so that whoever cannot read the cookie cannot make one, and a new cookie makes old forms stale.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The session's cookie. `__Host-` makes browsers refuse it from anybody but this host, over TLS.
const SESSION_COOKIE_NAME: &str = "__Host-ipseity";
/// The cookie of a browser that signed in before.
const DEVICE_COOKIE_NAME: &str = "__Host-device";
const SECRET_BYTES: usize = 32;
/// A year: as long as a browser counts as known.
const DEVICE_COOKIE_MAX_AGE_S: u64 = 31_536_000;

/// 256 random bits as hexadecimal text; no `Debug`, so that it cannot be logged by accident.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretToken(String);

impl SecretToken {
    /// Draws a new one.
    pub(crate) fn generate() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        Self(hex::encode(bytes))
    }

    /// Reads one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_valid =
            text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_valid.then(|| Self(text.to_owned()))
    }

    /// What is stored of it.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The text itself, for the one who is to have it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// A browser's visit.
#[derive(Clone)]
pub(crate) struct SessionCookie {
    token: SecretToken,
    /// The browser does not have the cookie yet.
    is_new: bool,
}

impl SessionCookie {
    /// The visit that a request belongs to, or a new one.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        read_cookie(headers, SESSION_COOKIE_NAME).map_or_else(Self::generate, |token| Self { token, is_new: false })
    }

    /// A new visit; signing in and out begins one, so that nobody can know its secret from before.
    pub(crate) fn generate() -> Self {
        Self { token: SecretToken::generate(), is_new: true }
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Names the visit in PostgreSQL.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.token.digest()
    }

    /// The token of this visit's forms.
    pub(crate) fn csrf_token(&self) -> String {
        let digest = Sha256::new_with_prefix("form:").chain_update(self.token.expose()).finalize();
        hex::encode(&digest[..16])
    }

    /// Whether a form of this visit carried its token.
    pub(crate) fn verify_csrf_token(&self, token: &str) -> bool {
        !self.is_new && self.csrf_token().as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// The cookie, for as long as an idle session lasts.
    pub(crate) fn to_set_cookie(&self, idle_max_s: u64) -> HeaderValue {
        set_cookie_header(SESSION_COOKIE_NAME, &self.token, idle_max_s)
    }
}

/// The secret of a browser that signed in before.
pub(crate) fn device_token(headers: &HeaderMap) -> Option<SecretToken> {
    read_cookie(headers, DEVICE_COOKIE_NAME)
}

/// The cookie that makes a browser known.
pub(crate) fn device_set_cookie(token: &SecretToken) -> HeaderValue {
    set_cookie_header(DEVICE_COOKIE_NAME, token, DEVICE_COOKIE_MAX_AGE_S)
}

fn set_cookie_header(name: &str, token: &SecretToken, max_age_s: u64) -> HeaderValue {
    let value = token.expose();
    HeaderValue::try_from(format!("{name}={value}; Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax"))
        .expect("hexadecimal digits and our own text")
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
        [(COOKIE, HeaderValue::from_str(cookie_header).expect("a value"))].into_iter().collect()
    }

    #[test]
    fn session_is_recognized_only_by_a_valid_cookie() {
        let session_cookie = SessionCookie::generate();
        let set_cookie = session_cookie.to_set_cookie(60).to_str().expect("text").to_owned();
        assert!(set_cookie.ends_with("; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"));
        let cookie_pair = set_cookie.split(';').next().expect("a pair");
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
        let returning =
            |session_cookie: &SessionCookie| SessionCookie { token: session_cookie.token.clone(), is_new: false };
        let (own, other) = (SessionCookie::generate(), SessionCookie::generate());
        assert!(returning(&own).verify_csrf_token(&own.csrf_token()));
        for token in ["", &other.csrf_token(), &own.csrf_token()[1..], own.token.expose()] {
            assert!(!returning(&own).verify_csrf_token(token));
        }
        assert!(!own.verify_csrf_token(&own.csrf_token()), "a browser without the cookie sent no form of ours");
        assert!(!own.csrf_token().contains(&own.token.expose()[..8]));
    }
}
